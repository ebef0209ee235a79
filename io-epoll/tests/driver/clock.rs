//! A wait without a limit reads the clock only where a time is needed; one with a limit ends at it.

use std::thread;
use std::time::{Duration, Instant};

use cmid_proto::{CmEvent, ConnParam, EventKind, RequestKind, Time};

use crate::{A_WHILE, PEER, SOON, channel, driver, listen, resolve};

/// Events arrive meanwhile, also on a busy machine.
const LONGER: Duration = Duration::from_millis(500);

#[test]
fn the_present_time_is_known_after_a_wait() {
    let mut driver = driver();
    let channel = channel(&mut driver);
    let before = driver.drive().now();
    thread::sleep(A_WHILE);
    resolve(&mut driver, channel, PEER, Time::NEVER);
    driver.wait(None).unwrap();
    assert_eq!(driver.drive().next_event(channel).unwrap().cm(), Some(CmEvent::AddrResolved));
    assert!(driver.drive().now().since(before) >= A_WHILE);
}

#[test]
fn a_deadline_passes_while_events_keep_coming() {
    let mut driver = driver();
    let [of_server, channel] = [0; 2].map(|_| channel(&mut driver));
    // The listener does not answer.
    listen(&mut driver, of_server);
    let id = resolve(&mut driver, channel, PEER, Time::NEVER);
    driver.wait(None).unwrap();
    assert_eq!(driver.drive().next_event(channel).unwrap().id, id);
    driver.drive().resolve_route(id, Time::NEVER).unwrap();
    driver.wait(None).unwrap();
    assert_eq!(driver.drive().next_event(channel).unwrap().cm(), Some(CmEvent::RouteResolved));
    let begun = Instant::now();
    let deadline = driver.drive().within(LONGER);
    driver.drive().connect(id, ConnParam { qp_num: 9, ..ConnParam::default() }, &[], deadline).unwrap();
    let mut others = 0;
    while begun.elapsed() < SOON {
        let other = resolve(&mut driver, channel, PEER, Time::NEVER);
        driver.wait(None).unwrap();
        while let Some(event) = driver.drive().next_event(channel) {
            if event.kind == EventKind::DeadlinePassed(RequestKind::Connect) {
                assert!(event.id == id && begun.elapsed() >= LONGER && others > 0);
                return;
            }
            others += 1;
        }
        driver.drive().destroy(other, Time::NEVER).unwrap();
    }
    panic!("the deadline has not passed after {others} events");
}

/// Returns whether one of many calls takes less than `limit`. The shortest one is that of a quiet moment, so a test
/// depends on no quiet machine.
fn is_ever_below(limit: Duration, mut call: impl FnMut()) -> bool {
    (0..1000).any(|_| {
        let begun = Instant::now();
        call();
        begun.elapsed() < limit
    })
}

/// With a resolution of one millisecond, none of these waits would end before the next one.
#[test]
fn a_wait_ends_at_its_limit_between_two_milliseconds() {
    let mut driver = driver();
    for millis in 0..3 {
        let limit = Duration::from_micros(1000 * millis + 150);
        let is_exact = is_ever_below(Duration::from_millis(millis + 1), || {
            let begun = Instant::now();
            driver.wait(Some(limit)).unwrap();
            assert!(begun.elapsed() >= limit);
        });
        assert!(is_exact, "{limit:?}");
    }
}

#[test]
fn a_waker_ends_a_wait_below_a_millisecond() {
    let mut driver = driver();
    let waker = driver.waker().unwrap();
    let is_woken = is_ever_below(Duration::from_micros(500), || {
        waker.wake();
        driver.wait(Some(Duration::from_micros(999))).unwrap();
    });
    assert!(is_woken);
}
