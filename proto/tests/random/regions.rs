//! Memory regions and protection domains on a NIC that fails in every way that ibv_rereg_mr(3) describes.
//!
//! The NIC records which memory each registration may write to. It must not include memory that was returned to the
//! application, and a deallocated PD must have no registration.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use cmid_proto::Errno;
use cmid_proto::memory::{
    Access, Buffer, Change, Domain, Ended, Fallback, Keys, MemoryCall, MemoryOutcome, MrState, Pd, PdState, Policy,
    Provider, Region, Reply, Traffic,
};

/// Memory, by number. 0 has no bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Memory(u32);

impl Buffer for Memory {
    fn len(&self) -> usize {
        self.0 as usize
    }
}

/// A PD, by number; the first three are of one device, the others of another.
#[derive(Debug)]
struct Use {
    pd: usize,
    domains: Rc<RefCell<Vec<Domain>>>,
}

impl Use {
    fn of(pd: usize, domains: &Rc<RefCell<Vec<Domain>>>) -> Option<Self> {
        domains.borrow_mut()[pd].acquire().ok()?;
        Some(Use { pd, domains: Rc::clone(domains) })
    }

    const fn device(&self) -> usize {
        self.pd / 3
    }
}

impl Clone for Use {
    fn clone(&self) -> Self {
        self.domains.borrow_mut()[self.pd].share();
        Use { pd: self.pd, domains: Rc::clone(&self.domains) }
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        self.domains.borrow_mut()[self.pd].release();
    }
}

impl PartialEq for Use {
    fn eq(&self, other: &Self) -> bool {
        self.pd == other.pd
    }
}

impl Pd for Use {
    fn same_device(&self, other: &Self) -> bool {
        self.device() == other.device()
    }
}

/// The NIC's record of one registration; several entries if it is unknown which one is valid.
#[derive(Debug)]
struct Registered {
    pds: BTreeSet<usize>,
    memory: BTreeSet<Memory>,
    keys: Keys,
}

#[derive(Default)]
struct Nic {
    registered: BTreeMap<u32, Registered>,
    made: u32,
    failing: bool,
}

impl Nic {
    fn call(&mut self, call: MemoryCall<'_, Use, Memory, u32>, rng: &mut fastrand::Rng) -> MemoryOutcome<u32> {
        match call {
            MemoryCall::Register { pd, buffer, .. } => MemoryOutcome::Registered(self.register(pd.pd, *buffer, rng)),
            MemoryCall::Reregister { handle, change } => {
                MemoryOutcome::Reregistered(self.reregister(*handle, change, rng))
            }
            MemoryCall::Deregister { handle } => MemoryOutcome::Deregistered(self.deregister(*handle, rng)),
        }
    }

    fn register(&mut self, pd: usize, memory: Memory, rng: &mut fastrand::Rng) -> Result<(u32, Keys), Errno> {
        if self.failing && rng.u8(..5) == 0 {
            return Err(Errno::ENOMEM);
        }
        self.made += 1;
        let keys = Keys { lkey: self.made, rkey: self.made };
        let registered = Registered { pds: [pd].into(), memory: [memory].into(), keys };
        self.registered.insert(self.made, registered);
        Ok((self.made, keys))
    }

    fn reregister(&mut self, handle: u32, change: &Change<Use, Memory>, rng: &mut fastrand::Rng) -> Reply {
        let it = self.registered.get_mut(&handle).expect("the registration is there");
        let outcomes = if self.failing { 8 } else { 2 };
        let (code, errno) = match rng.u8(..outcomes) {
            0 => (0, Errno(0)),
            1 => (-4, Errno::EOPNOTSUPP),
            2 => (-1, Errno::EINVAL),
            3 => (-2, Errno::ENOMEM),
            4 => (-3, Errno::ENOMEM),
            5 => (-4, Errno::EINVAL),
            6 => (-4, Errno::EIO),
            _ => (-5, Errno::ENOMEM),
        };
        let is_done = matches!(code, 0 | -3);
        let is_doubtful = code == -5 || (code == -4 && errno != Errno::EOPNOTSUPP);
        if is_done {
            it.keys.rkey += 1000;
        }
        if let Some(memory) = change.buffer.filter(|_| is_done || is_doubtful) {
            it.memory.retain(|_| is_doubtful);
            it.memory.insert(memory);
        }
        if let Some(pd) = change.pd.as_ref().filter(|_| is_done || (is_doubtful && errno != Errno::EINVAL)) {
            it.pds.retain(|_| is_doubtful);
            it.pds.insert(pd.pd);
        }
        Reply { code, errno, keys: it.keys }
    }

