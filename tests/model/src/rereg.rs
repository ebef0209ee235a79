//! Memory regions and protection domains on a device that may return any answer, and does what it reports or less.
//!
//! No memory and no PD is released while the device refers to it, or while a poll may write to it without a key check.
//! Requests without a completion pin until a later one is polled. No registration is changed or ended while a window is
//! bound to it; the device does not look. Peers invalidate windows at any time. A registration that is reported as valid exists at the
//! device. Memory is returned once. After any failures everything is deregistered and deallocated at the end.
//!
//! Some devices check the key of a peer's packet and copy it later; only a deregistration waits for that.
//!
//! Regions share memory, each by a handle of its own, to which all of this applies. A slice of a region is granted only if
//! nothing else writes to the memory: no request, no peer, and no other region (shared.rs).

mod shared;
mod things;
mod windows;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::{Rc, Weak};

use cmid_proto::ErrorWith;
use cmid_proto::memory::{
    Change, Code, Domain, Ended, Fallback, MemoryCall, MemoryOutcome, MemoryStep, MrState, Pd, PdState, Policy,
    Provider, Region, Settled, Traffic, Valid, Way,
};

use crate::input::Input;
use crate::model::mr::{Device, Wanted};
use crate::say::say;
use shared::CHOICES;
use things::{Flight, Memory, PDS, Slot, Use, Work, access, is_legal};
use windows::{WINDOWS, Windows};

/// Regions at a time.
const REGIONS: usize = 4;

/// Everything must be gone after so many calls for each region.
const ENOUGH: usize = 8;

/// Runs the input.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let mut world = World::new(input.once_in(2));
    while !input.is_over() {
        world.step(&mut input);
        world.look();
    }
    world.rest();
}

struct Member {
    region: Region<Use, Memory, u32>,
    policy: Policy,
    /// The requested change, while it is under way.
    wanted: Option<Wanted>,
    /// The device may refer to memory, and to the PD, of a failed change.
    in_doubt: bool,
    pd_in_doubt: bool,
    /// The registrations that the device has made for it.
    handles: Vec<u32>,
}

struct World {
    pds: Vec<Rc<Slot>>,
    members: Vec<Member>,
    device: Device,
    windows: Windows,
    /// The handles that are not in a region; `None` for those that the program has dropped.
    outside: BTreeMap<u32, Option<Memory>>,
    /// Of the one QP, oldest first; with completions that it has left.
    flights: VecDeque<Flight>,
    /// The handles of memory that were made, and those that were dropped: by the program, and by anybody.
    made: u32,
    let_go: u32,
    /// The memory of each handle.
    wholes: Vec<Weak<()>>,
    dropped: Rc<Cell<u32>>,
    removed: bool,
}

impl World {
    fn new(copies_late: bool) -> Self {
        let live = || {
            let mut domain = Domain::alloc();
            assert!(domain.handle_outcome(Ok(())).is_ok());
            RefCell::new(domain)
        };
        World {
            pds: (0..PDS).map(|number| Rc::new(Slot { number, domain: live(), copies_late })).collect(),
            members: Vec::new(),
            device: Device::new(copies_late),
            windows: Windows::default(),
            outside: BTreeMap::new(),
            flights: VecDeque::new(),
            made: 0,
            let_go: 0,
            wholes: Vec::new(),
            dropped: Rc::default(),
            removed: false,
        }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let at = input.below(self.members.len());
        match input.below(24) {
            0..=2 => self.register(input),
            _ if self.members.is_empty() => {}
            3..=6 => self.reregister(at, input),
            7 => self.deregister(at),
            13 if self.members[at].region.call().is_none() => self.let_go(),
            8..=13 => self.call(at, input),
            14 => self.confuse(at, input),
            15 | 16 => self.post(at, true),
            17 | 18 => self.poll(),
            19 => self.post(at, false),
            20 | 21 => {
                if let Some(keys) = self.members[at].region.keys() {
                    self.windows.bind(&mut self.device, &mut self.flights, keys.lkey, input);
                }
            }
            22 => self.windows.unbind(&mut self.device, &mut self.flights, input),
            _ if input.once_in(8) => self.remove(),
            _ => self.dealloc(input),
        }
    }

