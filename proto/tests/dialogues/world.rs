//! A random application on a random device, and the invariants that must hold.

mod events;
mod making;

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use cmid_proto::{
    AckToken, Acks, Call, ChannelKey, Core, Errno, GroupKey, IdKey, Limits, PortSpace, Progress, Released, Request,
    State, Time,
};

use crate::start::Start;

/// A request that ends by event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OpenRequest {
    Migrate,
    Leave,
    Destroy,
}

/// The multicast groups that ids join.
pub(crate) const GROUPS: [SocketAddr; 2] = [
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(239, 1, 1, 1)), 7471),
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(239, 1, 1, 2)), 7471),
];

#[derive(Default)]
struct Known {
    open: Vec<OpenRequest>,
    /// The numbers of the events that the core has read and not delivered, in order.
    waiting: Vec<i32>,
}

pub(crate) struct World {
    /// `core` and `twin` receive the same inputs and must stay equal.
    pub(crate) core: Core,
    twin: Core,
    now: Time,
    known: BTreeMap<IdKey, Known>,
    pub(crate) channels: Vec<ChannelKey>,
    ack_tokens: Vec<Owed>,
    /// Ack tokens that were owed when their id was destroyed with `DestroyNow`.
    void: Vec<Owed>,
    /// One of the next calls fails, after this number of others.
    pub(crate) fails: Option<(u8, Errno)>,
    /// Numbers of the events that ended a synchronous request.
    ended: BTreeSet<i32>,
    released: Vec<(Released, Released, Known)>,
    /// The memberships of numbered events.
    of_group: BTreeMap<i32, GroupKey>,
    /// Joins that an event or a deadline has ended.
    answered: BTreeSet<GroupKey>,
    /// Ids with a DEVICE_REMOVAL that the application has taken.
    removed: BTreeSet<IdKey>,
    number: i32,
}

/// An event that the application has not acked.
struct Owed {
    ack_tokens: (AckToken, AckToken),
    owner: IdKey,
    group: Option<GroupKey>,
}

impl World {
    pub(crate) fn new(limits: Limits) -> Self {
        let core = Core::new(limits);
        World {
            twin: core.clone(),
            core,
            now: Time(1),
            known: BTreeMap::new(),
            channels: Vec::new(),
            ack_tokens: Vec::new(),
            void: Vec::new(),
            fails: None,
            ended: BTreeSet::new(),
            released: Vec::new(),
            of_group: BTreeMap::new(),
            answered: BTreeSet::new(),
            removed: BTreeSet::new(),
            number: 0,
        }
    }

    /// Applies one input to both cores and compares the results.
    fn both<T: PartialEq + std::fmt::Debug>(&mut self, mut input: impl FnMut(&mut Core) -> T) -> T {
        let result = input(&mut self.core);
        assert_eq!(result, input(&mut self.twin), "the twin answers something else");
        result
    }

    /// Checks the conditions that hold after every step.
    pub(crate) fn look(&mut self) {
        self.core.check();
        assert_eq!(self.core, self.twin, "the twin went another way");
        for id in self.known.keys().copied().collect::<Vec<_>>() {
            if let Some(event) = self.core.sync_event(id) {
                self.ended.insert(event.status);
                // The request that ended a wait for one.
                if event.listener.is_some() && self.core.state(event.id).is_some() {
                    self.known.entry(event.id).or_default();
                }
            }
        }
    }

    pub(crate) fn id(&self, pick: u8) -> Option<IdKey> {
        self.known.keys().nth(usize::from(pick) % self.known.len().max(1)).copied()
    }

    /// Picks one of the ids for datagrams.
    pub(crate) fn datagrams(&self, pick: u8) -> Option<IdKey> {
        let of_them = |id: &&IdKey| self.core.id_info(**id).map(|it| it.port_space) == Some(PortSpace::Udp);
        let count = self.known.keys().filter(of_them).count();
        self.known.keys().filter(of_them).nth(usize::from(pick) % count.max(1)).copied()
    }

