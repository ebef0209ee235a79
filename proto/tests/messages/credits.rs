//! Credits: no packet without a receive, and no two sides that wait for each other.

use cmid_proto::messages::{Messages, MessagesConfig, NotSent, Received};

use crate::{CONFIG, MS, controls, deliver, ms, pair};

#[test]
fn messages_end_two_receives_before_the_window_does() {
    let [mut one, mut other] = pair();
    assert_eq!(one.credits(), 6);
    (0..6).for_each(|_| deliver(&mut one, &mut other, b"held", true));
    assert_eq!((one.credits(), one.send(1, ms(0))), (0, Err(NotSent::NoCredit)));
    // Signs of life are still possible.
    assert_eq!(controls(&mut one, &mut other, ms(100)), 1);
    // After that the next time is the end of the silence.
    assert_eq!((one.poll_control(ms(300)), one.timeout()), (None, Some(ms(500))));
}

#[test]
fn credits_come_with_messages_of_the_other_direction() {
    let [mut one, mut other] = pair();
    (0..3).for_each(|_| deliver(&mut one, &mut other, b"ask", false));
    assert_eq!(one.credits(), 3);
    deliver(&mut other, &mut one, b"answer", false);
    assert_eq!(one.credits(), 6);
}

#[test]
fn without_messages_they_come_when_half_of_them_are_used() {
    let [mut one, mut other] = pair();
    for sent in 1..=4 {
        deliver(&mut one, &mut other, b"data", false);
        assert_eq!(other.peer_is_low(), sent == 4);
        let expected = usize::from(sent == 4);
        assert_eq!(controls(&mut other, &mut one, ms(0)), expected, "after {sent}");
    }
    assert_eq!(one.credits(), 6);
    // They are not answered.
    assert_eq!(controls(&mut one, &mut other, ms(0)), 0);
}

#[test]
fn a_program_that_holds_receives_returns_each_one_at_once_when_few_are_left() {
    let [mut one, mut other] = pair();
    (0..6).for_each(|_| deliver(&mut one, &mut other, b"held", true));
    for _ in 0..6 {
        other.posted(1);
        let returned = controls(&mut other, &mut one, ms(0));
        assert!(returned <= 1);
        if one.credits() == 0 {
            panic!("a receive is free, and the peer does not know it");
        }
        deliver(&mut one, &mut other, b"held", true);
    }
}

#[test]
fn receives_are_not_returned_twice() {
    let [mut one, mut other] = pair();
    deliver(&mut one, &mut other, b"data", false);
    other.posted(5);
    deliver(&mut other, &mut one, b"data", false);
    assert_eq!(one.credits(), 6);
}

/// Both hold all they have, for long: signs of life take and return the two credits that are kept for them.
#[test]
fn two_programs_that_hold_all_receives_stay_alive() {
    for at_the_same_time in [false, true] {
        let [mut one, mut other] = pair();
        (0..6).for_each(|_| deliver(&mut one, &mut other, b"held", true));
        (0..6).for_each(|_| deliver(&mut other, &mut one, b"held", true));
        let mut signs = 0;
        for turn in 1..100 {
            let now = ms(turn * 100);
            [one.handle_timeout(now), other.handle_timeout(now)].into_iter().for_each(|alive| alive.unwrap());
            if at_the_same_time {
                let sent = [one.poll_control(now), other.poll_control(now)];
                sent[0].iter().for_each(|it| _ = other.receive(it, now).unwrap());
                sent[1].iter().for_each(|it| _ = one.receive(it, now).unwrap());
                signs += sent.iter().flatten().count();
            } else {
                signs += controls(&mut one, &mut other, now) + controls(&mut other, &mut one, now);
            }
            assert_eq!([one.credits(), other.credits()], [0, 0]);
        }
        assert!(signs > 150, "{signs}");
        // All is as before when they let go.
        one.posted(6);
        other.posted(6);
        controls(&mut one, &mut other, ms(10_000));
        controls(&mut other, &mut one, ms(10_000));
        deliver(&mut one, &mut other, b"data", false);
        deliver(&mut other, &mut one, b"data", false);
        deliver(&mut one, &mut other, b"data", false);
    }
}

