//! Failing reads, with every driver. The channel is read again without another wakeup, because an edge-triggered
//! descriptor does not report again. After many failures it is not read any more.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

use cmid_harness::{Fragile, Make, OnBlocking, OnEpoll, OnMio, sim_host};
use cmid_proto::{Acks, ChannelKey, CmEvent, Errno, Fault, IdKey, Limits, PortSpace, Time};
use cmid_sim::SimDevice;

/// Longer than any step of these tests, also on a busy machine.
const SOON: Duration = Duration::from_secs(20);
const A_WHILE: Duration = Duration::from_millis(200);

/// A driver, and an id with an ADDR_RESOLVED that is read only after this number of failures.
fn resolving<S: Make<Fragile<SimDevice>>>(failures: u32) -> (S, ChannelKey, IdKey) {
    let device = Fragile::new(sim_host().device(), Arc::new(AtomicU32::new(failures)), Errno::EIO);
    let mut driver = S::make(device).unwrap();
    let channel = driver.drive().open_channel(Acks::OnDelivery).unwrap();
    let id = driver.drive().create_id(Some(channel), PortSpace::Tcp).unwrap();
    driver.drive().resolve_addr(id, None, "10.0.0.2:7471".parse().unwrap(), Time::NEVER).unwrap();
    (driver, channel, id)
}

fn event_behind_failed_reads<S: Make<Fragile<SimDevice>>>() {
    let (mut driver, channel, id) = resolving::<S>(3);
    let begun = Instant::now();
    let event = loop {
        if let Some(event) = driver.drive().next_event(channel) {
            break event;
        }
        assert!(begun.elapsed() < SOON, "no event within {SOON:?}");
        driver.wait(Some(SOON)).unwrap();
    };
    assert_eq!((event.id, event.cm()), (id, Some(CmEvent::AddrResolved)));
    for _ in 0..3 {
        assert_eq!(driver.drive().next_fault(), Some(Fault::Read { channel, errno: Errno::EIO }));
    }
}

fn channel_that_fails_for_good<S: Make<Fragile<SimDevice>>>() {
    let (mut driver, channel, id) = resolving::<S>(u32::MAX);
    let (mut returns, begun) = (0, Instant::now());
    while !driver.drive().core().channel_info(channel).is_some_and(|it| it.has_failed) {
        driver.wait(Some(SOON)).unwrap();
        assert_eq!(driver.drive().next_event(channel), None);
        returns += 1;
        assert!(begun.elapsed() < SOON && returns <= u32::from(Limits::READ_FAILURES_MAX) + 2, "{returns} returns");
    }
    // The request of the id ends, and the id can be destroyed.
    driver.wait(Some(A_WHILE)).unwrap();
    assert_eq!(driver.drive().next_event(channel).unwrap().id, id);
    let begun = Instant::now();
    driver.wait(Some(A_WHILE)).unwrap();
    assert!(begun.elapsed() >= A_WHILE);
    driver.drive().destroy(id, Time::NEVER).unwrap();
    driver.drive().close_channel(channel).unwrap();
}

macro_rules! on_every_driver {
    ($($module:ident: $driver:ident,)+) => {
        $(mod $module {
            use super::*;

            #[test]
            fn an_event_behind_reads_that_failed_needs_no_other_wake_up() {
                event_behind_failed_reads::<$driver<_>>();
            }

            #[test]
            fn a_channel_that_fails_for_good_wakes_no_wait() {
                channel_that_fails_for_good::<$driver<_>>();
            }
        })+
    };
}

on_every_driver! {
    mio: OnMio,
    epoll: OnEpoll,
    blocking: OnBlocking,
}
