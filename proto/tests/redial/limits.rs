//! Backoff, jitter, the limit on attempts and the deadline of a series.

use std::time::Duration;

use cmid_proto::Time;
use cmid_proto::redial::{Cause, GivenUp, Redial, RedialLimits, Stage, Todo};

use crate::{LIMITS, MS, OWN, calling, connected, due, fails, ms, new};

#[test]
fn the_wait_doubles_up_to_its_maximum_and_the_jitter_is_its_second_half() {
    let mut redial = calling(LIMITS);
    let mut waits = Vec::new();
    for _ in 0..6 {
        let now = redial.timeout().unwrap();
        let mut other = redial.clone();
        let least = fails(&mut redial, Cause::Heals, now).since(now);
        let Todo::Wait { until } = other.failed(Cause::Heals, now, u32::MAX) else { panic!() };
        let most = until.since(now);
        assert!(most < least * 2 && most > least * 2 - MS, "{least:?} to {most:?}");
        waits.push(least.as_millis());
        assert!(matches!(due(&mut redial), (_, Todo::Dial { .. })));
    }
    assert_eq!(waits, [5, 10, 20, 40, 50, 50]);
}

#[test]
fn a_handshake_has_its_own_deadline_and_at_most_that_of_the_series() {
    let mut redial = new(RedialLimits { within: MS * 70, ..LIMITS });
    assert_eq!(due(&mut redial).1, Todo::Dial { deadline: ms(50) });
    assert_eq!(due(&mut redial), (ms(50), Todo::Cancel));
    // The end of a handshake that was cancelled is none.
    assert_eq!(redial.timeout(), Some(ms(55)));
    assert_eq!(due(&mut redial), (ms(55), Todo::Dial { deadline: ms(70) }));
    assert_eq!(due(&mut redial), (ms(70), Todo::GiveUp(GivenUp::Deadline)));
    assert_eq!((redial.stage(), redial.timeout()), (Stage::GivenUp, None));
}

#[test]
fn it_gives_up_at_once_if_the_wait_would_end_after_the_deadline() {
    let mut redial = calling(RedialLimits { within: MS * 12, ..LIMITS });
    assert_eq!(redial.failed(Cause::Heals, ms(8), 0), Todo::GiveUp(GivenUp::Deadline));
}

#[test]
fn a_wait_that_is_over_too_late_gives_up() {
    let mut redial = calling(LIMITS);
    fails(&mut redial, Cause::Heals, ms(1));
    assert_eq!(redial.handle_timeout(ms(1000), 0), Todo::GiveUp(GivenUp::Deadline));
}

#[test]
fn the_limit_on_attempts_is_that_of_own_calls() {
    let mut redial = calling(RedialLimits { attempts: 3, ..LIMITS });
    for attempt in 1..3 {
        assert_eq!(redial.attempts(), attempt);
        let now = redial.timeout().unwrap();
        fails(&mut redial, Cause::Heals, now);
        let _ = due(&mut redial);
    }
    assert_eq!(redial.failed(Cause::Stale, ms(500), 0), Todo::GiveUp(GivenUp::Attempts));
    let mut none = new(RedialLimits { attempts: 0, ..LIMITS });
    assert_eq!(due(&mut none).1, Todo::GiveUp(GivenUp::Attempts));
}

#[test]
fn a_connection_that_lasts_begins_anew_and_one_that_does_not_goes_on() {
    for (lasts, attempts, wait) in [(99, 2, 10), (100, 1, 5)] {
        let mut redial = calling(RedialLimits { attempts: 3, ..LIMITS });
        fails(&mut redial, Cause::Heals, ms(0));
        let _ = due(&mut redial);
        assert_eq!(redial.established(ms(900)), Todo::Use { instead: false });
        let now = ms(900 + lasts);
        assert_eq!(redial.lost(now, 0), Todo::Wait { until: now.after(MS * wait) });
        let _ = due(&mut redial);
        assert_eq!(redial.attempts(), attempts + u32::from(lasts == 99), "after {lasts} ms");
        // The deadline is that of a new series in both cases.
        assert_eq!(redial.stage(), Stage::Calling);
    }
}

