//! The receiver against a feed, with messages that are lost, repeated and late.

use std::time::Duration;

use cmid_epoll::proto::Time;

use crate::feed::Feed;
use crate::receiver::{Counts, Receiver, Source, Update};
use crate::wire::{Bytes, Market, MarketMessage, SEQUENCE_MAX, Tick};

const WINDOW: usize = 16;

/// A receiver, the updates it has passed on, and the ticks that were published.
struct Pair {
    feed: Feed,
    receiver: Receiver,
    updates: Vec<Update>,
}

impl Pair {
    fn new(session: u64, kept: usize) -> Self {
        let mut pair = Pair { feed: new_feed(session, kept), receiver: Receiver::new(WINDOW), updates: Vec::new() };
        pair.connect();
        pair
    }

    fn connect(&mut self) {
        let alive = MarketMessage { session: self.receiver.session(), market: Market::Alive };
        self.answers(alive).iter().for_each(|bytes| self.take_from(Source::Feed, bytes));
    }

    fn restart(&mut self, session: u64) {
        self.feed = new_feed(session, 64);
    }

    fn publish(&mut self) -> Bytes {
        let price = self.feed.next() * 10;
        self.feed.publish(Time::ZERO, Tick { price, instrument: (price % 7) as u16, ..Tick::default() })
    }

    fn take(&mut self, bytes: &Bytes) {
        self.take_from(Source::Group, bytes);
    }

    fn take_from(&mut self, source: Source, bytes: &Bytes) {
        let message = MarketMessage::decode(bytes).unwrap();
        self.receiver.handle(Time(7), source, message, |update| self.updates.push(update));
    }

    fn publish_and_take(&mut self, count: u64) {
        for _ in 0..count {
            let bytes = self.publish();
            self.take(&bytes);
        }
    }

    fn lose(&mut self, count: usize) {
        for _ in 0..count {
            let _lost = self.publish();
        }
    }

    fn heartbeat(&mut self) {
        let bytes = self.feed.poll_heartbeat(Time::NEVER).unwrap();
        self.take(&bytes);
    }

    /// The feed's answers to a request.
    fn answers(&self, request: MarketMessage) -> Vec<Bytes> {
        let mut answers = Vec::new();
        let answered: Result<(), ()> = self.feed.answer(request, |bytes| {
            answers.push(bytes);
            Ok(())
        });
        assert_eq!(answered, Ok(()));
        answers
    }

    /// Sends requests and handles the answers until there are no more requests.
    fn fill(&mut self) {
        for number in 0.. {
            let Some(request) = self.receiver.poll_request(Time(9)) else { break };
            assert!(number < 1000, "a request for ever: {request:?}");
            assert_eq!(self.receiver.poll_request(Time(9)), None, "one request at a time");
            self.answers(request).iter().for_each(|bytes| self.take_from(Source::Feed, bytes));
        }
    }

    /// Checks that each tick from `from` to the end was passed on once, in order, and returns how many were new.
    fn check(&self, updates: &[Update], from: u64) -> usize {
        let ticks: Vec<_> = updates
            .iter()
            .filter_map(|it| {
                if let Update::Tick { tick, is_new } = it { Some((tick.sequence, tick.price, *is_new)) } else { None }
            })
            .collect();
        let passed_on: Vec<_> = ticks.iter().map(|&(sequence, price, _)| (sequence, price)).collect();
        assert_eq!(passed_on, (from..self.feed.next()).map(|it| (it, it * 10)).collect::<Vec<_>>());
        assert!(!self.receiver.has_gap() && self.receiver.next() == self.feed.next());
        ticks.iter().filter(|(.., is_new)| *is_new).count()
    }
}

fn new_feed(session: u64, kept: usize) -> Feed {
    Feed::new(session, kept, Duration::from_millis(1))
}

#[test]
fn a_gap_is_filled_in_order() {
    let mut pair = Pair::new(1, 64);
    pair.publish_and_take(3);
    let [_lost, _lost_too] = [pair.publish(), pair.publish()];
    pair.publish_and_take(4);
    assert_eq!(pair.updates.len(), 4);
    let request = pair.receiver.clone().poll_request(Time(9)).unwrap();
    assert_eq!(request, MarketMessage { session: 1, market: Market::Replay { from: 4, to: 6 } });
    pair.fill();
    pair.check(&pair.updates, 1);
    assert_eq!(pair.receiver.counts(), Counts { ticks: 9, replayed: 2, requests: 1, sessions: 1, ..Counts::default() });
}

