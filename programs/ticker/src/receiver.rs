//! The receiver of a feed, without I/O: puts ticks in order, requests missing ticks, and handles new sessions of the
//! feed.
//!
//! Ticks are passed on once and in order. Early ticks are stored in a window. Missing ticks are requested over the
//! connection to the feed. If more are missing than fit into the window, or the feed has not kept them, a snapshot
//! replaces them. Memory is allocated only by [`Receiver::new`].

use cmid_epoll::proto::Time;

use crate::feed::REPLAY_MAX;
use crate::wire::{INSTRUMENTS, Market, MarketMessage, Tick};

/// How a message has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// By multicast. Any host can send to the group.
    Group,
    /// Over the connection to the feed.
    Feed,
}

/// An update that a receiver passes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Update {
    /// A session of the feed begins: the ticks of earlier sessions are not valid any more.
    Started {
        /// Its number.
        session: u64,
    },
    /// The next tick.
    Tick {
        /// The tick.
        tick: Tick,
        /// Whether the tick was passed on at once and is the newest one. False for ticks that were missing or were
        /// stored in the window.
        is_new: bool,
    },
    /// Ticks that are not passed on. The last tick of each instrument follows as [`Update::Image`].
    Skipped {
        /// The first one.
        from: u64,
        /// The end, which is not included.
        to: u64,
    },
    /// The last tick of an instrument up to the end of the skipped range.
    Image(Tick),
}

/// The counters of a receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Ticks passed on in order.
    pub ticks: u64,
    /// Of these, ticks that arrived by a replay.
    pub replayed: u64,
    /// Ticks that a snapshot has replaced.
    pub skipped: u64,
    /// Requests for a replay or a snapshot.
    pub requests: u64,
    /// Ticks that were received before.
    pub duplicates: u64,
    /// Messages of an earlier session, and by multicast also those of a later one and those that answer requests.
    pub outdated: u64,
    /// Sessions.
    pub sessions: u64,
}

/// A request that is not answered completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Request {
    /// The end of a replay; `None` for a snapshot.
    to: Option<u64>,
    since: Time,
}

/// The receiver.
#[derive(Clone, Debug)]
pub struct Receiver {
    /// The session of the feed; 0 before the first message.
    session: u64,
    /// The next sequence number to pass on.
    next: u64,
    /// The sequence number after the highest one that is known to exist.
    end: u64,
    /// Early ticks; the tick with sequence number n is at n modulo the length.
    window: Box<[Tick]>,
    request: Option<Request>,
    /// Whether the feed has not kept the missing ticks.
    is_gone: bool,
    /// The part of the snapshot that has arrived; the first `images_len` entries are valid.
    images: [Tick; INSTRUMENTS],
    images_len: usize,
    /// The time of the last message of the feed's current session.
    received_at: Time,
    counts: Counts,
}

impl Receiver {
    /// Creates a receiver with a window of `window` ticks, at least one.
    #[must_use]
    pub fn new(window: usize) -> Self {
        Receiver {
            session: 0,
            next: 1,
            end: 1,
            window: vec![Tick::default(); window.max(1)].into(),
            request: None,
            is_gone: false,
            images: Default::default(),
            images_len: 0,
            received_at: Time::ZERO,
            counts: Counts::default(),
        }
    }

    /// Returns its counters.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns the session of the feed; 0 before the first message.
    #[must_use]
    pub fn session(&self) -> u64 {
        self.session
    }

    /// Returns the sequence number of the next tick to pass on.
    #[must_use]
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Returns the number of ticks that are known to exist and not passed on.
    #[must_use]
    pub fn missing(&self) -> u64 {
        self.end - self.next
    }

    /// Whether ticks are missing.
    #[must_use]
    pub fn has_gap(&self) -> bool {
        self.next < self.end
    }

    /// Returns the time of the last message of the feed's current session.
    #[must_use]
    pub fn received_at(&self) -> Time {
        self.received_at
    }

    /// Returns the time of the request that is not answered completely, or of the last part of its answer.
    #[must_use]
    pub fn waits_since(&self) -> Option<Time> {
        self.request.map(|request| request.since)
    }

    /// Handles a message and passes updates to `pass_on`. Only a message over the connection begins a session: the feed
    /// answers [`Market::Alive`] of another session with its own.
    #[inline]
    pub fn handle(&mut self, now: Time, source: Source, message: MarketMessage, mut pass_on: impl FnMut(Update)) {
        // The frequent case: the next tick, and nothing is missing. No feed has session 0: it is that of a new
        // receiver.
        match message {
            MarketMessage { session, market: Market::Tick(tick) }
                if session == self.session && session != 0 && tick.sequence == self.next && self.next == self.end =>
            {
                self.next += 1;
                self.end += 1;
                self.received_at = now;
                self.counts.ticks += 1;
                pass_on(Update::Tick { tick, is_new: true });
            }
            _ => self.handle_any(now, source, message, &mut pass_on),
        }
    }

