//! Regions that share PDs, and a device with its own records.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use cmid_proto::memory::{
    Access, Change, Domain, Ended, MemoryOutcome, MrState, PdState, Policy, Region, Settled, Traffic, Valid, Way,
};

use crate::kernel::Kernel;
use crate::owned::{Memory, Slot, Use};

/// A region, and the PDs that the test expects it to use.
struct Member {
    region: Region<Use, Memory, u32>,
    device: usize,
    policy: Policy,
    /// Numbers of PDs; the old registration's is first.
    holds: Vec<usize>,
    /// Whether memory of a failed re-registration is kept.
    doubt: bool,
}

/// The application and the device.
pub(crate) struct World {
    pds: Vec<Rc<Slot>>,
    members: Vec<Member>,
    kernel: Kernel,
    /// Memory that the application has, by number.
    outside: BTreeMap<u32, Memory>,
    made: u32,
    freed: Rc<Cell<u32>>,
    removed: [bool; 2],
}

fn live() -> Domain {
    let mut domain = Domain::alloc();
    domain.handle_outcome(Ok(())).unwrap();
    domain
}

impl World {
    /// Three PDs on one device, two on another.
    pub(crate) fn new() -> Self {
        let slot = |number| Rc::new(Slot { number, device: number / 3, domain: RefCell::new(live()) });
        World {
            pds: (0..5).map(slot).collect(),
            members: Vec::new(),
            kernel: Kernel::default(),
            outside: BTreeMap::new(),
            made: 0,
            freed: Rc::default(),
            removed: [false; 2],
        }
    }

    fn memory(&mut self) -> Memory {
        self.made += 1;
        Memory { number: self.made, freed: Rc::clone(&self.freed) }
    }

    fn back(&mut self, memory: impl IntoIterator<Item = Memory>) {
        self.outside.extend(memory.into_iter().map(|memory| (memory.number, memory)));
    }

    /// Registers a region if there are fewer than six, so that each has many steps.
    pub(crate) fn register(&mut self, pd: u8) {
        if self.members.iter().filter(|member| member.region.state() != MrState::Gone).count() >= 6 {
            return;
        }
        let slot = Rc::clone(&self.pds[usize::from(pd) % self.pds.len()]);
        let Some(pd) = Use::of(&slot) else {
            assert!(self.removed[slot.device]);
            return;
        };
        let region = Region::register(pd, self.memory(), Access::LOCAL_WRITE).unwrap();
        let holds = vec![slot.number];
        self.members.push(Member { region, device: slot.device, policy: Policy::default(), holds, doubt: false });
    }

    /// Requests a change of a region. It must be accepted exactly if it is legal.
    pub(crate) fn reregister(&mut self, at: u8, flags: u8, pd: u8, policy: Policy, traffic: Traffic) {
        let Some(at) = self.member(at) else { return };
        let slot = Rc::clone(&self.pds[usize::from(pd) % self.pds.len()]);
        let pd = if flags & 2 != 0 { Use::of(&slot) } else { None };
        let other = pd.as_ref().map(|pd| pd.0.number);
        let change = Change {
            buffer: (flags & 1 != 0).then(|| self.memory()),
            access: (flags & 4 != 0).then_some(Access::REMOTE_READ),
            pd,
        };
        let member = &mut self.members[at];
        let foreign = other.is_some() && slot.device != member.device;
        let room = !member.doubt || change.buffer.is_none();
        let right = room && member.region.state() == MrState::Registered && !change.flags().is_empty() && !foreign;
        let before = format!("{:?}", member.region);
        match member.region.reregister(change, policy, traffic) {
            Ok(()) => {
                assert!(right && traffic == Traffic::Quiet);
                member.policy = policy;
                member.holds.extend(other);
            }
            Err((change, refused)) => {
                assert!(!right || traffic == Traffic::InFlight, "{refused}");
                assert_eq!(format!("{:?}", member.region), before);
                self.back(change.buffer);
            }
        }
    }

    pub(crate) fn deregister(&mut self, at: u8, traffic: Traffic) {
        let Some(at) = self.member(at) else { return };
        let member = &mut self.members[at];
        let pinned = traffic == Traffic::InFlight;
        let rests = member.region.call().is_none() && member.region.state() != MrState::Gone;
        assert_eq!(member.region.deregister(traffic).is_ok(), rests && !pinned);
    }

    /// Makes the call of a region.
    pub(crate) fn call(&mut self, at: u8, luck: u8) {
        let Some(at) = self.member(at) else { return };
        let Some(call) = self.members[at].region.call() else { return };
        let member = &self.members[at];
        let outcome = self.kernel.answer(at, &call, member.policy.provider, self.removed[member.device], luck);
        self.outcome(at, outcome);
    }