    fn deregister(&mut self, handle: u32, rng: &mut fastrand::Rng) -> Result<(), Errno> {
        assert!(self.registered.contains_key(&handle), "registration {handle} is deregistered twice");
        match if self.failing { rng.u8(..6) } else { 9 } {
            0 => Err(Errno::EBUSY),
            1 => Err(Errno::EINVAL),
            2 => Err(Errno::EIO),
            _ => {
                self.registered.remove(&handle);
                Ok(())
            }
        }
    }

    fn may_write(&self, memory: Memory) -> bool {
        self.registered.values().any(|it| it.memory.contains(&memory))
    }
}

struct Program {
    nic: Nic,
    domains: Rc<RefCell<Vec<Domain>>>,
    regions: Vec<(Region<Use, Memory, u32>, bool)>,
    /// The application's memory.
    mine: BTreeSet<Memory>,
    made: u32,
    removed: bool,
}

impl Program {
    fn memory(&mut self) -> Memory {
        self.made += 1;
        Memory(self.made)
    }

    fn came_back(&mut self, memory: Memory) {
        assert!(!self.nic.may_write(memory), "{memory:?} comes back, and the NIC may write to it");
        assert!(self.mine.insert(memory), "{memory:?} comes back twice");
    }

    fn ended(&mut self, ended: Ended<Memory>) {
        match ended {
            Ended::Registered(_) | Ended::NotDeregistered(_) => {}
            Ended::NotRegistered(_, memory) => self.came_back(memory),
            Ended::Reregistered(settled) => settled.buffer.into_iter().for_each(|memory| self.came_back(memory)),
            Ended::Deregistered(returned) => {
                self.came_back(returned.buffer);
                returned.other.into_iter().for_each(|memory| self.came_back(memory));
            }
        }
    }

    fn register(&mut self, rng: &mut fastrand::Rng) {
        let Some(pd) = Use::of(rng.usize(..5), &self.domains) else { return };
        let memory = if rng.u8(..9) == 0 { Memory(0) } else { self.memory() };
        let access = Access::from_bits_truncate(rng.u32(..32));
        match Region::register(pd, memory, access) {
            Ok(region) => self.regions.push((region, false)),
            Err((Memory(0), _)) => {}
            Err((memory, _)) => self.came_back(memory),
        }
    }

    fn reregister(&mut self, at: usize, rng: &mut fastrand::Rng) {
        let mut change = Change::default();
        if rng.bool() {
            change = change.to_buffer(self.memory());
        }
        if rng.bool() {
            if let Some(pd) = Use::of(rng.usize(..5), &self.domains) {
                change = change.to_pd(pd);
            }
        }
        if rng.bool() {
            change = change.to_access(Access::from_bits_truncate(rng.u32(..32)));
        }
        let fallback = if rng.bool() { Fallback::Anew } else { Fallback::None };
        let policy = Policy { fallback, provider: Provider::Unknown };
        let (region, busy) = &mut self.regions[at];
        let (before, traffic) = (region.clone(), if *busy { Traffic::InFlight } else { Traffic::Quiet });
        let wanted = change.buffer;
        match region.reregister(change, policy, traffic) {
            Ok(()) => assert!(!*busy, "a region is re-registered while work that names it is in flight"),
            Err((change, refused)) => {
                assert!(before == *region && change.buffer == wanted, "{refused} has changed something");
                change.buffer.into_iter().for_each(|memory| self.came_back(memory));
            }
        }
    }

