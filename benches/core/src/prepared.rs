//! Many ids on one channel.

use cmid_proto::{ChannelKey, CmEvent, Counters, IdKey, RawEvent, Request, State, Time};

use crate::cases::life;
use crate::level::Level;

/// Idle ids on one channel. Steps go round among them.
#[derive(Debug)]
pub struct Prepared<L> {
    /// What drives them.
    pub level: L,
    /// Their channel.
    pub channel: ChannelKey,
    ids: Vec<IdKey>,
    at: usize,
}

/// A prime: steps go from one end of the tables to the other, as the events of many peers do.
const STRIDE: usize = 611_953;

/// When the deadlines of [`Prepared::arm`] begin: it takes as long until the last.
pub const OTHERS: Time = Time(1 << 40);

impl<L: Level> Prepared<L> {
    /// So many, idle.
    #[must_use]
    pub fn new(ids: usize) -> Self {
        let mut level = L::new();
        let channel = level.open();
        let ids = (0..ids).map(|_| level.create(channel)).collect();
        Prepared { level, channel, ids, at: 0 }
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// The next one, idle.
    pub fn choose(&mut self) -> IdKey {
        self.at = (self.at + STRIDE) % self.ids.len();
        self.ids[self.at]
    }

    /// Every id waits for the end of an operation, until a time of its own after [`OTHERS`], in no order.
    pub fn arm(&mut self) {
        for at in 0..self.ids.len() as u64 {
            let id = self.choose();
            let due = OTHERS.0 + at.wrapping_mul(0x9e37_79b9_7f4a_7c15) % OTHERS.0;
            self.level.ask(id, life::resolve(), Time(due));
        }
    }

    /// The next one, connected as the active side.
    pub fn connected(&mut self) -> IdKey {
        let id = self.choose();
        life::lead_to_connected(self, id);
        id
    }

    /// What a step was about is gone; an idle id has its place.
    pub fn renew(&mut self, id: IdKey) {
        self.level.ask(id, Request::Destroy, Time::NEVER);
        let new = self.level.create(self.channel);
        // It is one of the last that were chosen.
        let ids = self.ids.len();
        let mut places = (0..ids).map(|back| (self.at + ids - back * STRIDE % ids) % ids);
        let place = places.find(|&place| self.ids[place] == id).expect("one of ours");
        self.ids[place] = new;
    }

    /// An event without private data: in, out, ack.
    #[inline]
    pub fn tell(&mut self, id: IdKey, kind: CmEvent) {
        let raw = self.level.arrive(RawEvent::new(id, kind));
        self.level.tell(self.channel, self.channel, raw);
    }

    /// The state of an id that lives.
    #[must_use]
    pub fn state(&self, id: IdKey) -> State {
        self.level.core().state(id).expect("an id that lives")
    }

    /// Nothing was late, astray, wrong or lost, and nothing is left to do: what was measured is what was meant.
    pub fn check(&mut self) {
        let core = self.level.core();
        assert_eq!(core.counters(), Counters::default(), "every event was of use");
        assert!(!core.has_work(), "nothing is left to do");
        assert!(self.level.take(self.channel).is_none(), "every event was taken");
    }
}
