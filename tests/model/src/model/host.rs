//! A core on the kernel model, driven according to the contract. The fuzzer chooses each step.

use std::collections::{BTreeMap, BTreeSet};

use cmid_proto::{
    AckToken, Admission, Call, ChannelKey, CmEvent, Core, Errno, GroupKey, IdKey, Limits, RawEvent, ReceivedParam,
    Request, RequestKind, State, Time,
};

use super::agreement::agrees;
use super::device::{Device, Made};
use super::fetch::Fetched;
use super::kernel::Kernel;
use super::ledger::{ExpectedEvent, Ledger};
use super::requests::Requests;
use crate::say::say;
use crate::taken;

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
    pub(crate) device: Device,
    /// Channels that the application opened.
    pub(crate) open: Vec<ChannelKey>,
    /// The last request of each id.
    pub(crate) asked: BTreeMap<IdKey, Request<'static>>,
    pub(crate) held: Vec<Held>,
    /// Ack tokens of ids that were destroyed without them.
    pub(crate) void: Vec<Held>,
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
    /// Calls that follow from earlier steps are not made now. A core does not rely on it.
    pub(crate) is_late: bool,
    pub(super) limits: Limits,
    number: u32,
}

impl Host {
    pub(crate) fn new(limits: Limits, first_number: u32) -> Self {
        Host {
            core: Core::new(limits),
            ledger: Ledger::default(),
            requests: Requests::default(),
            device: Device::default(),
            open: Vec::new(),
            asked: BTreeMap::new(),
            held: Vec::new(),
            void: Vec::new(),
            excused: BTreeSet::new(),
            excused_groups: BTreeSet::new(),
            unmoved: BTreeSet::new(),
            paused: BTreeSet::new(),
            backlogs: BTreeMap::new(),
            now: Time(1),
            is_late: false,
            limits,
            number: first_number,
        }
    }

    /// The next call that can fail is refused, after `left` others.
    pub(crate) fn refuse(&mut self, left: usize, errno: Option<Errno>) {
        self.device.refusal = errno.map(|errno| (left, errno));
    }

    /// Is late from now on, or makes up for it.
    pub(crate) fn be_late(&mut self, kernel: &mut Kernel, is_late: bool) {
        self.is_late = is_late;
        self.follow(kernel);
        self.look();
    }

    /// Makes the calls that follow from the last step, unless it is late. Returns them.
    pub(crate) fn follow(&mut self, kernel: &mut Kernel) -> Vec<Made> {
        let mut all = Vec::new();
        if self.is_late {
            return all;
        }
        while let Some(begun) = self.core.next() {
            let (made, result) = self.device.make(kernel, None, begun);
            assert!(result.is_ok(), "{made:?}: {result:?}, and no request waits for it");
            self.note(&made, false);
            // Calls that are late are made together: the order of their moves counts.
            self.ledger.follow(&self.core);
            all.extend(made);
        }
        assert!(self.core.next().is_none(), "a call is due and is not to be made");
        all
    }

    /// Checks calls that were made, and what they change. `waived`: a destroy without its acks.
    pub(crate) fn note(&mut self, made: &[Made], waived: bool) {
        for &Made { call, outcome, home } in made {
            let Some(id) = call.id() else { continue };
            if let Call::Migrate { .. } | Call::Destroy { .. } = call {
                assert!(waived || self.held.iter().all(|held| held.owner != id), "{call:?} while acks are owed");
            }
            match call {
                Call::Migrate { to, .. } => {
                    self.requests.begun(id, RequestKind::Migrate);
                    match outcome {
                        Ok(()) => {
                            self.requests.moved(id);
                            // It goes to the end of its new channel, even if it was to be delivered there.
                            if home == Some(to) {
                                self.ledger.requeue(id);
                            }
                        }
                        Err(_) => drop(self.unmoved.insert(id)),
                    }
                }
                Call::Destroy { .. } => self.requests.begun(id, RequestKind::Destroy),
                Call::Leave { group, .. } => {
                    assert!(self.held.iter().all(|held| held.group != Some(group)), "{call:?} while acks are owed");
                }
                // If the answer of a teardown is refused, it can only wait for its deadline.
                Call::Disconnect { .. } if outcome.is_err() => drop(self.excused.insert(id)),
                // The peer's REJECTED may be unread.
                Call::Reject { .. } | Call::Establish { .. } if outcome.is_err() => drop(self.excused.insert(id)),
                // As in the kernel: an invalid backlog means the maximum.
                Call::Listen { backlog, .. } => {
                    let kept = if (1..=1024).contains(&backlog) { backlog } else { 1024 };
                    self.backlogs.insert(id, kept as usize);
                }
                _ => {}
            }
        }
    }

