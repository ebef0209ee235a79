//! Memory regions.

use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cmid_proto::datapath::{self, Flag, Length, MemoryRegion, OfPd, PostReason, Sge};
use cmid_proto::memory::{
    self, Access, Ended, Fallback, MemoryCall, MemoryError, MemoryFault, MemoryOutcome, MemoryRefused, MemoryRequest,
    MemoryTarget, MrState, Policy, Region, Returned, Traffic, Way,
};
use cmid_proto::{Errno, ErrorWith};

use crate::data::buffer::Buffer;
use crate::data::bytes::{Slice, SliceMut};
use crate::data::memory::Request;
use crate::data::pd::{Pd, PdUse};
use crate::data::space::{KeyedRange, Lent, Stretch};
use crate::fabric::Fabric;
use crate::fabric::shared::{Parked, Shared};
use crate::index::{DeviceNo, MrHandle, PdNo};
use crate::kernel::host::Removal;

/// The parameters of a re-registration, with domain handles.
pub type Change = memory::Change<Pd, Buffer>;

/// The state machine of one MR.
pub(crate) type Machine = Region<PdUse, Lent, MrHandle>;

/// The result of a re-registration.
pub type Reregistered = datapath::Reregistered<Buffer>;

/// A registered buffer. Its bytes are accessed by copies only, because a peer may write at any time.
#[derive(Debug)]
pub struct Mr {
    pub(crate) fabric: Fabric,
    own: Owned,
}

/// A region, and what its deregistration needs.
#[derive(Clone, Debug)]
pub(crate) struct Owned {
    pub(crate) device: DeviceNo,
    pub(super) removal: Removal,
    machine: Arc<Mutex<Machine>>,
}

impl Mr {
    pub(crate) fn register(pd: &Pd, buffer: Buffer, access: Access) -> Result<Mr, ErrorWith<Buffer, MemoryError>> {
        let (fabric, device) = (&pd.fabric, pd.device);
        fabric.shared().sweep();
        let pd = match pd.acquire() {
            Ok(pd) => pd,
            Err(refused) => return Err(ErrorWith::new(buffer, refused)),
        };
        let shared = fabric.shared();
        let weak = fabric.weak();
        // A registration on an earlier device fails.
        let removal = shared.with(|world| world.hosts.get(device.host.0).map(|host| host.removal.clone()));
        let mut machine = Machine::register(pd, buffer.lend(shared, &weak), access)
            .map_err(|failed| ErrorWith::new(Buffer::given_back(&failed.given, shared), failed.error))?;
        let ended = machine.run(|call| shared.make(device, &call));
        match ended {
            Ok(Some(Ended::Registered(_))) => {
                let own =
                    Owned { device, removal: removal.unwrap_or_default(), machine: Arc::new(Mutex::new(machine)) };
                Ok(Mr { fabric: fabric.clone(), own })
            }
            Ok(Some(Ended::NotRegistered(errno, lent))) => {
                let buffer = Buffer::given_back(&lent, shared);
                let limit = shared.with(|world| world.config.lock_limit);
                let error = MemoryError::register(errno, buffer.len(), limit);
                Err(ErrorWith::new(buffer, error))
            }
            Ok(_) => Err(ErrorWith::new(Buffer::from([]), impossible(MemoryRequest::Register, &machine))),
            Err(fault) => Err(ErrorWith::new(Buffer::from([]), fault)),
        }
    }

    /// Registers the same memory anew, which others may share. Returns false if it has the earlier registration.
    pub(super) fn renew(&mut self) -> bool {
        let Some(buffer) = self.machine().buffer().and_then(Buffer::again) else { return false };
        let policy = Policy { fallback: Fallback::Anew, ..Policy::default() };
        self.reregister(Change::default().to_buffer(buffer), policy).result == Ok(Way::Anew)
    }

    /// Returns a part of it for a work request of a queue of this domain, which needs these rights.
    pub(crate) fn keyed_range(
        &self,
        fabric: &Fabric,
        pd: PdNo,
        sge: &Sge<'_, Mr>,
        needs: Access,
    ) -> Result<KeyedRange, PostReason> {
        let machine = self.machine();
        let (own, access) = machine.pd().zip(machine.access()).ok_or(PostReason::NotRegistered)?;
        if !self.fabric.is(fabric) || own.no != pd {
            return Err(PostReason::OtherPd(OfPd::Mr));
        }
        match needs.difference(access) {
            Access::LOCAL_WRITE if needs == Access::LOCAL_WRITE => return Err(PostReason::ReadOnly),
            missing if missing.is_empty() => {}
            missing => return Err(PostReason::LacksRight(missing)),
        }
        let len = sge.len.ok_or(PostReason::ReversedRange)?;
        let whole = stretch_of(&machine);
        let part = whole.part(sge.offset, len).ok_or(PostReason::OutOfRange { len: Length::new(whole.len) })?;
        Ok(KeyedRange { addr: part.addr, key: machine.keys().map_or(0, |keys| keys.lkey), len: part.len })
    }

