//! One state: domains, regions, the device, and the application's buffers.

use cmid_proto::memory::{
    Access, Change, Domain, Ended, MemoryFailure, MrState, PdState, Policy, Region, Returned, Settled, Traffic, Valid,
};
use cmid_proto::{Errno, ErrorWith};

use super::device::{Answer, Device, Handle};
use super::invariant::Invariant;
use super::ledger::{self, Memory, Note, Use};
use super::scene::Scene;
use super::witness::{Seen, Witness};

type Mr = Region<Use, Memory, Handle>;

/// A step from one state to another. Regions, PDs and buffers are named by their places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// `ibv_alloc_pd` or `ibv_dealloc_pd` returns.
    PdAnswer(usize, Result<(), Errno>),
    /// Deallocates a PD.
    Dealloc(usize),
    /// Registers a region.
    Register {
        /// The index of the region.
        mr: usize,
        /// The PD.
        pd: usize,
        /// The buffer.
        buffer: usize,
    },
    /// Re-registers a region.
    Reregister {
        /// The index of the region.
        mr: usize,
        /// The new PD.
        pd: Option<usize>,
        /// The new buffer.
        buffer: Option<usize>,
        /// The new rights.
        access: Option<Access>,
        /// The policy.
        policy: Policy,
    },
    /// Deregisters a region.
    Deregister(usize),
    /// A call of a region returns.
    Answer(usize, Answer),
    /// Removes the device.
    Removal,
}

/// A state of a world.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    domains: Vec<Domain>,
    regions: Vec<Option<Mr>>,
    /// The application's buffers.
    app: Vec<Memory>,
    device: Device,
    removed: bool,
    pub(super) broken: Option<Invariant>,
}

impl World {
    /// There is no region; the application has all buffers.
    pub(super) fn new(scene: &Scene) -> Self {
        let mut domain = Domain::alloc();
        if scene.allocated {
            domain.handle_outcome(Ok(())).expect("it is being allocated");
        }
        World {
            domains: vec![domain; scene.pds],
            regions: (0..scene.mrs).map(|_| None).collect(),
            app: (0..scene.buffers).map(Memory).collect(),
            device: Device::default(),
            removed: false,
            broken: None,
        }
    }

    /// The possible next actions.
    pub(super) fn actions(&self, scene: &Scene, all: &mut Vec<Action>) {
        for (at, domain) in self.domains.iter().enumerate() {
            if matches!(domain.state(), PdState::Allocating | PdState::Deallocating) {
                all.extend([Ok(()), Err(Errno::EBUSY)].map(|outcome| Action::PdAnswer(at, outcome)));
            }
            if domain.clone().dealloc().is_ok() {
                all.push(Action::Dealloc(at));
            }
        }
        for (mr, region) in self.regions.iter().enumerate() {
            match region {
                None => self.registrations(mr, all),
                Some(region) => self.changes(scene, mr, region, all),
            }
        }
        if scene.removal && !self.removed {
            all.push(Action::Removal);
        }
    }

    fn registrations(&self, mr: usize, all: &mut Vec<Action>) {
        for pd in self.usable() {
            all.extend(self.next_buffer().map(|buffer| Action::Register { mr, pd, buffer }));
        }
    }

    /// The buffer that is taken next. That it is this one is no bound: those in the application's hands are all alike.
    fn next_buffer(&self) -> Option<usize> {
        self.app.first().map(|buffer| buffer.0)
    }

    /// The PDs that something can be made with.
    fn usable(&self) -> impl Iterator<Item = usize> {
        (0..self.domains.len()).filter(|&pd| self.domains[pd].clone().acquire().is_ok())
    }

    fn changes(&self, scene: &Scene, mr: usize, region: &Mr, all: &mut Vec<Action>) {
        if let Some(call) = region.call() {
            let answers = Answer::all(&call, scene).into_iter();
            all.extend(answers.map(|answer| Action::Answer(mr, answer)));
            return;
        }
        if region.clone().deregister(Traffic::Quiet).is_ok() {
            all.push(Action::Deregister(mr));
        }
        if region.state() != MrState::Registered {
            return;
        }
        let or_none = |some: Vec<usize>| core::iter::once(None).chain(some.into_iter().map(Some)).collect::<Vec<_>>();
        let buffers = or_none(self.next_buffer().into_iter().collect());
        let rights = [None, Some(Access::LOCAL_WRITE), Some(Access::empty())];
        for pd in or_none(self.usable().collect()) {
            for &buffer in &buffers {
                for access in rights.into_iter().take(if scene.rights { 3 } else { 1 }) {
                    let changes =
                        [pd.is_some(), buffer.is_some(), access.is_some()].map(usize::from).iter().sum::<usize>();
                    if !(1..=if scene.together { 3 } else { 1 }).contains(&changes) {
                        continue;
                    }
                    let with = |&fallback| Action::Reregister {
                        mr,
                        pd,
                        buffer,
                        access,
                        policy: Policy { fallback, provider: scene.provider },
                    };
                    all.extend(scene.fallbacks.iter().map(with));
                }
            }
        }
    }

