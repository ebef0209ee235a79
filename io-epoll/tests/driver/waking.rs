//! The waker ends a wait from another thread, once per call.

use std::os::fd::{AsFd, AsRawFd};
use std::thread;
use std::time::{Duration, Instant};

use cmid_epoll::Epoll;
use cmid_proto::{CmEvent, Next, Time};
use cmid_sim::SimDevice;

use crate::{A_WHILE, PEER, SOON, channel, driver, readable, resolve};

fn waits(driver: &mut Epoll<SimDevice>, at_most: Duration) -> Duration {
    let begun = Instant::now();
    driver.wait(Some(at_most)).unwrap();
    begun.elapsed()
}

#[test]
fn each_wake_ends_one_wait() {
    let mut driver = driver();
    let waker = driver.waker().unwrap();
    for _ in 0..3 {
        // Before the wait, and then during it.
        waker.wake();
        assert!(waits(&mut driver, SOON) < SOON);
        assert!(waits(&mut driver, A_WHILE) >= A_WHILE, "the same wake ends no second wait");
        let other = driver.waker().unwrap();
        let thread = thread::spawn(move || {
            thread::sleep(A_WHILE);
            other.wake();
        });
        assert!(waits(&mut driver, SOON) < SOON);
        thread.join().unwrap();
    }
    // Many wakes end one wait.
    (0..1000).for_each(|_| waker.wake());
    assert!(waits(&mut driver, SOON) < SOON);
    assert!(waits(&mut driver, A_WHILE) >= A_WHILE);
    // A waker may outlive its driver.
    drop(driver);
    waker.wake();
}

#[test]
fn a_task_waker_wakes_the_driver() {
    let mut driver = driver();
    let waker = std::task::Waker::from(driver.waker().unwrap());
    waker.wake_by_ref();
    assert!(waits(&mut driver, SOON) < SOON);
    waker.wake();
    assert!(waits(&mut driver, SOON) < SOON);
}

#[test]
fn a_nested_driver_is_readable_until_its_turn() {
    let mut driver = driver();
    assert_eq!(driver.as_raw_fd(), driver.as_fd().as_raw_fd());
    let waker = driver.waker().unwrap();
    assert!(!readable(&driver, A_WHILE));
    waker.wake();
    assert!(readable(&driver, SOON));
    // An edge-triggered outer loop repeats the turn until the result is `Wait`.
    while driver.turn().unwrap() == Next::Again {}
    assert!(!readable(&driver, A_WHILE));
    waker.wake();
    assert!(readable(&driver, SOON));
}

#[test]
fn a_wake_loses_no_event() {
    let mut driver = driver();
    let waker = driver.waker().unwrap();
    let channel = channel(&mut driver);
    resolve(&mut driver, channel, PEER, Time::NEVER);
    let begun = Instant::now();
    let event = loop {
        waker.wake();
        driver.wait(Some(SOON)).unwrap();
        if let Some(event) = driver.drive().next_event(channel) {
            break event;
        }
        assert!(begun.elapsed() < SOON);
    };
    assert_eq!(event.cm(), Some(CmEvent::AddrResolved));
}
