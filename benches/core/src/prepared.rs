//! Many ids on one channel.

use cmid_proto::info::Counters;
use cmid_proto::{ChannelKey, CmEvent, IdKey, RawEvent, Request, State, Time};

use crate::level::Level;
use crate::requests::resolve;

/// Idle ids on one channel. Steps use them in turn.
#[derive(Debug)]
pub struct Prepared<L> {
    /// The level that drives them.
    pub level: L,
    /// Their channel.
    pub channel: ChannelKey,
    ids: Vec<IdKey>,
    at: usize,
}

/// A prime: steps jump across the tables, like the events of many peers.
const STRIDE: usize = 611_953;

/// The first deadline of [`Prepared::arm`]. The last is before twice this time.
pub const OTHERS: Time = Time(1 << 40);

impl<L: Level> Prepared<L> {
    /// Makes this many idle ids.
    #[must_use]
    pub fn new(ids: usize) -> Self {
        let mut level = L::new();
        let channel = level.open();
        let ids = (0..ids).map(|_| level.create(channel)).collect();
        Prepared { level, channel, ids, at: 0 }
    }

    /// The number of ids.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether there are no ids.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// The next id, idle.
    pub fn choose(&mut self) -> IdKey {
        self.at = (self.at + STRIDE) % self.ids.len();
        self.ids[self.at]
    }

    /// Gives every id a pending operation with a deadline of its own after [`OTHERS`], in no order.
    pub fn arm(&mut self) {
        for at in 0..self.ids.len() as u64 {
            let id = self.choose();
            let due = OTHERS.0 + at.wrapping_mul(0x9e37_79b9_7f4a_7c15) % OTHERS.0;
            self.level.request(id, resolve(), Time(due));
        }
    }

    /// Destroys an id, and puts an idle one in its place.
    pub fn renew(&mut self, id: IdKey) {
        self.level.request(id, Request::Destroy, Time::NEVER);
        let new = self.level.create(self.channel);
        // The id is one of the last that were chosen.
        let ids = self.ids.len();
        let mut places = (0..ids).map(|back| (self.at + ids - back * STRIDE % ids) % ids);
        let place = places.find(|&place| self.ids[place] == id).expect("one of ours");
        self.ids[place] = new;
    }

    /// Reads an event without private data, takes it and acks it.
    #[inline]
    pub fn deliver(&mut self, id: IdKey, kind: CmEvent) {
        let raw = self.level.prepare_event(RawEvent::new(id, kind));
        self.level.deliver(self.channel, self.channel, raw);
    }

    /// The state of an existing id.
    #[must_use]
    pub fn state(&self, id: IdKey) -> State {
        self.level.core().state(id).expect("an id that lives")
    }

    /// Checks that every event was taken, and that no work is left, so that the intended steps were measured.
    pub fn check(&mut self) {
        assert!(self.level.take(self.channel).is_none(), "every event was taken");
        assert!(!self.level.core().has_work(), "nothing is left to do");
    }

    /// Checks the counters, after the steps of a case: a summary looks at every id.
    pub fn check_counters(&self) {
        assert_eq!(self.level.core().summary().counters, Counters::default(), "every event was of use");
    }
}