    /// Takes a step.
    pub(super) fn step(&mut self, seen: &Seen, action: Action) -> Result<(), Invariant> {
        let (result, notes) = ledger::keep(|| self.try_step(seen, action));
        result?;
        for note in notes {
            match note {
                Note::Shared(pd) => self.domains[pd].share(),
                Note::Released(pd) => self.domains[pd].release(),
                Note::Lost => return Err(Invariant::LosesBuffer),
            }
        }
        Ok(())
    }

    fn try_step(&mut self, seen: &Seen, action: Action) -> Result<(), Invariant> {
        match action {
            Action::PdAnswer(pd, outcome) => self.domains[pd].handle_outcome(outcome).map_err(|_| Invariant::Faults),
            Action::Dealloc(pd) => {
                self.domains[pd].dealloc().map_err(|_| Invariant::Panics)?;
                seen.note(Witness::Deallocated);
                if self.device.all().any(|it| it.pds.contains(&pd)) { Err(Invariant::DeallocatesInUse) } else { Ok(()) }
            }
            Action::Register { mr, pd, buffer } => {
                self.domains[pd].acquire().map_err(|_| Invariant::Panics)?;
                let buffer = self.take(buffer);
                self.regions[mr] = Region::register(Use(pd), buffer, Access::empty()).ok();
                Ok(())
            }
            Action::Reregister { mr, pd, buffer, access, policy } => {
                pd.map_or(Ok(()), |pd| self.domains[pd].acquire()).map_err(|_| Invariant::Panics)?;
                let change = Change { buffer: buffer.map(|buffer| self.take(buffer)), pd: pd.map(Use), access };
                let Some(region) = &mut self.regions[mr] else { return Err(Invariant::Panics) };
                match region.reregister(change, policy, Traffic::Quiet) {
                    Ok(()) => Ok(()),
                    Err(ErrorWith { given: change, .. }) => {
                        self.app.extend(change.buffer);
                        self.app.sort_unstable();
                        Ok(())
                    }
                }
            }
            Action::Deregister(mr) => {
                let Some(region) = &mut self.regions[mr] else { return Err(Invariant::Panics) };
                region.deregister(Traffic::Quiet).map_err(|_| Invariant::RefusesDeregister)
            }
            Action::Answer(mr, answer) => self.answer(seen, mr, answer),
            Action::Removal => {
                self.removed = true;
                self.domains.iter_mut().for_each(Domain::handle_removal);
                self.regions.iter_mut().flatten().for_each(Region::handle_removal);
                Ok(())
            }
        }
    }

    /// A buffer out of the application's hands.
    fn take(&mut self, buffer: usize) -> Memory {
        let at = self.app.iter().position(|it| it.0 == buffer).expect("only what is there is asked for");
        self.app.remove(at)
    }

    fn answer(&mut self, seen: &Seen, mr: usize, answer: Answer) -> Result<(), Invariant> {
        let Some(region) = &mut self.regions[mr] else { return Err(Invariant::Panics) };
        let from = region.state();
        let Some(call) = region.call() else { return Err(Invariant::Panics) };
        let outcome = self.device.call(&call, answer)?;
        seen.note_if(from == MrState::Replacing, Witness::Fallback);
        let Some(ended) = region.handle_outcome(outcome).map_err(|_| Invariant::Faults)? else {
            seen.note_if(from == MrState::Retiring, Witness::FallbackUndone);
            seen.note_if(from == MrState::Discarding, Witness::TwoDiscarded);
            return Ok(());
        };
        let state = region.state();
        let expected = match &ended {
            Ended::Registered(_) | Ended::NotRegistered(..) => from == MrState::Registering,
            Ended::Reregistered(_) => {
                matches!(from, MrState::Changing | MrState::Replacing | MrState::Retiring | MrState::Undoing)
            }
            Ended::Deregistered(_) | Ended::NotDeregistered(_) => {
                matches!(from, MrState::Deregistering | MrState::Discarding)
            }
        };
        seen.note_if(state == MrState::Unusable && !self.removed, Witness::Unusable);
        let gone = match ended {
            Ended::Registered(_) => false,
            Ended::NotRegistered(_, buffer) => {
                self.app.push(buffer);
                true
            }
            Ended::Reregistered(Settled { result, buffer }) => {
                seen.note_if(result.is_ok(), Witness::Reregistered);
                seen.note_if(matches!(result, Err(MemoryFailure { valid: Valid::Old, .. })), Witness::OldStays);
                self.app.extend(buffer);
                false
            }
            Ended::Deregistered(Returned { buffer, other }) => {
                seen.note_if(other.is_some(), Witness::BothReturned);
                self.app.push(buffer);
                self.app.extend(other);
                true
            }
            Ended::NotDeregistered(_) => {
                seen.note(Witness::NotDeregistered);
                false
            }
        };
        self.app.sort_unstable();
        if gone != (state == MrState::Gone) || !expected {
            return Err(Invariant::EndsWrong);
        }
        if gone {
            self.regions[mr] = None;
        }
        Ok(())
    }

