//! The feed, without I/O: numbers the ticks, keeps the last ones for replays, and answers receivers.

use std::time::Duration;

use cmid_epoll::proto::Time;

use crate::wire::{Bytes, INSTRUMENTS, Market, MarketMessage, Tick};

/// The largest number of ticks in one replay. A receiver posts more receives than that.
pub const REPLAY_MAX: u64 = 64;

/// A feed in one session.
#[derive(Clone, Debug)]
pub struct Feed {
    session: u64,
    /// The next sequence number.
    next: u64,
    /// The last ticks; the tick with sequence number n is at n modulo the length.
    kept: Box<[Tick]>,
    /// The last tick of each instrument; sequence number 0 if the instrument had none.
    last: [Tick; INSTRUMENTS],
    heartbeat: Duration,
    /// The time of the next heartbeat.
    heartbeat_due: Time,
}

impl Feed {
    /// Starts a session. `session` is larger than the number of each earlier session. Keeps the last `kept` ticks, at
    /// least one, for replays. A heartbeat is due when nothing was published for `heartbeat`.
    #[must_use]
    pub fn new(session: u64, kept: usize, heartbeat: Duration) -> Self {
        let kept = vec![Tick::default(); kept.max(1)].into();
        Feed { session, next: 1, kept, last: Default::default(), heartbeat, heartbeat_due: Time::ZERO }
    }

    /// Returns the sequence number of the next tick.
    #[must_use]
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Numbers a tick and returns the datagram to send. Ignores the tick's own sequence number.
    #[inline]
    pub fn publish(&mut self, now: Time, tick: Tick) -> Bytes {
        let tick = Tick { sequence: self.next, ..tick };
        let at = self.slot(tick.sequence);
        if let Some(slot) = self.kept.get_mut(at) {
            *slot = tick;
        }
        if let Some(slot) = self.last.get_mut(usize::from(tick.instrument)) {
            *slot = tick;
        }
        self.next += 1;
        self.heartbeat_due = now.after(self.heartbeat);
        self.message(Market::Tick(tick))
    }

    /// Returns the datagram to send if a heartbeat is due.
    pub fn poll_heartbeat(&mut self, now: Time) -> Option<Bytes> {
        if now < self.heartbeat_due {
            return None;
        }
        self.heartbeat_due = now.after(self.heartbeat);
        Some(self.message(Market::Heartbeat { next: self.next }))
    }

    /// Passes the messages that answer a receiver to `send`, in order. Ends with the first error of `send`.
    ///
    /// # Errors
    /// The error of `send`.
    pub fn answer<E>(&self, to: MarketMessage, mut send: impl FnMut(Bytes) -> Result<(), E>) -> Result<(), E> {
        if to.session != self.session {
            // The answer has the session of this feed.
            return send(self.message(Market::Heartbeat { next: self.next }));
        }
        match to.market {
            Market::Replay { from, to } if self.keeps(from, to) => {
                for sequence in from..to {
                    let tick = self.kept.get(self.slot(sequence)).copied().unwrap_or_default();
                    send(self.message(Market::Replayed(tick)))?;
                }
                Ok(())
            }
            Market::Replay { .. } => send(self.message(Market::Gone)),
            Market::Snapshot => {
                for &tick in self.last.iter().filter(|tick| tick.sequence > 0) {
                    send(self.message(Market::Image(tick)))?;
                }
                send(self.message(Market::SnapshotEnd { next: self.next }))
            }
            // `Alive` needs no answer. A feed does not receive the others.
            Market::Alive
            | Market::Tick(_)
            | Market::Heartbeat { .. }
            | Market::Replayed(_)
            | Market::Gone
            | Market::Image(_)
            | Market::SnapshotEnd { .. } => Ok(()),
        }
    }

    /// Whether the feed has all ticks of this range, and the range is at most [`REPLAY_MAX`] long.
    fn keeps(&self, from: u64, to: u64) -> bool {
        let oldest = self.next.saturating_sub(self.kept.len() as u64).max(1);
        from < to && from >= oldest && to <= self.next && to - from <= REPLAY_MAX
    }