#[test]
fn duplicates_and_late_ticks_are_passed_on_once() {
    let mut pair = Pair::new(1, 64);
    pair.publish_and_take(2);
    let [third, fourth] = [pair.publish(), pair.publish()];
    for bytes in [fourth, third, third, fourth] {
        pair.take(&bytes);
    }
    assert_eq!(pair.receiver.poll_request(Time(1)), None);
    pair.check(&pair.updates, 1);
    assert_eq!(pair.receiver.counts().duplicates, 2);
}

#[test]
fn more_than_the_window_is_replaced_by_a_snapshot() {
    let mut pair = Pair::new(1, 64);
    pair.publish_and_take(1);
    pair.lose(WINDOW);
    pair.publish_and_take(1);
    assert_eq!(pair.receiver.clone().poll_request(Time(1)).unwrap().market, Market::Snapshot);
    pair.fill();
    let to = WINDOW as u64 + 3;
    assert_eq!(pair.updates[2], Update::Skipped { from: 2, to });
    let images = pair.updates.iter().filter(|it| matches!(it, Update::Image(_))).count();
    assert_eq!((images, pair.receiver.counts().skipped), (7, to - 2));
    pair.publish_and_take(5);
    pair.check(&pair.updates[3..], to);
}

#[test]
fn what_the_feed_has_not_kept_is_replaced_by_a_snapshot() {
    let mut pair = Pair::new(1, 4);
    pair.publish_and_take(1);
    pair.lose(8);
    pair.publish_and_take(1);
    pair.fill();
    // An early tick in the window is part of the snapshot too.
    assert_eq!(pair.updates[2], Update::Skipped { from: 2, to: 11 });
    assert_eq!(pair.receiver.counts().requests, 2);
}

#[test]
fn ticks_that_came_during_a_snapshot_follow_it() {
    let mut pair = Pair::new(1, 64);
    pair.lose(40);
    pair.publish_and_take(1);
    let request = pair.receiver.poll_request(Time(1)).unwrap();
    let answers = pair.answers(request);
    pair.publish_and_take(10);
    answers.iter().for_each(|bytes| pair.take_from(Source::Feed, bytes));
    // The window held none of them.
    pair.heartbeat();
    pair.fill();
    assert!(pair.updates.contains(&Update::Skipped { from: 1, to: 42 }));
    pair.check(&pair.updates, 42);
}

#[test]
fn a_new_session_begins_at_its_first_tick_also_if_that_is_lost() {
    let mut pair = Pair::new(5, 64);
    pair.publish_and_take(10);
    let late = pair.publish();
    pair.restart(6);
    let _lost = pair.publish();
    pair.publish_and_take(1);
    assert_eq!(pair.receiver.session(), 5);
    pair.connect();
    let begin = pair.updates.iter().position(|it| *it == Update::Started { session: 6 }).unwrap();
    pair.take(&late);
    pair.fill();
    pair.check(&pair.updates[begin..], 1);
    assert_eq!((pair.receiver.counts().outdated, pair.receiver.counts().sessions), (2, 2));
}

#[test]
fn a_request_of_the_old_session_leads_to_the_new_one() {
    let mut pair = Pair::new(5, 64);
    pair.publish_and_take(2);
    let _lost = pair.publish();
    pair.heartbeat();
    let request = pair.receiver.poll_request(Time(1)).unwrap();
    pair.restart(6);
    pair.publish();
    pair.answers(request).iter().for_each(|bytes| pair.take_from(Source::Feed, bytes));
    pair.fill();
    assert_eq!((pair.receiver.session(), pair.receiver.next()), (6, 2));
}

#[test]
fn a_request_is_made_again_after_the_connection_has_ended() {
    let mut pair = Pair::new(1, 64);
    pair.publish_and_take(1);
    let _lost = pair.publish();
    pair.publish_and_take(1);
    let first = pair.receiver.poll_request(Time(3)).unwrap();
    assert_eq!((pair.receiver.poll_request(Time(4)), pair.receiver.waits_since()), (None, Some(Time(3))));
    pair.receiver.handle_disconnect();
    assert_eq!(pair.receiver.poll_request(Time(5)), Some(first));
}

