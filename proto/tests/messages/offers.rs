//! Messages that the peer reads from memory of this side.

use cmid_proto::Time;
use cmid_proto::datapath::Remote;
use cmid_proto::messages::{Messages, MessagesConfig, MessagesError, NotSent, Received, Stage};

use crate::{CONFIG, controls, deliver, ms, pair};

const AT: Remote = Remote { addr: 0x1234_5678_9abc, rkey: 0xfedc };

/// An offer of `len` bytes that arrives.
fn offer(from: &mut Messages, to: &mut Messages, len: u64) {
    let packet = from.offer(len, AT, ms(0)).unwrap();
    assert_eq!(to.receive(&packet, ms(0)), Ok(Received::Offer { at: AT, len }));
}

/// The answer to the oldest offer.
fn answer(from: &mut Messages, to: &mut Messages) {
    from.take();
    let header = from.poll_control(ms(0)).unwrap();
    assert_eq!(to.receive(&header, ms(0)), Ok(Received::Taken));
}

#[test]
fn an_offer_is_taken_once_in_the_order_of_the_offers() {
    let [mut one, mut other] = pair();
    offer(&mut one, &mut other, 1 << 40);
    deliver(&mut one, &mut other, b"between", false);
    offer(&mut one, &mut other, 0);
    assert_eq!((one.offered(), other.poll_control(ms(0))), (2, None));
    answer(&mut other, &mut one);
    assert_eq!(one.offered(), 1);
    answer(&mut other, &mut one);
    // Nothing is left to take.
    other.take();
    assert_eq!((one.offered(), other.poll_control(ms(0))), (0, None));
}

#[test]
fn an_offer_takes_the_credit_of_a_message() {
    let [mut one, mut other] = pair();
    for left in (0..6).rev() {
        offer(&mut one, &mut other, 1);
        assert_eq!(one.credits(), left);
    }
    assert_eq!(one.offer(1, AT, ms(0)), Err(NotSent::NoCredit));
    // The answer brings none: the receive of an offer is held back until its program lets it go.
    answer(&mut other, &mut one);
    assert_eq!(one.credits(), 0);
    other.posted(1);
    answer(&mut other, &mut one);
    assert_eq!(one.credits(), 1);
}

#[test]
fn many_answers_cost_no_credits_in_the_end() {
    let [mut one, mut other] = pair();
    for _ in 0..100 {
        offer(&mut one, &mut other, 1);
        other.posted(1);
        answer(&mut other, &mut one);
        // The receives of the answers come back without a sign of life.
        controls(&mut one, &mut other, ms(0));
        assert!(one.credits() >= 3 && other.credits() >= 2);
    }
}

#[test]
fn the_goodbye_waits_until_all_offers_are_taken() {
    let [mut one, mut other] = pair();
    offer(&mut one, &mut other, 9);
    one.close(ms(400));
    assert_eq!((one.poll_control(ms(0)), one.stage()), (None, Stage::Closing));
    // The side that reads has closed before.
    other.close(Time::NEVER);
    assert_eq!(controls(&mut other, &mut one, ms(0)), 1);
    answer(&mut other, &mut one);
    assert_eq!(controls(&mut one, &mut other, ms(0)), 1);
    assert!(one.is_over() && other.is_over());
}

/// Otherwise the message would be missing, and the end would seem to be one.
#[test]
fn a_goodbye_before_the_offer_is_taken_is_an_error() {
    for is_read in [false, true] {
        let [mut one, mut other] = pair();
        offer(&mut one, &mut other, 9);
        if is_read {
            other.take();
        }
        let goodbye = [1, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 8];
        assert_eq!(other.receive(&goodbye, ms(0)), Err(MessagesError::OfferLeft));
    }
}

#[test]
fn an_offer_that_is_never_taken_ends_the_close_at_its_deadline() {
    let [mut one, mut other] = pair();
    offer(&mut one, &mut other, 9);
    one.close(ms(400));
    assert_eq!(one.handle_timeout(ms(400)), Err(MessagesError::NoGoodbye));
}

#[test]
fn receives_without_room_for_an_offer_get_none() {
    let small = MessagesConfig { packet: 35, ..CONFIG };
    let mut one = Messages::new(CONFIG, &small.hello(), ms(0)).unwrap();
    assert_eq!(one.offer(1, AT, ms(0)), Err(NotSent::TooLong { len: 20, max: 19 }));
    assert_eq!(one.offered(), 0);
}

#[test]
fn nothing_is_offered_after_a_close() {
    let [mut one, mut other] = pair();
    one.close(Time::NEVER);
    assert_eq!(one.offer(1, AT, ms(0)), Err(NotSent::Closed));
    controls(&mut one, &mut other, ms(0));
    let packet = [&[1, 4, 0, 0, 0, 0, 0, 20, 0, 0, 0, 1, 0, 0, 0, 8][..], &[0; 20]].concat();
    assert_eq!(other.receive(&packet, ms(0)), Err(MessagesError::AfterGoodbye));
}