    /// Reports readable channels to the driver.
    pub(crate) fn wake(&mut self, kernel: &Kernel) {
        for (&channel, file) in &self.device.files {
            if kernel.wakes.contains(file) {
                self.core.handle_readable(channel);
            }
        }
    }

    /// Reads the next channel that is to be read, once.
    pub(crate) fn read(&mut self, kernel: &mut Kernel) -> bool {
        if let Some(begun) = self.core.next_child() {
            let (made, _) = self.device.make(kernel, None, begun);
            self.note(&made, false);
            self.follow(kernel);
            self.look();
            return true;
        }
        let Some(channel) = self.core.poll_readable() else { return false };
        let wanted = self.core.wants_event(channel);
        if self.device.files.contains_key(&channel) {
            assert_eq!(wanted.is_some(), self.has_room(channel), "{channel} with {:?}", self.ledger);
        }
        let Some(child) = wanted else {
            self.core.wait_for_room(channel);
            return true;
        };
        let Some(&file) = self.device.files.get(&channel) else { return true };
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
            self.device.insert(child, fetched.id);
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
        let (before, counters, activity) = (self.core.state(id), self.core.summary().counters, self.core.activity());
        taken::compare(&self.core, on, raw);
        let admission = match self.core.handle_event(on, raw) {
            Ok(admission) => admission,
            Err(fault) => panic!("{raw:?} on {on}, and that is called a fault: {fault}"),
        };
        say(|| format!("  {number}: {} of {id} on {on}: {admission:?}", event.kind));
        if listener.is_some() {
            self.ledger.track(&self.core, child);
        }
        self.ledger.follow(&self.core);
        match admission {
            Admission::Known | Admission::Child(_) => {
                let home = self.core.channel(owner);
                let is_news =
                    self.core.activity() > activity || home.is_some_and(|home| self.core.may_have_event(home));
                assert!(is_news, "{raw:?} is no news");
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
            }
            Admission::Stray => panic!("{raw:?} is called a stray, and the device has that id"),
        }
        assert_eq!(self.core.summary().counters.late - counters.late, u64::from(admission == Admission::Late));
        self.follow(kernel);
        self.look();
    }

    /// Handles the end of a migration without a call: that of a listener. The order of its events may have changed.
    pub(crate) fn moved_without_device(&mut self, id: IdKey) {
        if let Some(Request::Migrate { to: Some(to) }) = self.asked.get(&id)
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
        for id in self.core.ids().collect::<Vec<_>>() {
            let owed = self.held.iter().filter(|held| held.owner == id).count();
            assert_eq!(self.core.id_info(id).map_or(0, |it| it.owed) as usize, owed, "{id}: the acks that are owed");
            if self.core.id_info(id).is_some_and(|it| it.is_sync)
                && let Some(event) = self.core.sync_event(id)
            {
                self.ledger.take_result(id, &event);
                if event.listener.is_some() {
                    self.ledger.track(&self.core, event.id);
                }
            }
        }
        assert_eq!(self.core.summary().counters.faults, 0, "a fault was counted");
        let (due, expected) = (self.core.poll_timeout().map(|(due, _)| due), self.requests.nearest());
        assert_eq!(due, expected, "the nearest deadline");
    }

    /// Checks that ids without undelivered events are in the kernel's state.
    pub(crate) fn compare(&self, kernel: &Kernel) {
        // A call that is late, such as the answer to a disconnect, is made later.
        if self.is_late && self.core.has_work() {
            return;
        }
        for (&key, &no) in &self.device.ids {
            let Some(state) = self.core.state(key) else { continue };
            let settled = state != State::Destroying && !kernel.has_unread(no) && !self.excused.contains(&key);
            if settled {
                let id = kernel.id(no);
                assert!(agrees(id, state), "{key} is {state} and the kernel has it as {id:?}");
            }
        }
    }
}
