//! A core on the kernel model, driven according to the contract. The fuzzer chooses each step.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use cmid_proto::{
    AckToken, Admission, Call, ChannelKey, CmEvent, Core, Errno, GroupKey, IdKey, Limits, Outcome, RawEvent,
    ReceivedParam, Request, RequestKind, State, Target, Time, Token,
};

use super::agreement::agrees;
use super::asked::check_asked;
use super::fetch::Fetched;
use super::kernel::{File, Kernel, No};
use super::ledger::{ExpectedEvent, Ledger};
use super::requests::Requests;
use crate::say::say;

/// An event that the application has taken and not acked.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) ack_token: AckToken,
    pub(crate) owner: IdKey,
    pub(crate) group: Option<GroupKey>,
}

/// A core, its application, and its part of the device.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) core: Core,
    pub(crate) ledger: Ledger,
    pub(crate) requests: Requests,
    pub(crate) ids: BTreeMap<IdKey, No>,
    pub(crate) files: BTreeMap<ChannelKey, File>,
    /// Channels that the application opened.
    pub(crate) open: Vec<ChannelKey>,
    /// The last request of each id.
    pub(crate) asked: BTreeMap<IdKey, (Request<'static>, Time)>,
    pub(crate) held: Vec<Held>,
    /// Ack tokens of ids that were destroyed without them.
    pub(crate) void: Vec<Held>,
    /// Calls to be made, in order.
    queue: VecDeque<(Token, Call)>,
    /// Calls with outcomes that are not reported to the core yet.
    made: Vec<(Token, Call, Outcome)>,
    /// Channels that are being opened, with their ids.
    opening: BTreeMap<ChannelKey, IdKey>,
    /// Ids with possibly late events: something has ended before the device could know.
    pub(crate) excused: BTreeSet<IdKey>,
    pub(crate) excused_groups: BTreeSet<GroupKey>,
    /// Ids that the device refused to move.
    pub(crate) unmoved: BTreeSet<IdKey>,
    /// Channels that are not read.
    pub(super) paused: BTreeSet<ChannelKey>,
    /// Maximum number of untaken requests of each listener.
    pub(crate) backlogs: BTreeMap<IdKey, usize>,
    pub(crate) now: Time,
    pub(super) limits: Limits,
    number: u32,
}

impl Host {
    pub(crate) fn new(limits: Limits, first_number: u32) -> Self {
        Host {
            core: Core::new(limits),
            ledger: Ledger::default(),
            requests: Requests::default(),
            ids: BTreeMap::new(),
            files: BTreeMap::new(),
            open: Vec::new(),
            asked: BTreeMap::new(),
            held: Vec::new(),
            void: Vec::new(),
            queue: VecDeque::new(),
            made: Vec::new(),
            opening: BTreeMap::new(),
            excused: BTreeSet::new(),
            excused_groups: BTreeSet::new(),
            unmoved: BTreeSet::new(),
            paused: BTreeSet::new(),
            backlogs: BTreeMap::new(),
            now: Time(1),
            limits,
            number: first_number,
        }
    }

    pub(crate) fn outstanding(&self) -> impl Iterator<Item = &Call> {
        self.queue.iter().map(|(_, call)| call).chain(self.made.iter().map(|(_, call, _)| call))
    }

    /// Whether a migration of an id is pending; its events are then held back.
    pub(crate) fn is_moving(&self, id: IdKey) -> bool {
        self.outstanding().any(|call| match call {
            Call::Migrate { id: moves, .. } => *moves == id,
            Call::OpenChannel { channel } => self.opening.get(channel) == Some(&id),
            _ => false,
        })
    }

    /// Takes the core's calls, after an input about this id. Returns whether there was one about it.
    pub(crate) fn take_calls(&mut self, about: Option<IdKey>) -> bool {
        let mut any = false;
        while let Some((token, call)) = self.core.poll_call() {
            say(|| format!("  {call:?}"));
            match (call, about) {
                (Call::OpenChannel { channel }, Some(id)) => {
                    self.opening.insert(channel, id);
                    any = true;
                }
                _ => any |= call.id().is_some() && call.id() == about,
            }
            self.may_call(&call);
            self.queue.push_back((token, call));
        }
        any
    }

