//! Calls of the peer: both sides call, one call is kept, and an older connection is replaced.

use cmid_proto::redial::{Cause, GivenUp, Kept, Redial, RedialLimits, Stage, Todo, kept};

use crate::{LIMITS, OWN, calling, connected, due, fails, ms, new};

#[test]
fn both_sides_agree_which_call_is_kept_unless_their_numbers_are_equal() {
    for own in 0..5 {
        for peer in 0..5 {
            let answers = (kept(own, peer), kept(peer, own));
            let expected = match own.cmp(&peer) {
                std::cmp::Ordering::Less => (Kept::Own, Kept::Peers),
                std::cmp::Ordering::Greater => (Kept::Peers, Kept::Own),
                std::cmp::Ordering::Equal => (Kept::Own, Kept::Own),
            };
            assert_eq!(answers, expected);
        }
    }
}

#[test]
fn calls_at_the_same_time_end_with_one_connection() {
    let [mut low, mut high] = [1, 2].map(|number| Redial::new(number, LIMITS, ms(0)));
    for side in [&mut low, &mut high] {
        assert_eq!(due(side).1, Todo::Dial { deadline: ms(50) });
    }
    // Each has the other's call. The higher number yields.
    assert_eq!(low.called(2, ms(1)), Todo::Reject);
    assert_eq!(high.called(1, ms(1)), Todo::Accept { deadline: ms(51), instead: true });
    assert_eq!(low.established(ms(2)), Todo::Use { instead: false });
    assert_eq!(high.established(ms(2)), Todo::Use { instead: false });
}

#[test]
fn a_rejected_call_waits_for_that_of_the_peer_also_after_the_last_attempt() {
    let mut redial = calling(RedialLimits { attempts: 1, ..LIMITS });
    fails(&mut redial, Cause::Crossed, ms(1));
    assert_eq!(redial.called(OWN - 1, ms(2)), Todo::Accept { deadline: ms(52), instead: false });
    assert_eq!(redial.established(ms(3)), Todo::Use { instead: false });

    let mut redial = calling(RedialLimits { attempts: 1, ..LIMITS });
    fails(&mut redial, Cause::Crossed, ms(1));
    assert_eq!(due(&mut redial).1, Todo::GiveUp(GivenUp::Attempts));

    // That wait, too, is one of the series.
    let mut redial = calling(RedialLimits { attempts: 1, within: LIMITS.backoff, ..LIMITS });
    assert_eq!(redial.failed(Cause::Crossed, ms(8), 0), Todo::GiveUp(GivenUp::Deadline));
}

#[test]
fn with_equal_numbers_the_jitter_decides() {
    let [mut one, mut other] = [(); 2].map(|()| Redial::new(7, LIMITS, ms(0)));
    for side in [&mut one, &mut other] {
        let _ = due(side);
        assert_eq!(side.called(7, ms(1)), Todo::Reject);
    }
    let _ = one.failed(Cause::Crossed, ms(2), 0);
    let _ = other.failed(Cause::Crossed, ms(2), u32::MAX);
    let (now, todo) = due(&mut one);
    assert!(matches!(todo, Todo::Dial { .. }) && now < other.timeout().unwrap());
    assert!(matches!(other.called(7, now), Todo::Accept { instead: false, .. }));
}

#[test]
fn a_call_of_a_peer_that_has_started_again_replaces_the_connection_once_it_is_established() {
    let mut redial = connected(LIMITS);
    for peer in [OWN - 1, OWN + 1] {
        assert_eq!(redial.called(peer, ms(500)), Todo::Accept { deadline: ms(550), instead: false });
        assert_eq!((redial.stage(), redial.timeout()), (Stage::Replacing, Some(ms(550))));
        assert_eq!(redial.established(ms(501)), Todo::Use { instead: true });
    }
}

#[test]
fn a_call_that_is_older_than_the_connection_changes_nothing() {
    let mut redial = connected(LIMITS);
    let _ = redial.called(OWN + 1, ms(1));
    assert_eq!(redial.failed(Cause::Refused, ms(2), 0), Todo::Nothing);
    assert_eq!(redial.stage(), Stage::Connected);
    let _ = redial.called(OWN + 1, ms(3));
    assert_eq!(due(&mut redial), (ms(53), Todo::Cancel));
    assert_eq!(redial.stage(), Stage::Connected);
}

#[test]
fn a_connection_that_ends_while_it_is_replaced_leaves_the_call() {
    let mut redial = connected(LIMITS);
    let _ = redial.called(OWN - 1, ms(1));
    assert_eq!(redial.lost(ms(2), 0), Todo::Nothing);
    assert_eq!((redial.stage(), redial.timeout()), (Stage::Answering, Some(ms(51))));
    assert_eq!(redial.established(ms(3)), Todo::Use { instead: false });

    let mut redial = connected(RedialLimits { within: LIMITS.handshake / 2, ..LIMITS });
    let _ = redial.called(OWN - 1, ms(1));
    assert_eq!(redial.lost(ms(2), 0), Todo::Nothing);
    assert_eq!(redial.timeout(), Some(ms(27)), "the deadline of the series");
}

#[test]
fn an_accept_that_fails_is_followed_by_an_own_call() {
    let mut redial = new(LIMITS);
    assert_eq!(redial.called(OWN + 1, ms(0)), Todo::Accept { deadline: ms(50), instead: false });
    // The peer has started again in between, and calls again.
    assert_eq!(redial.called(OWN + 1, ms(10)), Todo::Accept { deadline: ms(60), instead: true });
    let until = fails(&mut redial, Cause::Heals, ms(20));
    assert_eq!(redial.handle_timeout(until, 0), Todo::Dial { deadline: until.after(LIMITS.handshake) });
}

#[test]
fn a_refusal_ends_it_and_a_stop_says_so() {
    for (cause, reason) in [(Cause::Refused, GivenUp::Refused), (Cause::Unfit, GivenUp::Unfit)] {
        let mut redial = calling(LIMITS);
        assert_eq!(redial.failed(cause, ms(1), 0), Todo::GiveUp(reason));
        assert_eq!(redial.stop(), Todo::Nothing);
        assert_eq!(redial.given_up(), Some(reason));
    }
    assert_eq!(connected(LIMITS).stop(), Todo::GiveUp(GivenUp::Stopped));
}