#[test]
fn each_side_has_its_own_limits() {
    let small = MessagesConfig { window: 4, packet: 20, ..CONFIG };
    let mut one = Messages::new(CONFIG, &small.hello(), ms(0)).unwrap();
    let mut other = Messages::new(small, &CONFIG.hello(), ms(0)).unwrap();
    assert_eq!((one.message_max(), other.message_max()), (4, 84));
    assert_eq!((one.credits(), other.credits()), (2, 6));
    assert_eq!(one.send(5, ms(0)), Err(NotSent::TooLong { len: 5, max: 4 }));
    deliver(&mut one, &mut other, b"four", false);
    deliver(&mut other, &mut one, &[7; 84], false);
    // An empty message is one.
    deliver(&mut one, &mut other, b"", false);
}

#[test]
fn a_sign_of_life_is_sent_when_nothing_else_was() {
    let [mut one, mut other] = pair();
    assert_eq!(one.timeout(), Some(ms(100)));
    assert_eq!((one.handle_timeout(ms(99)), one.poll_control(ms(99))), (Ok(()), None));
    let header = one.poll_control(ms(100)).unwrap();
    assert_eq!(other.receive(&header, ms(100)), Ok(Received::Control));
    assert_eq!((one.poll_control(ms(100)), one.timeout()), (None, Some(ms(100).after(MS * 100))));
}

#[test]
fn a_sign_of_life_may_always_have_taken_a_credit_of_a_peer_that_sends_its_own_at_once() {
    for (held, credits) in [(4, [1, 1, 1]), (5, [0, 0, 0])] {
        let [mut one, mut other] = pair();
        (0..held).for_each(|_| deliver(&mut one, &mut other, b"held", true));
        let after = [100, 200, 300].map(|at| {
            // Neither side knows of the other's.
            let [ours, theirs] = [&mut one, &mut other].map(|side| side.poll_control(ms(at)).unwrap());
            assert_eq!(one.receive(&theirs, ms(at)), Ok(Received::Control));
            assert_eq!(other.receive(&ours, ms(at)), Ok(Received::Control));
            one.credits()
        });
        assert_eq!(after, credits, "{held} of the 8 receives are held");
    }
}

/// One side sends 60 signs of life in the time of one of the other side, which is more than the receives of most windows.
#[test]
fn signs_of_life_that_differ_leave_an_idle_pair_alive_and_with_credits() {
    for (window, held) in [(4, 0), (4, 1), (5, 0), (5, 2), (8, 0), (8, 5), (32, 0), (32, 29)] {
        let often = MessagesConfig { window, keep_alive: MS * 100, silence: MS * 12_000, ..CONFIG };
        let seldom = MessagesConfig { keep_alive: MS * 6000, silence: MS * 500, ..often };
        let mut one = Messages::new(often, &seldom.hello(), ms(0)).unwrap();
        let mut other = Messages::new(seldom, &often.hello(), ms(0)).unwrap();
        (0..held).for_each(|_| deliver(&mut one, &mut other, b"held", true));
        let (mut signs, mut answers) = (0, 0);
        for now in (1..=600).map(|turn| ms(turn * 100)) {
            assert_eq!([one.handle_timeout(now), other.handle_timeout(now)], [Ok(()); 2], "{window}, {held} held");
            loop {
                let sent = [controls(&mut one, &mut other, now), controls(&mut other, &mut one, now)];
                (signs, answers) = (signs + sent[0], answers + sent[1]);
                if sent == [0, 0] {
                    break;
                }
            }
            assert!(other.credits() > 0 && (held > 0 || one.credits() > 0), "{window}, {held} held, at {now:?}");
        }
        assert!(signs >= 600 && answers <= signs / 2, "{window}, {held} held: {signs} signs, {answers} answers");
    }
}