    /// Whether no registration may refer to what the application has.
    pub(super) fn hands_are_safe(&self) -> bool {
        !self.device.all().flat_map(|it| &it.buffers).any(|&buffer| self.app.iter().any(|it| it.0 == buffer))
    }

    /// Whether the domains count at least the uses at the device, and exactly these if every region is registered.
    pub(super) fn counts_agree(&self) -> bool {
        let settled = |region: &Option<Mr>| region.as_ref().is_none_or(|it| it.state() == MrState::Registered);
        let exact = self.regions.iter().all(settled);
        self.domains.iter().enumerate().all(|(pd, domain)| {
            let at_device = self.device.all().filter(|it| it.pds.contains(&pd)).count();
            let users = domain.users() as usize;
            if exact { users == at_device } else { users >= at_device }
        })
    }

    /// Whether a region's valid registration matches that of the device.
    pub(super) fn regions_tell_the_truth(&self) -> bool {
        self.regions.iter().flatten().all(|region| match region.keys() {
            None => region.state() != MrState::Registered,
            Some(keys) => self.device.with_keys(keys).is_some_and(|it| {
                region.pd().is_some_and(|pd| it.pds == [pd.0])
                    && region.buffer().is_some_and(|buffer| it.buffers == [buffer.0])
                    && region.access() == Some(it.access)
            }),
        })
    }

    /// Whether an outcome of another call than the one that is under way is called a fault and changes nothing.
    pub(super) fn refuses_other_outcomes(&self) -> bool {
        use cmid_proto::memory::{Keys, MemoryCall, MemoryOutcome, Reply};
        let reply = Reply { code: 0, errno: Errno::EIO, keys: Keys::default() };
        self.regions.iter().flatten().all(|region| {
            let (mut reg, mut rereg, mut dereg) = (true, true, true);
            match region.call() {
                Some(MemoryCall::Register { .. }) => reg = false,
                Some(MemoryCall::Reregister { .. }) => rereg = false,
                Some(MemoryCall::Deregister { .. }) => dereg = false,
                None => {}
            }
            let others = [
                (reg, MemoryOutcome::Registered(Ok((99, Keys::default())))),
                (reg, MemoryOutcome::Registered(Err(Errno::EIO))),
                (rereg, MemoryOutcome::Reregistered(reply)),
                (dereg, MemoryOutcome::Deregistered(Ok(()))),
                (dereg, MemoryOutcome::Deregistered(Err(Errno::EIO))),
            ];
            others.into_iter().filter(|(is_other, _)| *is_other).all(|(_, outcome)| {
                let mut copy = region.clone();
                copy.handle_outcome(outcome).is_err() && copy == *region
            })
        })
    }

    /// Whether what must be refused is, and changes nothing.
    pub(super) fn refusals_change_nothing(&self, seen: &Seen) -> bool {
        self.regions.iter().flatten().all(|region| {
            let mut copy = region.clone();
            let nothing = copy.reregister(Change::default(), Policy::default(), Traffic::Quiet).is_err();
            let rights = Change::default().to_access(Access::LOCAL_WRITE);
            // Traffic counts in every state, also when the device is gone.
            let pinned = copy.deregister(Traffic::InFlight).is_err()
                && copy.reregister(rights, Policy::default(), Traffic::InFlight).is_err();
            seen.note(Witness::Refused);
            nothing && pinned && copy == *region
        })
    }

    /// From here everything ends: each region can be deregistered, then each PD deallocated.
    pub(super) fn end(mut self, buffers: usize) -> Result<(), Invariant> {
        let seen = Seen::default();
        for mr in 0..self.regions.len() {
            for _ in 0..9 {
                let Some(region) = &self.regions[mr] else { break };
                let action =
                    if region.call().is_some() { Action::Answer(mr, Answer::Well) } else { Action::Deregister(mr) };
                self.step(&seen, action)?;
            }
        }
        for pd in 0..self.domains.len() {
            for _ in 0..3 {
                match self.domains[pd].state() {
                    PdState::Allocating | PdState::Deallocating => self.step(&seen, Action::PdAnswer(pd, Ok(())))?,
                    PdState::Live | PdState::Stranded => {
                        self.domains[pd].clone().dealloc().map_err(|_| Invariant::Leaks)?;
                        self.step(&seen, Action::Dealloc(pd))?;
                    }
                    PdState::Gone => {}
                }
            }
        }
        let all_back = self.app.iter().map(|it| it.0).eq(0..buffers);
        let gone = self.domains.iter().all(|it| it.state() == PdState::Gone && it.users() == 0);
        if all_back && gone && self.device.all().next().is_none() && self.regions.iter().all(Option::is_none) {
            Ok(())
        } else {
            Err(Invariant::Leaks)
        }
    }
}