    /// Invariants on the order of calls.
    fn may_call(&mut self, call: &Call) {
        let Some(id) = call.id() else { return };
        assert!(self.outstanding().all(|other| other.id() != Some(id)), "two calls for {id} at a time: {call:?}");
        if let Call::Migrate { .. } | Call::Destroy { .. } = call {
            assert!(self.held.iter().all(|held| held.owner != id), "{call:?} while acks are owed");
        }
        match *call {
            Call::Migrate { .. } => self.requests.begun(id, RequestKind::Migrate),
            Call::Destroy { .. } => self.requests.begun(id, RequestKind::Destroy),
            Call::Leave { group, .. } => {
                assert!(self.held.iter().all(|held| held.group != Some(group)), "{call:?} while acks are owed");
            }
            _ => {}
        }
    }

    /// Executes the next call; the outcome is reported later. `refused` is an errno of an external failure.
    pub(crate) fn make(&mut self, kernel: &mut Kernel, refused: Option<Errno>) -> bool {
        let Some((token, call)) = self.queue.pop_front() else { return false };
        let asked = call.id().and_then(|id| self.asked.get(&id)).map(|&(request, _)| request);
        check_asked(&call, self.core.call_data(token), asked);
        let outcome = self.call(kernel, &call, refused);
        say(|| format!("  {call:?} is made: {outcome:?}"));
        self.made.push((token, call, outcome));
        true
    }

    fn call(&mut self, kernel: &mut Kernel, call: &Call, refused: Option<Errno>) -> Outcome {
        match *call {
            Call::OpenChannel { channel } => {
                refused.map_or(Ok(()), Err)?;
                self.files.insert(channel, kernel.open());
                Ok(())
            }
            Call::CloseChannel { channel } => {
                let file = self.files.remove(&channel).expect("a channel that is closed was open");
                kernel.close(file);
                Ok(())
            }
            Call::CreateId { id, channel, port_space } => {
                let file = *self.files.get(&channel).ok_or(Errno::EBADF)?;
                refused.map_or(Ok(()), Err)?;
                let datagram = port_space.service() == cmid_proto::Service::Datagram;
                self.ids.insert(id, kernel.create(id, file, datagram));
                Ok(())
            }
            _ => {
                let id = call.id().expect("a call about an id");
                let no = *self.ids.get(&id).unwrap_or_else(|| panic!("{call:?}: the device has no such id"));
                let from_to = match *call {
                    Call::Migrate { from, to, .. } => Some((
                        *self.files.get(&from).expect("a migration from a channel that is open"),
                        *self.files.get(&to).ok_or(Errno::EBADF)?,
                    )),
                    _ => None,
                };
                if matches!(call, Call::Destroy { .. }) {
                    self.ids.remove(&id);
                }
                kernel.call(no, call, from_to, refused)
            }
        }
    }

