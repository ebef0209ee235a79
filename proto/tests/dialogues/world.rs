//! A random application on a random device, and the invariants that must hold.

mod events;

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use cmid_proto::{
    AckToken, Acks, Call, ChannelKey, Core, Ended, GroupKey, IdKey, Limits, Outcome, PortSpace, Released, Request,
    RequestKind, State, Target, Time, Token,
};

/// A request that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OpenRequest {
    Create,
    Call,
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
    /// The device has not created the id yet.
    creating: bool,
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
    calls: Vec<(Token, Call)>,
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
            calls: Vec::new(),
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
        let of_them = |id: &&IdKey| self.core.port_space(**id) == Some(PortSpace::Udp);
        let count = self.known.keys().filter(of_them).count();
        self.known.keys().filter(of_them).nth(usize::from(pick) % count.max(1)).copied()
    }

    pub(crate) fn some_channel(&self, pick: u8) -> Option<ChannelKey> {
        self.channels.get(usize::from(pick) % self.channels.len().max(1)).copied()
    }

    pub(crate) fn open_channel(&mut self, acks: Acks) {
        if let Ok(channel) = self.both(|core| core.open_channel(acks)) {
            self.channels.push(channel);
        }
    }

    pub(crate) fn close_channel(&mut self, channel: ChannelKey) {
        if self.both(|core| core.close_channel(channel)).is_ok() {
            self.channels.retain(|&other| other != channel);
        }
    }

    /// Pauses or resumes a channel, or fails one or all of its reads.
    pub(crate) fn pause(&mut self, pick: u8, how: u8) {
        let all: Vec<_> = self.core.channel_keys().collect();
        let Some(&channel) = all.get(usize::from(pick) % all.len().max(1)) else { return };
        match how % 4 {
            0 => drop(self.both(|core| core.pause_channel(channel))),
            1 => drop(self.both(|core| core.resume_channel(channel))),
            2 => drop(self.both(|core| core.handle_unreadable(channel))),
            _ => while self.both(|core| core.handle_unreadable(channel)) {},
        }
        let is_read = !self.core.is_paused(channel) && !self.core.has_failed(channel);
        assert!(is_read || self.core.wants_event(channel).is_none(), "{channel} is not to be read");
        assert_eq!(self.twin.wants_event(channel), self.core.wants_event(channel));
    }

    pub(crate) fn create(&mut self, on: Option<ChannelKey>) {
        let space = if self.number % 3 == 0 { PortSpace::Udp } else { PortSpace::Tcp };
        self.number += 1;
        if let Ok(id) = self.both(|core| core.create_id(on, space)) {
            self.known.insert(id, Known { open: vec![OpenRequest::Create], creating: true, ..Known::default() });
        }
    }

    pub(crate) fn submit(&mut self, id: IdKey, request: Request<'_>, wait: Option<u64>) {
        let (now, before) = (self.now, self.core.clone());
        let deadline = wait.map_or(Time::NEVER, |wait| Time(now.0 + wait));
        let foretold = self.core.would_refuse(now, id, &request, deadline);
        let result = self.both(|core| core.submit(now, id, request, deadline));
        assert_eq!(result, foretold, "{request:?}");
        if result.is_err() {
            assert_eq!(self.core, before, "{request:?} was refused and changed something");
            return;
        }
        let at_once = !self.core.waits_for_acks(id, RequestKind::Migrate)
            && before.state(id) == Some(State::Listening)
            && before.device_channel(id).is_some_and(|device_channel| before.is_private(device_channel));
        let known = self.known.entry(id).or_default();
        match request {
            Request::AttachQp | Request::DetachQp | Request::GetRequest => {}
            // The core migrates a listener without a call.
            Request::Migrate { .. } if at_once => {}
            Request::Migrate { .. } => known.open.push(OpenRequest::Migrate),
            Request::Leave { group } => {
                known.open.push(OpenRequest::Leave);
                known.waiting.retain(|number| self.of_group.get(number) != Some(&group));
            }
            Request::Destroy | Request::DestroyNow => {
                // A destroy ends all other requests.
                known.open = vec![OpenRequest::Destroy];
                known.waiting.clear();
            }
            _ => known.open.push(OpenRequest::Call),
        }
        if let Request::DestroyNow = request {
            let (void, kept) =
                mem::take(&mut self.ack_tokens).into_iter().partition::<Vec<_>, _>(|owed| owed.owner == id);
            self.ack_tokens = kept;
            self.void.extend(void);
        }
        // A request that was already undelivered ends a wait at once.
        self.look();
    }

    /// The device takes the next call.
    pub(crate) fn take_call(&mut self) {
        let next = self.both(Core::poll_call).or_else(|| {
            self.both(Core::poll_child)?;
            self.both(Core::poll_call)
        });
        let Some((token, call)) = next else { return };
        if let Some(id) = call.id() {
            assert!(!self.calls.iter().any(|(_, other)| other.id() == Some(id)), "two calls for {id}: {call:?}");
            if let Call::Migrate { .. } | Call::Destroy { .. } = call {
                assert!(!self.ack_tokens.iter().any(|owed| owed.owner == id), "{call:?} while acks are owed");
            }
            if let Call::Leave { group, .. } = call {
                assert!(!self.ack_tokens.iter().any(|owed| owed.group == Some(group)), "{call:?} while acks are owed");
            }
        }
        self.calls.push((token, call));
    }

    /// The device reports the outcome of one of the calls that it has taken.
    pub(crate) fn answer(&mut self, pick: u8, outcome: Outcome) {
        if self.calls.is_empty() {
            return;
        }
        let (token, call) = self.calls.remove(usize::from(pick) % self.calls.len());
        if let (Call::OpenChannel { channel }, Err(_)) = (call, outcome) {
            self.channels.retain(|&other| other != channel);
        }
        let result = self.both(|core| core.handle_outcome(token, outcome));
        match result {
            Ok(Some(Ended { target: Target::Id(id), .. })) => self.ended_by(id, call),
            Ok(_) => {}
            Err(fault) => assert!(outcome.is_err(), "{call:?}: {fault}"),
        }
        if let (Call::CreateId { id, .. }, Ok(())) = (call, outcome) {
            if let Some(known) = self.known.get_mut(&id) {
                known.creating = false;
            }
        }
        // A destroy that gave up has ended the creation too. If the creation then fails, the id is gone.
        let core = &self.core;
        self.known.retain(|&id, known| !known.creating || !known.open.is_empty() || core.state(id).is_some());
        self.both(|core| core.handle_outcome(token, Ok(()))).unwrap_err();
    }

    /// Makes every call that waits, with success.
    pub(crate) fn well(&mut self) {
        for _ in 0..8 {
            self.take_call();
            self.answer(u8::MAX, Ok(()));
            self.look();
        }
    }

    fn ended_by(&mut self, id: IdKey, call: Call) {
        let gone = self.core.state(id).is_none();
        let known = self.known.get_mut(&id).unwrap_or_else(|| panic!("{id} ended without a record in the model"));
        let request = match call {
            Call::CreateId { .. } => OpenRequest::Create,
            Call::OpenChannel { .. } if known.open.contains(&OpenRequest::Create) => OpenRequest::Create,
            // A listen opens a channel and migrates the id to it.
            Call::OpenChannel { .. } | Call::Migrate { .. } if !known.open.contains(&OpenRequest::Migrate) => {
                OpenRequest::Call
            }
            Call::OpenChannel { .. } | Call::Migrate { .. } => OpenRequest::Migrate,
            Call::Leave { .. } => OpenRequest::Leave,
            Call::Destroy { .. } => OpenRequest::Destroy,
            _ => OpenRequest::Call,
        };
        let take = |list: &mut Vec<OpenRequest>, request| {
            list.iter().position(|&other| other == request).map(|at| list.remove(at)).is_some()
        };
        // If a creation fails, the destroy that overtook it ends with it.
        let ended = take(&mut known.open, request) || (gone && take(&mut known.open, OpenRequest::Destroy));
        assert!(ended, "{request:?} on {id} ended twice");
        self.forget_if_gone(id);
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

    /// Brings both cores to rest: ends all calls, takes and acks all events, destroys all ids, closes all channels.
    pub(crate) fn rest(mut self) {
        for round in 0.. {
            assert!(round < 100, "it does not come to rest");
            let before = self.core.clone();
            self.adopt();
            self.settle();
            for id in self.known.keys().copied().collect::<Vec<_>>() {
                let waiting = self.known.get(&id).map_or(&[][..], |known| &known.waiting);
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
        assert_eq!((self.core.ids(), self.core.channels()), (0, 0));
        assert_eq!(self.core.poll_timeout(), None);
        assert_eq!(self.core.poll_call(), None);
        assert!(self.known.is_empty(), "ids that never ended: {:?}", self.known.keys());
    }

    fn settle(&mut self) {
        loop {
            let before = self.core.clone();
            self.take_call();
            self.answer(0, Ok(()));
            self.ack(0);
            let homes = self.known.keys().filter_map(|&id| self.core.channel(id));
            for channel in homes.chain(self.channels.iter().copied()).collect::<Vec<_>>() {
                while self.take_event(channel) {
                    self.look();
                }
            }
            while self.both(Core::poll_readable).is_some() {}
            self.look();
            if self.core == before && self.calls.is_empty() && self.ack_tokens.is_empty() {
                return;
            }
        }
    }
}
