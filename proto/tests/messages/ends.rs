//! Ends: goodbyes of both sides, silence, and a peer that never says goodbye.

use cmid_proto::Time;
use cmid_proto::messages::{MessagesError, NotSent, Received, Stage};

use crate::{MS, controls, deliver, ms, packet, pair};

#[test]
fn both_sides_say_goodbye_and_messages_arrive_before_it() {
    let [mut one, mut other] = pair();
    one.close(ms(1000));
    assert_eq!(one.send(1, ms(0)), Err(NotSent::Closed));
    let goodbye = one.poll_control(ms(0)).unwrap();
    assert_eq!(other.receive(&goodbye, ms(0)), Ok(Received::Goodbye));
    // The other side has still something to say.
    for _ in 0..20 {
        deliver(&mut other, &mut one, b"last words", false);
        controls(&mut one, &mut other, ms(0));
    }
    other.close(ms(1000));
    assert_eq!(controls(&mut other, &mut one, ms(0)), 1);
    assert!(one.is_over() && other.is_over());
    assert_eq!((one.timeout(), one.handle_timeout(ms(100_000))), (None, Ok(())));
    assert_eq!((one.poll_control(ms(100_000)), other.poll_control(ms(100_000))), (None, None));
}

#[test]
fn goodbyes_that_cross_are_the_end_too() {
    let [mut one, mut other] = pair();
    one.close(Time::NEVER);
    other.close(Time::NEVER);
    let goodbyes = [one.poll_control(ms(0)).unwrap(), other.poll_control(ms(0)).unwrap()];
    one.receive(&goodbyes[1], ms(1)).unwrap();
    other.receive(&goodbyes[0], ms(1)).unwrap();
    assert!(one.is_over() && other.is_over());
}

#[test]
fn a_goodbye_waits_for_a_credit_and_then_comes_before_all_else() {
    let [mut one, mut other] = pair();
    (0..6).for_each(|_| deliver(&mut one, &mut other, b"held", true));
    // One sign of life takes the last but one credit, and the last one is for an answer.
    assert_eq!(controls(&mut one, &mut other, ms(100)), 1);
    one.close(Time::NEVER);
    assert_eq!((one.poll_control(ms(100)), one.stage()), (None, Stage::Closing));
    assert_eq!(controls(&mut other, &mut one, ms(100)), 1);
    assert_eq!((controls(&mut one, &mut other, ms(100)), other.stage()), (1, Stage::PeerClosed));
}

#[test]
fn a_silent_peer_is_dead_at_its_deadline_and_not_before() {
    let [mut one, mut other] = pair();
    controls(&mut other, &mut one, ms(100));
    while one.poll_control(one.timeout().unwrap()).is_some() {
        if one.timeout().unwrap() >= ms(600) {
            break;
        }
    }
    assert_eq!((one.timeout(), one.handle_timeout(ms(599))), (Some(ms(600)), Ok(())));
    let silent = Err(MessagesError::Silent(MS * 500));
    assert_eq!(one.handle_timeout(ms(600)), silent);
    // The error stays, and nothing more is sent.
    assert_eq!(one.receive(&[], ms(601)).map(drop), silent);
    assert_eq!((one.send(1, ms(601)), one.poll_control(ms(1000))), (Err(NotSent::Closed), None));
    assert_eq!((one.stage(), one.timeout()), (Stage::Failed, None));
}

#[test]
fn a_peer_that_never_says_goodbye_is_left_at_the_deadline() {
    let [mut one, mut other] = pair();
    one.close(ms(300));
    for at in [100, 200] {
        controls(&mut one, &mut other, ms(at));
        controls(&mut other, &mut one, ms(at));
        one.handle_timeout(ms(at)).unwrap();
    }
    // A second close does not move it.
    one.close(Time::NEVER);
    assert_eq!(one.timeout(), Some(ms(300)));
    assert_eq!(one.handle_timeout(ms(300)), Err(MessagesError::NoGoodbye));
}

#[test]
fn nothing_with_an_effect_follows_a_goodbye() {
    for kind in [1, 3] {
        let [mut one, mut other] = pair();
        other.close(Time::NEVER);
        controls(&mut other, &mut one, ms(0));
        let forged = packet([1, kind, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 8], b"");
        assert_eq!(one.receive(&forged, ms(0)), Err(MessagesError::AfterGoodbye));
    }
}