    pub(crate) fn part(&self, offset: usize, len: usize) -> Result<Stretch, Errno> {
        self.stretch().part(offset, len).ok_or(Errno::EINVAL)
    }

    /// Whether its registration is on this domain.
    pub(super) fn is_on(&self, pd: PdNo) -> bool {
        self.machine().pd().is_some_and(|own| own.no == pd)
    }

    pub(super) fn stretch(&self) -> Stretch {
        stretch_of(&self.machine())
    }

    pub(crate) fn machine(&self) -> MutexGuard<'_, Machine> {
        self.own.machine()
    }
}

/// The memory of a region; empty if it is not registered.
fn stretch_of(machine: &Machine) -> Stretch {
    machine.buffer().map_or(Stretch { addr: 0, len: 0 }, Lent::stretch)
}

impl MemoryRegion for Mr {
    type Pd = Pd;
    type Buffer = Buffer;
    type Slice<'a> = Slice<'a>;
    type SliceMut<'a> = SliceMut<'a>;

    fn addr(&self) -> u64 {
        self.stretch().addr
    }

    fn len(&self) -> usize {
        self.stretch().len
    }

    fn lkey(&self) -> u32 {
        self.machine().keys().map_or(0, |keys| keys.lkey)
    }

    fn rkey(&self) -> u32 {
        self.machine().keys().map_or(0, |keys| keys.rkey)
    }

    fn state(&self) -> MrState {
        self.machine().state()
    }

    fn access(&self) -> Option<Access> {
        self.machine().access()
    }

    fn way(&self) -> Way {
        self.machine().way()
    }

    fn pd(&self) -> Option<Pd> {
        let machine = self.machine();
        machine.pd().map(|pd| Pd::another(&self.fabric, pd.device, pd.no))
    }

    fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), Errno> {
        let stretch = self.part(offset, into.len())?;
        self.fabric.with(|world| {
            into.copy_from_slice(world.memory.space.bytes(stretch).ok_or(Errno::EINVAL)?);
            Ok(())
        })
    }

    fn write(&mut self, offset: usize, from: &[u8]) -> Result<(), Errno> {
        self.copy_in(offset, from)
    }

    fn load_relaxed<F: Flag>(&self, offset: usize) -> Result<F, Errno> {
        self.load_acquire(offset)
    }

    fn load_acquire<F: Flag>(&self, offset: usize) -> Result<F, Errno> {
        let stretch = self.aligned(offset, F::LEN)?;
        self.fabric.with(|world| F::from_slice(world.memory.space.bytes(stretch)?)).ok_or(Errno::EINVAL)
    }

    fn store_release<F: Flag>(&mut self, offset: usize, number: F) -> Result<(), Errno> {
        let stretch = self.aligned(offset, F::LEN)?;
        self.fabric.with(|world| number.copy_to(world.memory.space.bytes_mut(stretch)?)).ok_or(Errno::EINVAL)
    }

    /// In the simulator the slice is a copy.
    fn slice(&mut self) -> Result<Slice<'_>, Errno> {
        let bytes = self.own_bytes(Access::lets_peers_write)?;
        Ok(Slice { bytes, region: PhantomData })
    }

    /// In the simulator the bytes become visible to peers when the slice is dropped; those of a forgotten slice are
    /// lost.
    fn slice_mut(&mut self) -> Result<SliceMut<'_>, Errno> {
        let (fabric, whole) = (self.fabric.clone(), self.part(0, self.len())?);
        Ok(SliceMut { fabric, whole, bytes: self.own_bytes(|_| true)?, region: PhantomData })
    }

    fn reregister(&mut self, change: Change, policy: Policy) -> Reregistered {
        let refused = |buffer, refused: MemoryRefused| Reregistered { result: Err(refused.into()), buffer };
        let shared = self.fabric.shared();
        shared.sweep();
        let change = match change.try_map_pd(Pd::acquire) {
            Ok(change) => change,
            Err(ErrorWith { given: change, error }) => return refused(change.buffer, error),
        };
        let weak = self.fabric.weak();
        let buffer = change.buffer.map(|buffer| buffer.lend(shared, &weak));
        let change = memory::Change { buffer, pd: change.pd, access: change.access };
        let mut machine = self.own.machine();
        let traffic = traffic(&machine, shared);
        if let Err(ErrorWith { given: change, error }) = machine.reregister(change, policy, traffic) {
            return refused(change.buffer.map(|lent| Buffer::given_back(&lent, shared)), error);
        }
        match machine.run(|call| shared.make(self.own.device, &call)) {
            Ok(Some(Ended::Reregistered(settled))) => Reregistered {
                result: settled.result.map_err(MemoryError::from),
                buffer: settled.buffer.map(|lent| Buffer::given_back(&lent, shared)),
            },
            Ok(_) => Reregistered { result: Err(impossible(MemoryRequest::Reregister, &machine).into()), buffer: None },
            Err(fault) => Reregistered { result: Err(fault.into()), buffer: None },
        }
    }

    fn deregister(self) -> Result<Returned<Buffer>, ErrorWith<Mr, MemoryError>> {
        self.fabric.shared().sweep();
        self.own.deregister(self.fabric.shared()).map_err(|error| ErrorWith::new(self, error))
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        self.fabric.shared().retire(self.own.clone());
    }
}