    pub(crate) fn some_channel(&self, pick: u8) -> Option<ChannelKey> {
        self.channels.get(usize::from(pick) % self.channels.len().max(1)).copied()
    }

    pub(crate) fn open_channel(&mut self, acks: Acks) {
        let before = self.core.clone();
        let Ok(made) = self.make(Start::OpenChannel(acks)) else { return };
        match (made.only_call(), made.result) {
            (Call::OpenChannel { channel }, Ok(_)) => self.channels.push(channel),
            (call, _) => assert_eq!(self.core, before, "{call:?} has failed and left something"),
        }
    }

    pub(crate) fn close_channel(&mut self, channel: ChannelKey) {
        if self.make(Start::CloseChannel(channel)).is_ok() {
            assert!(self.core.channel_info(channel).is_none(), "{channel} is closed whatever the outcome");
            self.channels.retain(|&other| other != channel);
        }
    }

    /// Pauses or resumes a channel, or fails one or all of its reads.
    pub(crate) fn pause(&mut self, pick: u8, how: u8) {
        let all: Vec<_> = self.core.channels().collect();
        let Some(&channel) = all.get(usize::from(pick) % all.len().max(1)) else { return };
        match how % 4 {
            0 => drop(self.both(|core| core.pause_channel(channel))),
            1 => drop(self.both(|core| core.resume_channel(channel))),
            2 => drop(self.both(|core| core.handle_unreadable(channel))),
            _ => while self.both(|core| core.handle_unreadable(channel)) {},
        }
        let is_read = !self.core.channel_info(channel).is_some_and(|it| it.is_paused)
            && !self.core.channel_info(channel).is_some_and(|it| it.has_failed);
        assert!(is_read || self.core.wants_event(channel).is_none(), "{channel} is not to be read");
        assert_eq!(self.twin.wants_event(channel), self.core.wants_event(channel));
    }

    pub(crate) fn create(&mut self, on: Option<ChannelKey>) {
        let space = if self.number % 3 == 0 { PortSpace::Udp } else { PortSpace::Tcp };
        self.number += 1;
        let before = self.core.clone();
        let foretold = self.core.create_id(on, space).map(|(id, _)| id);
        let made = self.make(Start::Create(on, space));
        assert_eq!(made.as_ref().map(drop).map_err(|&refused| refused), foretold.map(drop));
        let (Ok(made), Ok(id)) = (made, foretold) else { return };
        if made.result.is_ok() {
            assert_eq!(self.core.state(id), Some(State::Idle));
            self.known.insert(id, Known::default());
        } else {
            let left = made.calls.len() - 1;
            assert_eq!(
                self.core.channels().count(),
                before.channels().count() + left,
                "{id} has failed and left something"
            );
            assert!(left > 0 || self.core == before, "{id} has failed and left something");
        }
    }

    pub(crate) fn submit(&mut self, id: IdKey, request: Request<'static>, wait: Option<u64>) {
        let (now, before) = (self.now, self.core.clone());
        let deadline = wait.map_or(Time::NEVER, |wait| Time(now.0 + wait));
        let foretold = self.core.would_refuse(now, id, &request, deadline);
        let made = self.make(Start::Request(id, request, deadline));
        assert_eq!(made.as_ref().map(drop).map_err(|&refused| refused), foretold, "{request:?}");
        let Ok(made) = made else {
            assert_eq!(self.core, before, "{request:?} was refused and changed something");
            return;
        };
        let owes = |owed: &Owed| match request {
            Request::Migrate { .. } | Request::Destroy => owed.owner == id,
            Request::Leave { group } => owed.group == Some(group),
            _ => false,
        };
        let waits = self.ack_tokens.iter().any(owes);
        assert_eq!(made.result == Ok(Progress::WhenAcked), waits, "{request:?}: {made:?}");
        assert!(!waits || made.calls.is_empty(), "{request:?} waits: {made:?}");
        let known = self.known.entry(id).or_default();
        match request {
            Request::Migrate { .. } if waits => known.open.push(OpenRequest::Migrate),
            Request::Leave { group } => {
                known.open.extend(waits.then_some(OpenRequest::Leave));
                known.waiting.retain(|number| self.of_group.get(number) != Some(&group));
            }
            Request::Destroy | Request::DestroyNow => {
                // A destroy ends all other requests.
                known.open = waits.then_some(OpenRequest::Destroy).into_iter().collect();
                known.waiting.clear();
            }
            _ => {}
        }
        if let Request::DestroyNow = request {
            let (void, kept) =
                mem::take(&mut self.ack_tokens).into_iter().partition::<Vec<_>, _>(|owed| owed.owner == id);
            self.ack_tokens = kept;
            self.void.extend(void);
        }
        self.forget_if_gone(id);
        // A request that was already undelivered ends a wait at once.
        self.look();
    }