    #[inline(never)]
    fn handle_any(&mut self, now: Time, source: Source, message: MarketMessage, pass_on: &mut impl FnMut(Update)) {
        let MarketMessage { session, market } = message;
        let is_answer = session > self.session || !matches!(market, Market::Tick(_) | Market::Heartbeat { .. });
        if session < self.session || session == 0 || (is_answer && source == Source::Group) {
            self.counts.outdated += 1;
            return;
        }
        if session > self.session {
            self.begin(session, pass_on);
        }
        self.received_at = now;
        match market {
            Market::Tick(tick) => self.handle_tick(tick, pass_on),
            Market::Replayed(tick) => {
                self.answer_has_come(now);
                self.counts.replayed += u64::from(!self.has(tick.sequence));
                self.handle_tick(tick, pass_on);
                if self.request.is_some_and(|request| request.to.is_some_and(|to| tick.sequence + 1 >= to)) {
                    self.request = None;
                }
            }
            Market::Heartbeat { next } => self.end = self.end.max(next),
            Market::Gone => {
                self.is_gone = true;
                self.request = None;
            }
            Market::Image(tick) => {
                self.answer_has_come(now);
                if let Some(slot) = self.images.get_mut(self.images_len) {
                    *slot = tick;
                    self.images_len += 1;
                }
            }
            Market::SnapshotEnd { next } => self.handle_snapshot(next, pass_on),
            // A receiver does not receive these.
            Market::Replay { .. } | Market::Snapshot | Market::Alive => {}
        }
    }

    fn answer_has_come(&mut self, now: Time) {
        if let Some(request) = &mut self.request {
            request.since = now;
        }
    }

    fn begin(&mut self, session: u64, pass_on: &mut impl FnMut(Update)) {
        self.session = session;
        (self.next, self.end) = (1, 1);
        self.window.fill(Tick::default());
        self.handle_disconnect();
        self.counts.sessions += 1;
        pass_on(Update::Started { session });
    }

    fn handle_tick(&mut self, tick: Tick, pass_on: &mut impl FnMut(Update)) {
        let sequence = tick.sequence;
        self.end = self.end.max(sequence.saturating_add(1));
        if self.has(sequence) {
            self.counts.duplicates += 1;
            return;
        }
        // A tick beyond the window is requested later.
        if sequence - self.next < self.window.len() as u64 {
            let at = self.slot(sequence);
            if let Some(slot) = self.window.get_mut(at) {
                *slot = tick;
            }
            self.pass_on_next(pass_on);
        }
    }

    /// Passes on the ticks that are next in the window.
    fn pass_on_next(&mut self, pass_on: &mut impl FnMut(Update)) {
        while let Some(tick) = self.window.get(self.slot(self.next)).copied().filter(|it| it.sequence == self.next) {
            self.next += 1;
            self.counts.ticks += 1;
            pass_on(Update::Tick { tick, is_new: false });
        }
    }

    fn handle_snapshot(&mut self, next: u64, pass_on: &mut impl FnMut(Update)) {
        self.request = None;
        self.is_gone = false;
        // Otherwise the missing ticks have arrived meanwhile.
        if next > self.next {
            pass_on(Update::Skipped { from: self.next, to: next });
            self.images.iter().take(self.images_len).for_each(|&tick| pass_on(Update::Image(tick)));
            self.counts.skipped += next - self.next;
            self.next = next;
            self.pass_on_next(pass_on);
        }
        // Ticks that only a forged number promises would be requested for ever. The group's next message shows real ones.
        self.end = self.next;
        self.window.fill(Tick::default());
        self.images_len = 0;
    }

    /// Returns the next request to the feed, if ticks are missing and none is under way. The caller sends it, or calls
    /// [`handle_disconnect`](Receiver::handle_disconnect).
    #[inline]
    pub fn poll_request(&mut self, now: Time) -> Option<MarketMessage> {
        if self.next == self.end { None } else { self.next_request(now) }
    }

    #[inline(never)]
    fn next_request(&mut self, now: Time) -> Option<MarketMessage> {
        if self.request.is_some() {
            return None;
        }
        self.counts.requests += 1;
        let (from, session) = (self.next, self.session);
        if self.is_gone || self.end - from > self.window.len() as u64 {
            self.images_len = 0;
            self.request = Some(Request { to: None, since: now });
            return Some(MarketMessage { session, market: Market::Snapshot });
        }
        let most = self.end.min(from + REPLAY_MAX);
        let to = (from + 1..most).find(|&sequence| self.has(sequence)).unwrap_or(most);
        self.request = Some(Request { to: Some(to), since: now });
        Some(MarketMessage { session, market: Market::Replay { from, to } })
    }

    /// Discards the request that is under way, because the connection has ended.
    /// [`poll_request`](Receiver::poll_request) makes a new one.
    pub fn handle_disconnect(&mut self) {
        self.request = None;
        self.is_gone = false;
        self.images_len = 0;
    }

    /// Whether a tick was passed on, replaced, or is in the window.
    fn has(&self, sequence: u64) -> bool {
        sequence < self.next || self.window.get(self.slot(sequence)).is_some_and(|it| it.sequence == sequence)
    }

    fn slot(&self, sequence: u64) -> usize {
        (sequence % self.window.len() as u64) as usize
    }
}
