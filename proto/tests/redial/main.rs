//! [`Redial`]: its table, its limits, the calls of both sides, and what it makes of the ends of handshakes.
#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm, reason = "a test fails by panicking")]

mod calls;
mod causes;
mod limits;
mod table;

use std::time::Duration;

use cmid_proto::Time;
use cmid_proto::redial::{Cause, Redial, RedialLimits, Stage, Todo};

const MS: Duration = Duration::from_millis(1);

const LIMITS: RedialLimits = RedialLimits {
    handshake: Duration::from_millis(50),
    backoff: Duration::from_millis(10),
    backoff_max: Duration::from_millis(100),
    attempts: 1000,
    within: Duration::from_secs(1),
};

/// The number of the machine under test, between those of its peers.
const OWN: u64 = 5;

fn ms(at: u32) -> Time {
    Time::ZERO.after(MS * at)
}

fn new(limits: RedialLimits) -> Redial {
    Redial::new(OWN, limits, Time::ZERO)
}

/// Lets time pass until the timeout.
fn due(redial: &mut Redial) -> (Time, Todo) {
    let now = redial.timeout().unwrap();
    (now, redial.handle_timeout(now, 0))
}

/// A machine that calls since time 0.
fn calling(limits: RedialLimits) -> Redial {
    let mut redial = new(limits);
    assert!(matches!(due(&mut redial), (Time::ZERO, Todo::Dial { .. })));
    redial
}

/// A machine with a connection since time 0.
fn connected(limits: RedialLimits) -> Redial {
    let mut redial = calling(limits);
    assert_eq!(redial.established(Time::ZERO), Todo::Use { instead: false });
    redial
}

/// The time of the next attempt after a failure.
fn fails(redial: &mut Redial, cause: Cause, now: Time) -> Time {
    let Todo::Wait { until } = redial.failed(cause, now, 0) else { panic!("{redial:?}") };
    assert_eq!((redial.stage(), redial.timeout()), (Stage::Waiting, Some(until)));
    until
}