    fn forget_if_gone(&mut self, id: IdKey) {
        if self.core.state(id).is_none() {
            let known = self.known.remove(&id).unwrap_or_default();
            assert_eq!(known.open, [], "{id} is gone and something on it has not ended");
        }
    }

    pub(crate) fn pass(&mut self, span: u64) {
        self.now = Time(self.now.0 + span);
        let now = self.now;
        self.both(|core| core.handle_timeout(now));
        assert!(self.core.poll_timeout().is_none_or(|(due, _)| due > now), "a deadline lingers");
    }

    pub(crate) fn release(&mut self, id: IdKey) {
        if let (Ok((one, _)), Ok((two, _))) = (self.core.release(id), self.twin.release(id)) {
            let known = self.known.remove(&id).unwrap_or_default();
            self.released.push((one, two, known));
        }
    }

    pub(crate) fn adopt(&mut self) {
        let Some((one, two, known)) = self.released.pop() else { return };
        match (self.core.adopt(one), self.twin.adopt(two)) {
            (Ok((id, _)), Ok((twin, _))) => {
                assert_eq!(id, twin);
                self.known.insert(id, known);
            }
            (Err((_, one)), Err((_, two))) => self.released.push((one, two, known)),
            (one, two) => panic!("{one:?} and {two:?}"),
        }
    }

    /// Brings both cores to rest: takes and acks all events, makes all calls, destroys all ids, closes all channels.
    pub(crate) fn rest(mut self) {
        self.fails = None;
        for round in 0.. {
            assert!(round < 100, "it does not come to rest");
            let before = self.core.clone();
            self.adopt();
            self.settle();
            for id in self.known.keys().copied().collect::<Vec<_>>() {
                let Some(Known { open, waiting }) = self.known.get(&id) else { continue };
                assert_eq!(*open, [], "{id}: no ack is owed, and something has not ended");
                assert!(waiting.iter().all(|number| self.ended.contains(number)), "{id} has lost events");
                if self.core.state(id).is_some_and(|state| state != State::Destroying) {
                    self.submit(id, Request::Destroy, None);
                }
            }
            self.settle();
            for channel in self.channels.clone() {
                self.close_channel(channel);
            }
            self.look();
            if self.core == before {
                break;
            }
        }
        assert_eq!((self.core.ids().count(), self.core.channels().count()), (0, 0));
        assert_eq!(self.core.poll_timeout(), None);
        assert!(!self.core.has_work());
        assert!(self.known.is_empty(), "ids that never ended: {:?}", self.known.keys());
    }

    fn settle(&mut self) {
        loop {
            let before = self.core.clone();
            self.follow(u8::MAX);
            while self.child() {}
            self.ack(0);
            let homes = self.known.keys().filter_map(|&id| self.core.channel(id));
            for channel in homes.chain(self.channels.iter().copied()).collect::<Vec<_>>() {
                while self.take_event(channel) {
                    self.look();
                }
            }
            while self.both(Core::poll_readable).is_some() {}
            self.look();
            if self.core == before && self.ack_tokens.is_empty() {
                return;
            }
        }
    }
}