    /// Reports the outcome of one of the calls to the core.
    pub(crate) fn report(&mut self, at: usize) -> bool {
        if self.made.is_empty() {
            return false;
        }
        let (token, call, outcome) = self.made.remove(at % self.made.len());
        let about = match call {
            Call::OpenChannel { channel } => self.opening.remove(&channel),
            _ => call.id(),
        };
        // Unless an event has shown it before, the id moves now. It goes to the end of its new channel, even if it
        // was to be delivered there.
        let arrives = match call {
            Call::Migrate { id, from, to } => {
                let stays = self.core.channel(id) == Some(to) && self.core.device_channel(id) == Some(from);
                (stays && outcome.is_ok()).then_some(id)
            }
            _ => None,
        };
        let ended = match self.core.handle_outcome(token, outcome) {
            Ok(ended) => ended,
            Err(fault) => panic!("{call:?} returned {outcome:?}, which is called a fault: {fault}"),
        };
        say(|| format!("  {call:?} has returned {outcome:?}: {ended:?}"));
        self.take_calls(about);
        match (call, outcome) {
            (Call::Migrate { id, .. }, Err(_)) => drop(self.unmoved.insert(id)),
            // If the answer of a teardown is refused, it can only wait for its deadline.
            (Call::Disconnect { id }, Err(_)) => drop(self.excused.insert(id)),
            _ => {}
        }
        if let Call::Migrate { id, .. } = call {
            self.requests.moved(id, outcome.is_ok());
        }
        arrives.into_iter().for_each(|id| self.ledger.requeue(id));
        if let Some(ended) = ended {
            match ended.result {
                Ok(()) => {}
                Err(failure) => assert!(outcome.is_ok() || outcome == Err(failure.errno), "{outcome:?}, {failure:?}"),
            }
            match ended.target {
                Target::Id(id) => self.requests.ended(&self.core, id, ended.result.is_err()),
                Target::Channel(channel) => {
                    let failed_to_open = matches!(call, Call::OpenChannel { .. }) && outcome.is_err();
                    self.open.retain(|&open| open != channel || !failed_to_open);
                }
            }
        }
        self.look();
        true
    }

    /// Reports readable channels to the driver.
    pub(crate) fn wake(&mut self, kernel: &Kernel) {
        for (&channel, file) in &self.files {
            if kernel.wakes.contains(file) {
                self.core.handle_readable(channel);
            }
        }
    }

    /// Reads the next channel that is to be read, once.
    pub(crate) fn read(&mut self, kernel: &mut Kernel) -> bool {
        if let Some(child) = self.core.poll_child() {
            self.take_calls(Some(child));
            self.look();
            return true;
        }
        let Some(channel) = self.core.poll_readable() else { return false };
        let wanted = self.core.wants_event(channel);
        let is_of_it = |call: &Call| matches!(call, Call::OpenChannel { channel: of } | Call::CloseChannel { channel: of } if *of == channel);
        if self.files.contains_key(&channel) && !self.outstanding().any(is_of_it) {
            assert_eq!(wanted.is_some(), self.has_room(channel), "{channel} with {:?}", self.ledger);
        }
        let Some(child) = wanted else {
            self.core.wait_for_room(channel);
            return true;
        };
        let Some(&file) = self.files.get(&channel) else { return true };
        if let Some(fetched) = kernel.fetch(file, child) {
            self.feed(kernel, channel, child, fetched);
            self.core.handle_readable(channel);
        }
        true
    }