    fn back(&mut self, memory: impl IntoIterator<Item = Memory>) {
        for memory in memory {
            let number = memory.number;
            assert!(self.outside.insert(number, Some(memory)).is_none(), "memory {number} comes back twice");
        }
    }

    fn acquire(&self, input: &mut Input<'_>) -> Option<Use> {
        let slot = &self.pds[input.below(2 * PDS - 1) % PDS];
        let is_there = slot.domain.borrow_mut().acquire().is_ok();
        assert_eq!(is_there, !self.removed && slot.domain.borrow().state() != PdState::Gone);
        is_there.then(|| Use(Rc::clone(slot)))
    }

    fn register(&mut self, input: &mut Input<'_>) {
        if self.members.len() == REGIONS {
            return;
        }
        let Some(pd) = self.acquire(input) else { return };
        let memory = self.memory(input.below(CHOICES));
        let access = access(input);
        let right = memory.len > 0 && is_legal(access);
        match Region::register(pd, memory, access) {
            Ok(region) => {
                assert!(right, "memory of length 0, or illegal rights, are registered");
                self.members.push(Member {
                    region,
                    policy: Policy::default(),
                    wanted: None,
                    in_doubt: false,
                    pd_in_doubt: false,
                    handles: Vec::new(),
                });
            }
            Err(ErrorWith { given: memory, error: refused }) => {
                assert!(!right, "{refused}");
                self.back([memory]);
            }
        }
    }

    fn reregister(&mut self, at: usize, input: &mut Input<'_>) {
        let pd = if input.once_in(2) { self.acquire(input) } else { None };
        let choice = input.below(CHOICES);
        let buffer = input.once_in(2).then(|| self.memory(choice));
        let len = buffer.as_ref().map_or(1, |memory| memory.len);
        let change = Change { buffer, pd, access: input.once_in(2).then(|| access(input)) };
        let policy = Policy {
            fallback: [Fallback::None, Fallback::Anew][input.below(2)],
            provider: [Provider::Unknown, Provider::ChecksFirst][input.below(2)],
        };
        let traffic = self.traffic(at);
        let wanted = Wanted {
            pd: change.pd.as_ref().map(|pd| pd.0.number),
            memory: change.buffer.as_ref().map(|memory| memory.number),
            access: change.access,
        };
        let member = &mut self.members[at];
        let foreign = change.pd.as_ref().zip(member.region.pd()).is_some_and(|(pd, old)| !pd.same_device(old));
        let right = member.region.state() == MrState::Registered
            && !change.flags().is_empty()
            && !foreign
            && (change.buffer.is_none() || len > 0)
            && change.access.is_none_or(is_legal)
            && traffic == Traffic::Quiet
            && !(change.buffer.is_some() && member.in_doubt)
            && !(change.pd.is_some() && member.pd_in_doubt);
        let before = format!("{:?}", member.region);
        say(|| format!("region {at}: {wanted:?} {policy:?} {traffic:?} of {before}"));
        match member.region.reregister(change, policy, traffic) {
            Ok(()) => {
                assert!(right, "{wanted:?} of {before}");
                (member.policy, member.wanted) = (policy, Some(wanted));
            }
            Err(ErrorWith { given: change, error: refused }) => {
                assert!(!right, "{refused}");
                assert_eq!(format!("{:?}", member.region), before, "{refused}");
                self.back(change.buffer);
            }
        }
    }

    fn deregister(&mut self, at: usize) {
        let traffic = self.traffic(at);
        let region = &mut self.members[at].region;
        let right = matches!(region.state(), MrState::Registered | MrState::Unusable) && traffic == Traffic::Quiet;
        let done = region.deregister(traffic);
        say(|| format!("region {at}: deregistration, {traffic:?}: {done:?}"));
        assert_eq!(done.is_ok(), right, "{region:?}");
    }