/// With packet loss, the parts of an answer arrive far apart.
#[test]
fn an_answer_that_goes_on_is_waited_for() {
    let mut pair = Pair::new(1, 64);
    pair.publish_and_take(1);
    pair.lose(2);
    pair.publish_and_take(1);
    let request = pair.receiver.poll_request(Time(3)).unwrap();
    let answers = pair.answers(request);
    assert_eq!((answers.len(), pair.receiver.waits_since()), (2, Some(Time(3))));
    pair.take_from(Source::Feed, &answers[0]);
    assert_eq!(pair.receiver.waits_since(), Some(Time(7)));
    pair.take_from(Source::Feed, &answers[1]);
    assert_eq!(pair.receiver.waits_since(), None);
}

#[test]
fn a_forged_datagram_stops_no_new_ticks() {
    let tick = |sequence| Tick { sequence, ..Tick::default() };
    let forged = [
        Market::Heartbeat { next: SEQUENCE_MAX },
        Market::Heartbeat { next: 5 },
        Market::Tick(tick(9)),
        Market::Tick(tick(SEQUENCE_MAX)),
        Market::Gone,
        Market::SnapshotEnd { next: SEQUENCE_MAX },
    ];
    for (session, market) in [1, u64::MAX].into_iter().flat_map(|session| forged.map(|market| (session, market))) {
        let mut pair = Pair::new(1, 64);
        pair.publish_and_take(1);
        pair.take(&MarketMessage { session, market }.encode());
        pair.fill();
        assert!(!pair.receiver.has_gap() && pair.receiver.counts().requests <= 2, "{session}: {market:?}");
        pair.publish_and_take(10);
        assert_eq!(pair.check(&pair.updates, 1), 11, "{session}: {market:?}");
    }
}

#[test]
fn messages_with_extreme_numbers_do_no_harm() {
    let mut pair = Pair::new(1, 64);
    let tick = |sequence| Tick { sequence, ..Tick::default() };
    for market in [
        Market::Tick(tick(0)),
        Market::Tick(tick(SEQUENCE_MAX)),
        Market::Replayed(tick(SEQUENCE_MAX)),
        Market::Heartbeat { next: SEQUENCE_MAX },
        Market::Gone,
        Market::SnapshotEnd { next: SEQUENCE_MAX },
        Market::SnapshotEnd { next: 0 },
    ] {
        for session in [0, 1, u64::MAX] {
            let bytes = MarketMessage { session, market }.encode();
            pair.take(&bytes);
            pair.take_from(Source::Feed, &bytes);
            let _request = pair.receiver.poll_request(Time(1));
        }
    }
}

#[test]
fn nothing_of_session_0_is_passed_on_before_the_first_session() {
    let mut receiver = Receiver::new(WINDOW);
    let tick = Tick { sequence: 1, ..Tick::default() };
    for source in [Source::Group, Source::Feed] {
        for market in [Market::Tick(tick), Market::Replayed(tick), Market::Heartbeat { next: 2 }] {
            receiver.handle(Time(7), source, MarketMessage { session: 0, market }, |update| panic!("{update:?}"));
        }
    }
    assert_eq!(receiver.counts(), Counts { outdated: 6, ..Counts::default() });
    assert_eq!((receiver.next(), receiver.missing(), receiver.received_at()), (1, 0, Time::ZERO));
}

/// Pseudorandom numbers (xorshift).
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[test]
fn random_loss_repetition_and_order() {
    for seed in 1..500 {
        let mut state = seed * 0x9e37_79b9;
        let mut pair = Pair::new(1, 64);
        let mut under_way: Vec<Bytes> = Vec::new();
        for _ in 0..300 {
            under_way.push(pair.publish());
            // The oldest message arrives when too many are under way, the others in any order; a fifth is lost, a tenth
            // arrives twice.
            let at = if under_way.len() > 8 { 0 } else { (next(&mut state) % under_way.len() as u64) as usize };
            let bytes = under_way.remove(at);
            let dice = next(&mut state) % 10;
            (0..match dice {
                0 | 1 => 0,
                2 => 2,
                _ => 1,
            })
                .for_each(|_| pair.take(&bytes));
            if next(&mut state).is_multiple_of(4) {
                pair.fill();
            }
        }
        pair.heartbeat();
        pair.fill();
        let skipped = pair.updates.iter().rposition(|it| matches!(it, Update::Skipped { .. }));
        let from = match skipped.map(|at| pair.updates[at]) {
            Some(Update::Skipped { to, .. }) => to,
            _ => 1,
        };
        pair.check(&pair.updates[skipped.unwrap_or(0)..], from);
        let counts = pair.receiver.counts();
        assert_eq!(counts.ticks + counts.skipped, 300, "seed {seed}: {counts:?}");
        assert!(counts.replayed > 20, "seed {seed}: {counts:?}");
    }
}