    fn feed(&mut self, kernel: &mut Kernel, on: ChannelKey, child: IdKey, fetched: Fetched) {
        self.number += 1;
        let (number, event) = (self.number, fetched.event);
        let key = |no| kernel.id(no).key.expect("an id that was reported has a key");
        let (id, owner) = (key(fetched.id), key(fetched.owner));
        let listener = (event.kind == CmEvent::ConnectRequest).then_some(owner);
        if listener.is_some() {
            self.ids.insert(child, fetched.id);
        }
        let data = ExpectedEvent::data(number, event.kind);
        let mut param = ReceivedParam::default();
        param.0.qp_num = number;
        let raw = RawEvent {
            listener,
            status: event.status,
            param,
            group: event.group,
            private_data: &data[..],
            ..RawEvent::new(id, event.kind)
        };
        let (before, counters, activity) = (self.core.state(id), self.core.counters(), self.core.activity());
        let (home, line) = (self.core.channel(id), self.core.device_channel(id));
        self.core.compare_event(on, &raw);
        let admission = match self.core.handle_event(on, raw) {
            Ok(admission) => admission,
            Err(fault) => panic!("{raw:?} on {on}, and that is called a fault: {fault}"),
        };
        say(|| format!("  {number}: {} of {id} on {on}: {admission:?}", event.kind));
        // By the contract, the outcome of a call comes before all else. A core that relies on this takes an earlier
        // event as the newer information, and may be wrong. A migration is different: an event can show it.
        let is_early = |call: &Call| call.id() == Some(id) && !matches!(call, Call::Migrate { .. });
        if self.outstanding().any(is_early) {
            self.excused.insert(id);
        }
        self.take_calls(Some(id));
        if listener.is_some() {
            self.ledger.track(&self.core, child);
        }
        self.ledger.follow(&self.core);
        // The event shows that the id has moved to the channel of its deliveries.
        if line.is_some() && self.core.device_channel(id) != line && self.core.channel(id) == home {
            self.ledger.requeue(id);
        }
        match admission {
            Admission::Known | Admission::Child(_) => {
                assert!(self.core.activity() > activity, "{raw:?} is no news");
                self.admit(ExpectedEvent {
                    number,
                    owner,
                    id,
                    listener,
                    kind: event.kind,
                    status: event.status,
                    group: event.group,
                });
                // The same event type reports that the peer does not answer and that its link address has changed.
                let connecting = matches!(
                    before,
                    Some(State::Connecting | State::Accepting | State::SidrReqSent | State::Responded)
                );
                if event.kind == CmEvent::DeviceRemoval || (event.kind == CmEvent::Unreachable && connecting) {
                    self.excused.insert(id);
                }
            }
            Admission::Late => {
                let excused = self.excused.contains(&owner)
                    || event.group.is_some_and(|group| self.excused_groups.contains(&group));
                assert!(excused, "{raw:?} while {before:?} is called late, and nothing has ended");
                if listener.is_some() {
                    self.excused.insert(id);
                }
            }
            Admission::Stray => panic!("{raw:?} is called a stray, and the device has that id"),
        }
        assert_eq!(self.core.counters().late - counters.late, u64::from(admission == Admission::Late));
        self.look();
    }

    /// Handles the end of a migration without a call: that of a listener. The order of its events may have changed.
    /// It has failed if the channel could not be opened meanwhile.
    pub(crate) fn moved_without_device(&mut self, id: IdKey) {
        if let Some((Request::Migrate { to: Some(to) }, _)) = self.asked.get(&id)
            && self.open.contains(to)
            && Some(to) == self.ledger.homes.get(&id)
        {
            self.ledger.requeue(id);
        }
    }

    fn admit(&mut self, letter: ExpectedEvent) {
        self.ledger.admit(letter);
        if let Some(group) = letter.group {
            self.requests.answered(group);
        }
        if letter.kind == CmEvent::DeviceRemoval {
            self.requests.removed(letter.id);
        }
    }

    /// Checks after every step that the core matches the model.
    pub(crate) fn look(&mut self) {
        self.core.check();
        self.ledger.follow(&self.core);
        self.requests.follow(&self.core);
        for id in self.core.id_keys().collect::<Vec<_>>() {
            let owed = self.held.iter().filter(|held| held.owner == id).count();
            assert_eq!(self.core.owed(id) as usize, owed, "{id}: the acks that are owed");
            if self.core.is_sync(id)
                && !self.is_moving(id)
                && let Some(event) = self.core.sync_event(id)
            {
                self.ledger.take_result(id, &event);
                if event.listener.is_some() {
                    self.ledger.track(&self.core, event.id);
                }
            }
        }
        assert_eq!(self.core.counters().faults, 0, "a fault was counted");
        let (due, expected) = (self.core.poll_timeout().map(|(due, _)| due), self.requests.nearest());
        assert_eq!(due, expected, "the nearest deadline");
    }

    /// Checks that ids without undelivered events are in the kernel's state.
    pub(crate) fn compare(&self, kernel: &Kernel) {
        for (&key, &no) in &self.ids {
            let Some(state) = self.core.state(key) else { continue };
            let settled = self.outstanding().all(|call| call.id() != Some(key))
                && !self.opening.values().any(|&of| of == key)
                && !kernel.has_unread(no)
                && !self.excused.contains(&key);
            if settled {
                let id = kernel.id(no);
                assert!(agrees(id, state), "{key} is {state} and the kernel has it as {id:?}");
            }
        }
    }
}