#[test]
fn a_connection_that_always_ends_at_once_is_given_up() {
    let mut redial = connected(RedialLimits { attempts: 4, ..LIMITS });
    let mut last = Time::ZERO;
    loop {
        match redial.lost(last, 0) {
            Todo::Wait { until } => last = until,
            todo => break assert_eq!((todo, redial.attempts()), (Todo::GiveUp(GivenUp::Attempts), 4)),
        }
        let _ = due(&mut redial);
        let _ = redial.established(last);
    }
}

#[test]
fn a_stale_connection_is_called_again_at_once_and_then_after_a_wait() {
    let mut redial = calling(LIMITS);
    assert_eq!(fails(&mut redial, Cause::Stale, ms(1)), ms(1));
    let _ = due(&mut redial);
    assert_eq!(fails(&mut redial, Cause::Stale, ms(2)), ms(7));
    let _ = due(&mut redial);
    assert_eq!(fails(&mut redial, Cause::Heals, ms(8)), ms(18));
    let _ = due(&mut redial);
    assert_eq!(fails(&mut redial, Cause::Stale, ms(20)), ms(20));
    // So after a connection that has ended while it was replaced.
    let _ = due(&mut redial);
    let _ = redial.established(ms(21));
    let _ = redial.called(OWN - 1, ms(22));
    assert_eq!(redial.lost(ms(23), 0), Todo::Nothing);
    assert_eq!(fails(&mut redial, Cause::Stale, ms(24)), ms(24));
}

#[test]
fn every_wait_has_an_end_whatever_the_limits_are() {
    let zero = RedialLimits {
        handshake: Duration::ZERO,
        backoff: Duration::ZERO,
        backoff_max: Duration::ZERO,
        attempts: u32::MAX,
        within: Duration::MAX,
    };
    let most = RedialLimits { handshake: Duration::MAX, backoff: Duration::MAX, backoff_max: Duration::MAX, ..zero };
    for (limits, least, longest) in [(zero, 0, 1), (most, 12 * 3600 * 1000, 24 * 3600 * 1000)] {
        let mut redial = Redial::new(1, limits, Time::ZERO);
        for random in [0, u32::MAX].into_iter().cycle().take(100) {
            let now = redial.timeout().unwrap();
            let Todo::Dial { deadline } = redial.handle_timeout(now, random) else { panic!("{redial:?}") };
            assert_eq!(deadline.since(now), MS * longest);
            let Todo::Wait { until } = redial.failed(Cause::Heals, now, random) else { panic!("{redial:?}") };
            assert!(until > now && until.since(now) >= MS * least && until.since(now) <= MS * longest);
        }
    }
}

#[test]
fn the_default_limits_call_for_a_minute_and_the_reasons_to_give_up_have_words() {
    let (mut redial, mut calls) = (new(RedialLimits::default()), 0);
    let reason = loop {
        let (now, todo) = due(&mut redial);
        assert!(matches!(todo, Todo::Dial { .. }), "{todo:?}");
        calls += 1;
        match redial.failed(Cause::Heals, now, 0) {
            Todo::Wait { .. } => {}
            Todo::GiveUp(reason) => break reason,
            other => panic!("{other:?}"),
        }
    };
    assert!((12..=30).contains(&calls), "{calls} calls in a minute, the later ones 2.5 to 5 s apart");
    let reasons = [reason, GivenUp::Refused, GivenUp::Unfit, GivenUp::Attempts, GivenUp::Stopped];
    assert_eq!(
        reasons.map(|reason| reason.to_string()),
        [
            "the time limit has passed",
            "the peer has refused",
            "the call cannot succeed as it is",
            "the limit on attempts is reached",
            "stopped"
        ]
    );
}