    /// Makes the call of a region.
    fn call(&mut self, at: usize, input: &mut Input<'_>) {
        let member = &mut self.members[at];
        let Some(call) = member.region.call() else { return };
        let outcome = match call {
            MemoryCall::Register { pd, buffer, access } => {
                let done = self.device.register(input, pd.0.number, buffer.number, access);
                member.handles.extend(done.iter().map(|(handle, _)| *handle));
                MemoryOutcome::Registered(done)
            }
            MemoryCall::Reregister { handle, change } => {
                let wanted = member.wanted.expect("a re-registration that was asked for");
                assert_eq!(change.pd.as_ref().map(|pd| pd.0.number), wanted.pd);
                assert_eq!(change.buffer.as_ref().map(|memory| memory.number), wanted.memory);
                assert_eq!(change.access, wanted.access);
                MemoryOutcome::Reregistered(self.device.reregister(input, *handle, wanted, member.policy.provider))
            }
            MemoryCall::Deregister { handle } => {
                let done = self.device.deregister(input, *handle);
                member.handles.retain(|other| done.is_err() || other != handle);
                MemoryOutcome::Deregistered(done)
            }
        };
        say(|| format!("region {at}: {outcome:?}"));
        self.outcome(at, outcome);
    }

    fn outcome(&mut self, at: usize, outcome: MemoryOutcome<u32>) {
        let region = &mut self.members[at].region;
        let ended = region.handle_outcome(outcome).unwrap_or_else(|fault| panic!("{outcome:?}: {fault}"));
        match (ended, outcome) {
            (None, MemoryOutcome::Reregistered(reply)) => {
                assert_eq!(reply.errno, cmid_proto::Errno::EOPNOTSUPP);
                assert_eq!(self.members[at].policy.fallback, Fallback::Anew, "a fallback that nobody wants");
            }
            (None, MemoryOutcome::Registered(_) | MemoryOutcome::Deregistered(_)) => {
                assert!(region.call().is_some(), "{region:?}")
            }
            (Some(Ended::Registered(keys)), MemoryOutcome::Registered(Ok((_, made)))) => assert_eq!(keys, made),
            (Some(Ended::NotRegistered(errno, memory)), MemoryOutcome::Registered(Err(said))) => {
                assert_eq!(errno, said);
                self.back([memory]);
            }
            (Some(Ended::Reregistered(settled)), _) => self.settled(at, settled, outcome),
            (Some(Ended::Deregistered(returned)), MemoryOutcome::Deregistered(Ok(()))) => {
                self.back([returned.buffer].into_iter().chain(returned.other));
            }
            (Some(Ended::NotDeregistered(failure)), MemoryOutcome::Deregistered(Err(errno))) => {
                assert_eq!((failure.step, failure.errno), (MemoryStep::Deregister, errno));
                assert_ne!(failure.valid, Valid::New);
            }
            (ended, outcome) => panic!("{outcome:?} has led to {ended:?}"),
        }
        if self.members[at].region.state() == MrState::Gone {
            let gone = self.members.remove(at);
            assert!(gone.handles.is_empty(), "a region is gone and the device has {:?}", gone.handles);
        }
    }