    fn deregister(&mut self, at: usize) {
        let (region, busy) = &mut self.regions[at];
        let (before, traffic) = (region.clone(), if *busy { Traffic::InFlight } else { Traffic::Quiet });
        match region.deregister(traffic) {
            Ok(()) => assert!(!*busy, "a region is deregistered while work that names it is in flight"),
            Err(refused) => assert!(before == *region, "{refused} has changed something"),
        }
    }

    fn make_call(&mut self, at: usize, rng: &mut fastrand::Rng) -> bool {
        let Some(outcome) = self.regions[at].0.call().map(|call| self.nic.call(call, rng)) else { return false };
        let ended = self.regions[at].0.handle_outcome(outcome).expect("the call was to be made");
        ended.into_iter().for_each(|ended| self.ended(ended));
        true
    }

    fn dealloc(&mut self, pd: usize, rng: &mut fastrand::Rng) {
        let result = self.domains.borrow_mut()[pd].dealloc();
        if result.is_ok() {
            let used = self.nic.registered.values().any(|it| it.pds.contains(&pd));
            assert!(!used, "PD {pd} is deallocated with a registration in it");
            let outcome = if self.nic.failing && rng.bool() { Err(Errno::EBUSY) } else { Ok(()) };
            self.domains.borrow_mut()[pd].handle_outcome(outcome).expect("ibv_dealloc_pd is under way");
        }
    }

    fn remove_device(&mut self) {
        self.removed = true;
        self.domains.borrow_mut().iter_mut().for_each(Domain::handle_removal);
        self.regions.iter_mut().for_each(|(region, _)| region.handle_removal());
    }

    fn check(&self) {
        for (region, _) in &self.regions {
            let keys: Vec<_> = self.nic.registered.values().map(|it| it.keys).collect();
            assert!(region.keys().is_none_or(|given| keys.contains(&given)), "keys that the NIC has not given");
            assert!(!self.removed || region.state() != MrState::Registered, "a region is usable without its device");
        }
    }

    fn step(&mut self, rng: &mut fastrand::Rng) {
        if self.regions.is_empty() || rng.u8(..8) == 0 {
            return self.register(rng);
        }
        let at = rng.usize(..self.regions.len());
        match rng.u8(..16) {
            0..=3 => self.reregister(at, rng),
            4 | 5 => self.deregister(at),
            6..=11 => drop(self.make_call(at, rng)),
            12 => self.regions[at].1 ^= true,
            13 => self.dealloc(rng.usize(..5), rng),
            14 if rng.u8(..20) == 0 => self.remove_device(),
            _ => self.regions.retain(|(region, _)| region.state() != MrState::Gone),
        }
    }

    /// Deregisters and deallocates everything; asserts that all memory comes back.
    fn come_to_rest(&mut self, rng: &mut fastrand::Rng) {
        self.nic.failing = false;
        for at in 0..self.regions.len() {
            self.regions[at].1 = false;
            for _ in 0..9 {
                while self.make_call(at, rng) {}
                self.deregister(at);
            }
            assert_eq!(self.regions[at].0.state(), MrState::Gone);
        }
        self.regions.clear();
        assert!(self.nic.registered.is_empty(), "the NIC has a registration left");
        assert_eq!(self.mine.len(), self.made as usize, "memory is lost");
        for pd in 0..5 {
            self.dealloc(pd, rng);
            let domain = &self.domains.borrow()[pd];
            assert_eq!((domain.state(), domain.users()), (PdState::Gone, 0));
        }
    }
}

fn run(rng: &mut fastrand::Rng) {
    let live = || {
        let mut domain = Domain::alloc();
        domain.handle_outcome(Ok(())).expect("ibv_alloc_pd is under way");
        domain
    };
    let mut program = Program {
        nic: Nic { failing: rng.u8(..4) != 0, ..Nic::default() },
        domains: Rc::new(RefCell::new((0..5).map(|_| live()).collect())),
        regions: Vec::new(),
        mine: BTreeSet::new(),
        made: 0,
        removed: false,
    };
    for _ in 0..rng.u16(10..200) {
        program.step(rng);
        program.check();
    }
    program.come_to_rest(rng);
}

#[test]
fn the_laws_hold_for_memory_regions() {
    let _ = crate::for_seeds(1000, run);
}