    fn slot(&self, sequence: u64) -> usize {
        (sequence % self.kept.len() as u64) as usize
    }

    fn message(&self, market: Market) -> Bytes {
        MarketMessage { session: self.session, market }.encode()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SESSION: u64 = 5;

    fn feed(ticks: u64) -> Feed {
        let mut feed = Feed::new(SESSION, 8, Duration::from_millis(10));
        for number in 1..=ticks {
            feed.publish(Time(number), Tick { instrument: (number % 3) as u16, price: number, ..Tick::default() });
        }
        feed
    }

    fn answers(feed: &Feed, session: u64, market: Market) -> Vec<Market> {
        let mut sent = Vec::new();
        let answered = feed.answer(MarketMessage { session, market }, |bytes| {
            sent.push(MarketMessage::decode(&bytes)?.market);
            Ok::<_, crate::wire::WireError>(())
        });
        assert_eq!(answered, Ok(()));
        sent
    }

    fn sequences(answers: &[Market]) -> Vec<u64> {
        answers
            .iter()
            .filter_map(|it| if let Market::Replayed(tick) = it { Some(tick.sequence) } else { None })
            .collect()
    }

    #[test]
    fn ticks_are_numbered_from_1_on() {
        let mut feed = feed(2);
        let third = MarketMessage::decode(&feed.publish(Time(3), Tick { sequence: 99, ..Tick::default() })).unwrap();
        assert_eq!(
            third,
            MarketMessage { session: SESSION, market: Market::Tick(Tick { sequence: 3, ..Tick::default() }) }
        );
    }

    #[test]
    fn the_last_ticks_are_replayed_and_older_ones_are_gone() {
        let feed = feed(20);
        assert_eq!(
            sequences(&answers(&feed, SESSION, Market::Replay { from: 13, to: 21 })),
            (13..21).collect::<Vec<_>>()
        );
        for (from, to) in [(12, 13), (13, 22), (15, 15), (16, 15), (0, u64::MAX)] {
            assert_eq!(answers(&feed, SESSION, Market::Replay { from, to }), [Market::Gone], "{from}..{to}");
        }
        let mut long = Feed::new(SESSION, 1000, Duration::ZERO);
        for now in 0..500 {
            long.publish(Time(now), Tick::default());
        }
        assert_eq!(answers(&long, SESSION, Market::Replay { from: 1, to: 2 + REPLAY_MAX }), [Market::Gone]);
        assert_eq!(answers(&long, SESSION, Market::Replay { from: 1, to: 1 + REPLAY_MAX }).len() as u64, REPLAY_MAX);
    }

    #[test]
    fn a_snapshot_has_the_last_tick_of_each_instrument() {
        let answers = answers(&feed(20), SESSION, Market::Snapshot);
        let images: Vec<_> = answers
            .iter()
            .filter_map(|it| if let Market::Image(tick) = it { Some(tick.sequence) } else { None })
            .collect();
        assert_eq!(images, [18, 19, 20]);
        assert_eq!(answers.last(), Some(&Market::SnapshotEnd { next: 21 }));
    }

    #[test]
    fn a_request_of_another_session_is_answered_with_this_one() {
        assert_eq!(
            answers(&feed(20), SESSION - 1, Market::Replay { from: 19, to: 20 }),
            [Market::Heartbeat { next: 21 }]
        );
    }

    #[test]
    fn a_heartbeat_comes_only_after_silence() {
        let mut feed = Feed::new(SESSION, 8, Duration::from_nanos(10));
        assert!(feed.poll_heartbeat(Time(5)).is_some());
        assert_eq!(feed.poll_heartbeat(Time(14)), None);
        feed.publish(Time(14), Tick::default());
        assert_eq!(feed.poll_heartbeat(Time(23)), None);
        let heartbeat = MarketMessage::decode(&feed.poll_heartbeat(Time(24)).unwrap()).unwrap();
        assert_eq!(heartbeat, MarketMessage { session: SESSION, market: Market::Heartbeat { next: 2 } });
    }
}