    fn settled(&mut self, at: usize, settled: Settled<Memory>, outcome: MemoryOutcome<u32>) {
        let member = &mut self.members[at];
        let wanted = member.wanted.take();
        let other = wanted.is_some_and(|wanted| wanted.memory.is_some());
        if let MemoryOutcome::Reregistered(reply) = outcome {
            let code = Code::from_raw(reply.code);
            assert_eq!(settled.result == Ok(Way::InPlace), code == Code::Done, "{reply:?}");
            assert!(settled.result.is_ok() || settled.result.is_err_and(|it| it.step == MemoryStep::Reregister(code)));
        } else if settled.result.is_ok() {
            assert_eq!((settled.result, member.region.way()), (Ok(Way::Anew), Way::Anew));
            member.pd_in_doubt = false;
        }
        let valid = settled.result.map_or_else(|failure| failure.valid, |_| Valid::New);
        if let (MemoryOutcome::Reregistered(reply), Valid::Old) = (outcome, valid) {
            let refused = matches!(Code::from_raw(reply.code), Code::Input | Code::DontForkNew)
                || (Code::from_raw(reply.code), reply.errno) == (Code::Cmd, cmid_proto::Errno::EOPNOTSUPP);
            member.in_doubt |= other && !refused;
            member.pd_in_doubt |= wanted.is_some_and(|wanted| wanted.pd.is_some()) && !refused;
        }
        if valid == Valid::New && other && settled.buffer.is_none() {
            assert!(self.device.copies_late, "memory is replaced and does not come back");
            member.in_doubt = true;
        }
        let usable = !self.removed && valid != Valid::Neither;
        assert_eq!(member.region.state() == MrState::Registered, usable, "{valid:?}: {:?}", member.region);
        assert!(valid != Valid::Neither || settled.buffer.is_none(), "memory is let go, and who has it is not known");
        self.back(settled.buffer);
    }

    /// The outcome of a call that is not under way changes nothing.
    fn confuse(&mut self, at: usize, input: &mut Input<'_>) {
        let region = &mut self.members[at].region;
        let outcome = match (region.call(), input.below(2)) {
            (Some(MemoryCall::Register { .. }), _) | (None, 0) => MemoryOutcome::Deregistered(Ok(())),
            (Some(MemoryCall::Reregister { .. }), _) | (None, _) => {
                MemoryOutcome::Registered(Err(cmid_proto::Errno::EIO))
            }
            (Some(MemoryCall::Deregister { .. }), _) => MemoryOutcome::Registered(Ok((u32::MAX, Default::default()))),
        };
        let before = format!("{region:?}");
        assert!(region.handle_outcome(outcome).is_err(), "{outcome:?} for {before}");
        assert_eq!(format!("{region:?}"), before);
    }

    fn remove(&mut self) {
        say(|| "the devices go".to_owned());
        self.removed = true;
        self.pds.iter().for_each(|slot| slot.domain.borrow_mut().handle_removal());
        self.members.iter_mut().for_each(|member| member.region.handle_removal());
    }

    fn dealloc(&mut self, input: &mut Input<'_>) {
        let slot = &self.pds[input.below(PDS)];
        let used = self.device.entries.values().any(|entry| entry.pd == slot.number);
        let mut domain = slot.domain.borrow_mut();
        if domain.dealloc().is_ok() {
            assert!(!used, "the kernel would say EBUSY");
            assert_eq!(Rc::strong_count(slot), 1, "PD {} goes while it is used", slot.number);
            let outcome = if input.once_in(4) { Err(cmid_proto::Errno::EBUSY) } else { Ok(()) };
            assert!(domain.handle_outcome(outcome).is_ok());
        }
    }

    /// A receive into the memory of a valid region, which can be posted as long as the program does not know of a
    /// removal.
    fn post(&mut self, at: usize, signaled: bool) {
        let region = &self.members[at].region;
        if let (Some(keys), Some(memory)) = (region.keys(), region.buffer()) {
            say(|| format!("region {at}: a receive into memory {}, signaled: {signaled}", memory.number));
            self.flights.push_back(Flight { lkey: keys.lkey, signaled, work: Work::Receive(memory.number) });
        }
    }

    /// Polls the oldest completion. It retires its work request and those before it.
    fn poll(&mut self) {
        if let Some(at) = self.flights.iter().position(|flight| flight.signaled) {
            self.retire(at + 1);
        }
    }