    fn outcome(&mut self, at: usize, outcome: MemoryOutcome<u32>) {
        let member = &mut self.members[at];
        let from = member.region.state();
        match member.region.handle_outcome(outcome).unwrap() {
            None => match outcome {
                // The fallback's registration uses the requested PD, or the same PD once more.
                MemoryOutcome::Registered(_) if member.holds.len() == 1 => member.holds.push(member.holds[0]),
                MemoryOutcome::Deregistered(Ok(())) => {
                    assert_eq!(from, MrState::Discarding);
                    member.holds.truncate(1);
                }
                _ => {}
            },
            Some(Ended::Registered(keys)) => {
                assert!(member.region.keys().is_none_or(|own| own == keys));
            }
            Some(Ended::NotRegistered(_, memory)) => {
                member.holds.clear();
                self.back([memory]);
            }
            Some(Ended::Reregistered(settled)) => self.settled(at, settled),
            Some(Ended::Deregistered(returned)) => {
                member.holds.clear();
                self.back([returned.buffer].into_iter().chain(returned.other));
            }
            Some(Ended::NotDeregistered(failure)) => assert_ne!(failure.valid, Valid::New),
        }
    }

    fn settled(&mut self, at: usize, settled: Settled<Memory>) {
        let member = &mut self.members[at];
        member.doubt |= self.kernel.of(at).iter().any(|entry| entry.knows.is_some());
        let valid = settled.result.map_or_else(|failure| failure.valid, |_: Way| Valid::New);
        match valid {
            Valid::Old => member.holds.truncate(1),
            Valid::New => drop(member.holds.drain(..member.holds.len() - 1)),
            Valid::Neither => assert!(settled.buffer.is_none()),
        }
        self.back(settled.buffer);
    }

    /// Reports the outcome of a call that is not under way.
    pub(crate) fn confuse(&mut self, at: u8, outcome: MemoryOutcome<u32>) {
        let Some(at) = self.member(at) else { return };
        let region = &mut self.members[at].region;
        if region.call().is_none() {
            let before = format!("{region:?}");
            region.handle_outcome(outcome).unwrap_err();
            assert_eq!(format!("{region:?}"), before);
        }
    }

    /// Deallocates a PD if possible, and replaces it by a new one.
    pub(crate) fn dealloc(&mut self, pd: u8) {
        let slot = &self.pds[usize::from(pd) % self.pds.len()];
        let mut domain = slot.domain.borrow_mut();
        if domain.dealloc().is_ok() {
            assert_eq!(self.kernel.uses(slot.number), 0, "the kernel would say EBUSY");
            domain.handle_outcome(Ok(())).unwrap();
            assert_eq!(domain.state(), PdState::Gone);
            *domain = live();
            if self.removed[slot.device] {
                domain.handle_removal();
            }
        }
    }

    pub(crate) fn remove(&mut self, device: u8) {
        let device = usize::from(device) % 2;
        self.removed[device] = true;
        for slot in self.pds.iter().filter(|slot| slot.device == device) {
            slot.domain.borrow_mut().handle_removal();
        }
        for member in self.members.iter_mut().filter(|member| member.device == device) {
            member.region.handle_removal();
        }
    }

    fn member(&self, at: u8) -> Option<usize> {
        usize::from(at).checked_rem(self.members.len())
    }

    /// Asserts that the records of the device and of the test agree.
    pub(crate) fn check(&self) {
        assert_eq!(self.freed.get(), 0, "memory was freed");
        for (at, member) in self.members.iter().enumerate() {
            let entries = self.kernel.of(at);
            for entry in &entries {
                let used = entries.iter().filter(|other| other.pd == entry.pd).count();
                let held = member.holds.iter().filter(|&&pd| pd == entry.pd).count();
                assert!(held >= used, "a PD was let go that the device uses");
                for memory in entry.knows.iter().chain([&entry.memory]) {
                    assert!(!self.outside.contains_key(memory), "memory was returned of which the device has a record");
                }
            }
            if member.region.state() == MrState::Registered {
                let [entry] = entries.as_slice() else { panic!("{entries:?}") };
                assert_eq!((member.holds.as_slice(), Some(entry.keys)), ([entry.pd].as_slice(), member.region.keys()));
                assert_eq!(member.region.buffer().map(|memory| memory.number), Some(entry.memory));
                assert_eq!(member.region.pd().map(|pd| pd.0.number), Some(entry.pd));
            }
        }
        for slot in &self.pds {
            let held = self.members.iter().flat_map(|member| &member.holds).filter(|&&pd| pd == slot.number).count();
            let domain = slot.domain.borrow();
            assert_eq!(usize::try_from(domain.users()), Ok(held), "uses of PD {}", slot.number);
            assert_eq!(domain.clone().dealloc().is_ok(), held == 0);
        }
    }

    /// Makes all calls, which succeed; deregisters and deallocates everything.
    pub(crate) fn rest(mut self) {
        for at in 0..self.members.len() {
            for _ in 0..8 {
                let member = &mut self.members[at];
                if member.region.call().is_none() && member.region.state() != MrState::Gone {
                    member.region.deregister(Traffic::Quiet).unwrap();
                }
                let Some(call) = member.region.call() else { break };
                let outcome = self.kernel.answer(at, &call, member.policy.provider, false, 0);
                self.outcome(at, outcome);
                self.check();
            }
            assert_eq!(self.members[at].region.state(), MrState::Gone);
        }
        assert!(self.kernel.is_empty(), "a registration was never deregistered");
        assert_eq!(self.outside.len(), self.made as usize, "memory has not come back");
        for slot in &self.pds {
            slot.domain.borrow_mut().dealloc().unwrap();
        }
        drop(self.members);
        assert_eq!(self.freed.get(), 0, "memory was freed");
    }
}