impl Owned {
    /// Locks the state machine. Reports a removal of the device to it first.
    fn machine(&self) -> MutexGuard<'_, Machine> {
        let mut machine = self.machine.lock().unwrap_or_else(PoisonError::into_inner);
        if self.removal.has_happened() {
            machine.handle_removal();
        }
        machine
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.machine().state() == MrState::Gone
    }

    pub(crate) fn deregister(&self, shared: &Shared) -> Result<Returned<Buffer>, MemoryError> {
        let mut machine = self.machine();
        let traffic = traffic(&machine, shared);
        machine.deregister(traffic)?;
        match machine.run(|call| shared.make(self.device, &call))? {
            Some(Ended::Deregistered(Returned { buffer, other })) => Ok(Returned {
                buffer: Buffer::given_back(&buffer, shared),
                other: other.map(|other| Buffer::given_back(&other, shared)),
            }),
            Some(Ended::NotDeregistered(failure)) => Err(failure.into()),
            _ => Err(impossible(MemoryRequest::Deregister, &machine).into()),
        }
    }
}

/// What uses the region, also after a removal of the device: work in flight, or a window.
pub(crate) fn traffic(machine: &Machine, shared: &Shared) -> Traffic {
    let Some((pd, key)) = machine.named().map(|(pd, keys)| (pd.no, keys.lkey)) else { return Traffic::Quiet };
    shared.with(|world| {
        if world.queues.pins(pd, key) {
            return Traffic::InFlight;
        }
        world.domains.bindings(pd).map_or(Traffic::Quiet, |bindings| bindings.traffic(key))
    })
}

/// The rights of the windows that may be bound to the region.
pub(super) fn bound(machine: &Machine, shared: &Shared) -> Option<Access> {
    let (pd, key) = machine.named().map(|(pd, keys)| (pd.no, keys.lkey))?;
    shared.with(|world| world.domains.bindings(pd)?.of(key))
}

/// Returns the fault for an outcome that does not match its request.
fn impossible(request: MemoryRequest, machine: &Machine) -> MemoryFault {
    MemoryFault { outcome: request, target: MemoryTarget::Mr(Some(machine.state())) }
}

impl Shared {
    /// Executes a call of a state machine.
    fn make(&self, device: DeviceNo, call: &MemoryCall<'_, PdUse, Lent, MrHandle>) -> MemoryOutcome<MrHandle> {
        self.with(|world| match call {
            MemoryCall::Register { pd, buffer, access } => {
                MemoryOutcome::Registered(world.ibv_reg_mr(device, pd.no, buffer.stretch(), *access))
            }
            MemoryCall::Reregister { handle, change } => {
                let request = Request {
                    flags: change.flags(),
                    pd: change.pd.as_ref().map(|pd| pd.no),
                    range: change.buffer.as_ref().map_or(Stretch { addr: 0, len: 0 }, Lent::stretch),
                    access: change.access.unwrap_or(Access::empty()),
                };
                MemoryOutcome::Reregistered(world.ibv_rereg_mr(device, **handle, &request))
            }
            MemoryCall::Deregister { handle } => {
                let pd = world.memory.peers_write_to(**handle);
                let ended = world.ibv_dereg_mr(device, **handle);
                pd.filter(|_| ended.is_ok()).into_iter().for_each(|pd| world.end_writes(pd));
                MemoryOutcome::Deregistered(ended)
            }
        })
    }
}

impl Parked for Owned {
    /// Tries to deregister. True if no further attempt is needed: the region is deregistered, or its device is
    /// removed and refuses. In the latter case its memory stays in the fabric. Work in flight and bound windows are
    /// temporary obstacles.
    fn try_end(&self, shared: &Shared) -> bool {
        if self.is_gone() {
            return true;
        }
        let Err(error) = self.deregister(shared) else { return true };
        let passes = matches!(error.errno(), Errno::EBUSY | Errno::EINVAL);
        !passes && self.removal.has_happened()
    }
}