    /// Retires this many work requests, and copies received data to their memory.
    fn retire(&mut self, count: usize) {
        let retired: Vec<_> = self.flights.drain(..count).collect();
        for Flight { lkey, work, .. } in retired {
            match work {
                Work::Receive(memory) => {
                    say(|| format!("a poll writes to memory {memory}"));
                    assert!(
                        !self.outside.contains_key(&memory),
                        "a poll writes to memory {memory}, named by {lkey}, after it was let go"
                    );
                }
                Work::Bind(window, rkey) => self.device.bind(window, lkey, rkey),
                Work::Invalidate(window, rkey) => self.windows.invalidated(&mut self.device, window, rkey),
                Work::Nothing => {}
            }
        }
    }

    /// Whether work in flight names a region.
    fn traffic(&self, at: usize) -> Traffic {
        let named = self.members[at].region.named().map(|(_, keys)| keys.lkey);
        if self.flights.iter().any(|flight| Some(flight.lkey) == named) {
            return Traffic::InFlight;
        }
        named.map_or(Traffic::Quiet, |lkey| self.windows.bindings.traffic(lkey))
    }

    fn look(&self) {
        assert_eq!(self.dropped.get(), self.let_go, "a handle was dropped inside a region");
        for Flight { work, .. } in &self.flights {
            if let Work::Receive(memory) = work {
                assert!(!self.outside.contains_key(memory), "memory {memory} was let go in flight");
            }
        }
        for slot in &self.pds {
            let (domain, uses) = (slot.domain.borrow(), Rc::strong_count(slot) - 1);
            assert_eq!(domain.users() as usize, uses, "the uses of PD {}", slot.number);
            let may_go = uses == 0 && domain.state() != PdState::Gone;
            assert_eq!(domain.clone().dealloc().is_ok(), may_go, "PD {} with {uses} uses", slot.number);
        }
        for entry in self.device.entries.values() {
            let referred = [Some(entry.memory), entry.known].into_iter().flatten();
            let gone = referred.filter(|memory| self.outside.contains_key(memory)).count();
            assert_eq!(gone, 0, "{entry:?}: its memory was let go");
            let pds = [Some(entry.pd), entry.known_pd];
            let kept = pds.into_iter().flatten().all(|pd| Rc::strong_count(&self.pds[pd]) > 1);
            assert!(kept, "{entry:?}: its PD was let go");
        }
        for Member { region, handles, in_doubt, .. } in &self.members {
            if region.state() == MrState::Registered {
                let [handle] = handles[..] else { panic!("{region:?} is valid and the device has {handles:?}") };
                let entry = &self.device.entries[&handle];
                assert_eq!(region.in_doubt().is_some(), *in_doubt, "{region:?}");
                assert_eq!(region.keys(), Some(entry.keys), "{region:?}");
                assert_eq!(region.access(), Some(entry.access), "{region:?}");
                assert_eq!(region.pd().map(|pd| pd.0.number), Some(entry.pd), "{region:?}");
                assert_eq!(region.buffer().map(|memory| memory.number), Some(entry.memory), "{region:?}");
            }
        }
        self.look_at_slices();
    }

    /// Ends everything, on a device that executes all calls.
    fn rest(mut self) {
        let mut certain = Input::new(&[]);
        // The QP goes: what has no completion is flushed.
        self.retire(self.flights.len());
        for window in 0..WINDOWS {
            self.device.unbind(window);
        }
        while let Some(at) = self.members.len().checked_sub(1) {
            for step in 0.. {
                assert!(step < ENOUGH, "{:?} does not go", self.members[at].region);
                if self.members[at].region.call().is_none() {
                    let asked = self.members[at].region.deregister(Traffic::Quiet);
                    assert!(asked.is_ok(), "{:?} cannot be deregistered", self.members[at].region);
                }
                self.call(at, &mut certain);
                self.look();
                if self.members.len() == at {
                    break;
                }
            }
        }
        assert!(self.device.entries.is_empty(), "the device has kept {:?}", self.device.entries);
        assert_eq!(self.outside.len(), self.made as usize, "memory has not come back");
        for slot in &self.pds {
            let mut domain = slot.domain.borrow_mut();
            let gone = domain.state() == PdState::Gone;
            assert_eq!(domain.dealloc().is_ok(), !gone, "PD {}", slot.number);
        }
    }
}
