//! The waker ends a poll from another thread, once per call.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::thread;
use std::time::{Duration, Instant};

use cmid_mio::{Config, Mio};
use cmid_proto::{Acks, Errno, Limits};
use cmid_sim::{Clock, Fabric, SimDevice};
use mio::{Events, Poll};

/// Longer than any wait of these tests, also on a busy machine.
const SOON: Duration = Duration::from_secs(20);
const A_WHILE: Duration = Duration::from_millis(50);

fn driver(poll: &Poll, tokens: usize) -> Mio<SimDevice> {
    let fabric = Fabric::new(cmid_sim::Config { clock: Clock::Real, ..Default::default() });
    let host = fabric.host(&["10.0.0.1".parse().unwrap()]);
    Mio::new(host.device(), poll.registry(), Config { limits: Limits::SINGLE, tokens: 5..5 + tokens }).unwrap()
}

/// Polls once. Returns the number of events, all of the driver.
fn polls(poll: &mut Poll, driver: &mut Mio<SimDevice>, at_most: Duration) -> usize {
    let mut events = Events::with_capacity(8);
    poll.poll(&mut events, driver.timeout(Some(at_most))).unwrap();
    assert!(events.iter().all(|event| driver.handle(event)));
    let _rest = driver.turn();
    events.iter().count()
}

#[test]
fn each_wake_ends_one_poll() {
    let mut poll = Poll::new().unwrap();
    let mut driver = driver(&poll, 2);
    let waker = driver.waker().unwrap();
    for _ in 0..3 {
        let other = driver.waker().unwrap();
        let thread = thread::spawn(move || {
            thread::sleep(A_WHILE);
            other.wake();
        });
        let begun = Instant::now();
        assert_eq!(polls(&mut poll, &mut driver, SOON), 1);
        assert!(begun.elapsed() < SOON);
        thread.join().unwrap();
        assert_eq!(polls(&mut poll, &mut driver, A_WHILE), 0);
    }
    std::task::Waker::from(waker).wake();
    assert_eq!(polls(&mut poll, &mut driver, SOON), 1);
}

/// A waker uses one token, and is deregistered with the driver.
#[test]
fn a_waker_has_a_token() {
    let mut poll = Poll::new().unwrap();
    let mut driver = driver(&poll, 1);
    let waker = driver.waker().unwrap();
    let full = driver.drive().open_channel(Acks::OnDelivery).unwrap_err();
    assert_eq!(full.errno(), Errno::ENOMEM);
    drop(driver);
    waker.wake();
    let mut events = Events::with_capacity(8);
    poll.poll(&mut events, Some(A_WHILE)).unwrap();
    assert!(events.is_empty());

    let mut driver = self::driver(&poll, 1);
    driver.drive().open_channel(Acks::OnDelivery).unwrap();
    assert_eq!(driver.waker().unwrap_err().kind(), std::io::ErrorKind::OutOfMemory);
}
