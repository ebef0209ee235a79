//! A region of `cmid_proto::memory`, and its calls.

use core::ptr::{self, NonNull};
use std::sync::Arc;

use cmid_proto::memory::{
    self, Code, Ended, Keys, MemoryCall, MemoryError, MemoryFailure, MemoryFault, MemoryOutcome, MemoryReason,
    MemoryRefused, MemoryRequest, MemoryStep, MemoryTarget, MrState, Policy, RegisterCause, Reply, Returned, Traffic,
    Valid, Way,
};
use cmid_proto::{Errno, ErrorWith, datapath};
use rustix::process::{Resource, getrlimit};

use crate::accounting::in_flight::PdWork as _;
use crate::data::buffer::Pinned;
use crate::data::parked::TryEnd;
use crate::data::pd::{PdInner, PdUse};
use crate::data::{Access, Buffer, Pd};
use crate::errno;
use crate::ffi::{self, ibv_mr};
use crate::sign::signed;

/// What a re-registration changes: memory, PD, rights.
pub type Change = memory::Change<Pd, Buffer>;

/// The result of a re-registration, with the buffers of this crate.
pub type Reregistered = datapath::Reregistered<Buffer>;

/// The rights that let a device write to the memory.
const WRITES: Access = Access::LOCAL_WRITE.union(Access::REMOTE_WRITE).union(Access::REMOTE_ATOMIC);

/// libibverbs' handle of a registration, valid until `ibv_dereg_mr` succeeds. The region then drops it.
#[derive(Clone, Copy)]
struct Handle(NonNull<ibv_mr>);

// SAFETY: libibverbs is thread-safe, and a registration is tied to no thread.
unsafe impl Send for Handle {}
// SAFETY: a shared reference gives access to its address only; calls on it take the region by `&mut`.
unsafe impl Sync for Handle {}

/// One MR: its state machine, which owns the memory, and its calls.
///
/// Dropping it leaks its memory and the objects of libibverbs. [`Parked::end`](crate::data::parked::Parked::end)
/// deregisters it.
pub(crate) struct Registration {
    region: memory::Region<PdUse, Pinned, Handle>,
    /// The handle of the valid registration.
    handle: Option<Handle>,
    /// The PD of the valid registration, or of the last valid one.
    pd: Arc<PdInner>,
    /// Whether peers may have written to it. Only then does a request wait for them: the wait takes the lock of each QP of the
    /// PD, and soft-iWARP leaves bytes unread that arrive meanwhile (hazard P72).
    peers_write: bool,
    /// The PDs of soft-iWARP whose peers may still be writing by a registration that has ended. Each request waits for them.
    late: Vec<Arc<PdInner>>,
}

impl Registration {
    pub(crate) fn register(
        pd: &Pd,
        buffer: Buffer,
        access: Access,
    ) -> Result<Box<Self>, ErrorWith<Buffer, MemoryError>> {
        let pd = match pd.enter() {
            Ok(pd) => pd,
            Err(refused) => return Err(ErrorWith::new(buffer, refused)),
        };
        if !buffer.is_writable() && access.intersects(WRITES) {
            let error = MemoryError::Register { errno: Errno::EACCES, cause: Some(RegisterCause::ReadOnly) };
            return Err(ErrorWith::new(buffer, error));
        }
        let inner = Arc::clone(pd.inner());
        let region = memory::Region::register(pd, Pinned::new(buffer), access)
            .map_err(|refused| ErrorWith::new(refused.given.release(), refused.error))?;
        let peers_write = access.lets_peers_write();
        let mut this = Box::new(Registration { region, handle: None, pd: inner, peers_write, late: Vec::new() });
        match this.run(None) {
            Ok(Some(Ended::Registered(_))) => Ok(this),
            Ok(Some(Ended::NotRegistered(errno, buffer))) => {
                let error = MemoryError::register(errno, memory::Buffer::len(&buffer), lock_limit());
                Err(ErrorWith::new(buffer.release(), error))
            }
            // A defect of the state machine. The buffer is leaked, because its use is not known.
            other => Err(ErrorWith::new(Buffer::from(Vec::new()), this.strange(other, MemoryRequest::Register))),
        }
    }

    pub(crate) fn reregister(&mut self, change: Change, policy: Policy) -> Reregistered {
        if let Err(refused) = self.is_own(MemoryRequest::Reregister) {
            return Reregistered { result: Err(refused.into()), buffer: change.buffer };
        }
        self.look();
        let change = match change.try_map_pd(Pd::enter) {
            Ok(change) => change,
            Err(ErrorWith { given, error }) => return Reregistered { result: Err(error.into()), buffer: given.buffer },
        };
        if self.would_write(change.buffer.as_ref(), change.access) {
            let failure =
                MemoryFailure { step: MemoryStep::Reregister(Code::Input), errno: Errno::EACCES, valid: Valid::Old };
            return Reregistered { result: Err(failure.into()), buffer: change.buffer };
        }
        let moved = change.pd.as_ref().map(|pd| Arc::clone(pd.inner()));
        let change = memory::Change { buffer: change.buffer.map(Pinned::new), pd: change.pd, access: change.access };
        let peers_write = change.access.is_some_and(Access::lets_peers_write);
        if let Err(ErrorWith { given, error }) = self.region.reregister(change, policy, self.traffic()) {
            return Reregistered { result: Err(error.into()), buffer: given.buffer.map(Pinned::release) };
        }
        self.peers_write |= peers_write;
        match self.run(moved) {
            Ok(Some(Ended::Reregistered(settled))) => {
                let buffer = settled.buffer.map(Pinned::release);
                Reregistered { result: settled.result.map_err(MemoryError::from), buffer }
            }
            other => Reregistered { result: Err(self.strange(other, MemoryRequest::Reregister)), buffer: None },
        }
    }

    /// Deregisters it and returns the buffers.
    pub(crate) fn deregister(&mut self) -> Result<Returned<Buffer>, MemoryError> {
        self.is_own(MemoryRequest::Deregister)?;
        self.look();
        self.region.deregister(self.traffic())?;
        match self.run(None) {
            Ok(Some(Ended::Deregistered(returned))) => {
                Ok(Returned { buffer: returned.buffer.release(), other: returned.other.map(Pinned::release) })
            }
            Ok(Some(Ended::NotDeregistered(failure))) => Err(failure.into()),
            other => Err(self.strange(other, MemoryRequest::Deregister)),
        }
    }

    pub(crate) fn state(&self) -> MrState {
        self.region.state()
    }

    pub(crate) fn access(&self) -> Option<Access> {
        self.region.access()
    }

    pub(crate) fn way(&self) -> Way {
        self.region.way()
    }

    pub(crate) fn pd(&self) -> Option<&PdUse> {
        self.region.pd()
    }

    /// Returns its PD, also when it is unusable.
    pub(crate) fn owner(&self) -> &Arc<PdInner> {
        &self.pd
    }

    pub(crate) fn keys(&self) -> Option<Keys> {
        self.region.keys()
    }

    /// Returns the memory of the valid registration, or of the last valid one.
    pub(crate) fn memory(&self) -> Option<&Pinned> {
        self.region.buffer()
    }

    /// Returns the object of libibverbs for the valid registration.
    pub(crate) fn as_ptr(&self) -> Option<*mut ibv_mr> {
        self.region.keys().and(self.handle).map(|handle| handle.0.as_ptr())
    }

    /// Makes the calls of the region, which may move to the PD `moved`, and stores which handle is valid after them. Leaks
    /// memory that it would return and that a peer may still be writing to.
    fn run(&mut self, moved: Option<Arc<PdInner>>) -> Result<Option<Ended<Pinned>>, MemoryFault> {
        let (mut made, mut has_ended) = (None, false);
        let ended = self.region.run(|call| {
            let outcome = make(call);
            if let MemoryOutcome::Registered(Ok((handle, _))) = &outcome {
                made = Some(*handle);
            }
            has_ended |= matches!(outcome, MemoryOutcome::Deregistered(Ok(())));
            outcome
        });
        let waits = has_ended && self.peers_write;
        for pd in [Some(&self.pd), moved.as_ref()].into_iter().flatten().filter(|_| waits) {
            if !self.late.iter().any(|other| Arc::ptr_eq(other, pd)) {
                self.late.push(Arc::clone(pd));
            }
        }
        self.late.retain(|pd| pd.late_writers().is_some_and(|qps| qps.end_writes().is_err()));
        let ended = ended?;
        if let Some(Ended::Registered(_) | Ended::Reregistered(memory::Settled { result: Ok(_), .. })) = &ended {
            self.handle = made.or(self.handle);
        }
        if let Some(pd) = self.region.pd() {
            self.pd = Arc::clone(pd.inner());
        }
        // Without a release the memory is leaked.
        Ok(match ended {
            Some(Ended::Reregistered(settled)) if self.is_late() => {
                Some(Ended::Reregistered(memory::Settled { buffer: None, ..settled }))
            }
            Some(Ended::Deregistered(_)) if self.is_late() => None,
            ended => ended,
        })
    }

    /// Whether a peer of soft-iWARP may still be writing by a registration that has ended.
    fn is_late(&self) -> bool {
        !self.late.is_empty()
    }

    /// Refuses a request for an MR that was registered before a fork.
    fn is_own(&self, request: MemoryRequest) -> Result<(), MemoryRefused> {
        if self.pd.is_inherited() {
            let target = MemoryTarget::Mr(Some(self.region.state()));
            return Err(MemoryRefused { request, target, reason: MemoryReason::OtherProcess });
        }
        Ok(())
    }

    /// Reports a removal of the device to the region.
    fn look(&mut self) {
        if self.pd.is_gone() {
            self.region.handle_removal();
        }
    }

    /// What uses it, also after a removal of the device: work in flight, or a window. Only queues and windows of its PD
    /// can.
    pub(crate) fn traffic(&self) -> Traffic {
        match self.region.named() {
            Some((pd, keys)) if pd.inner().in_flight().name(keys.lkey) => Traffic::InFlight,
            Some((pd, keys)) => pd.inner().bindings().traffic(keys.lkey),
            None => Traffic::Quiet,
        }
    }

    /// The rights of the windows that may be bound to it; `None` if no window is.
    pub(crate) fn bound(&self) -> Option<Access> {
        let (pd, keys) = self.region.named()?;
        pd.inner().bindings().of(keys.lkey)
    }

    /// Whether peers may be able to write to it although its access does not include that right.
    pub(crate) fn is_exposed(&self) -> bool {
        self.region.is_exposed() || self.is_late()
    }

    /// Whether work that is in flight for ever names it.
    fn is_lost(&self) -> bool {
        self.region.named().is_some_and(|(pd, keys)| pd.inner().in_flight().leaked_name(keys.lkey))
    }

    /// Whether a change would let a device write to read-only memory.
    fn would_write(&self, buffer: Option<&Buffer>, access: Option<Access>) -> bool {
        let writable = buffer.map_or_else(|| self.memory().is_none_or(Pinned::is_writable), Buffer::is_writable);
        !writable && access.or(self.access()).is_some_and(|access| access.intersects(WRITES))
    }

    fn strange(&self, ended: Result<Option<Ended<Pinned>>, MemoryFault>, outcome: MemoryRequest) -> MemoryError {
        let fault = MemoryFault { outcome, target: MemoryTarget::Mr(Some(self.region.state())) };
        MemoryError::Fault(ended.err().unwrap_or(fault))
    }
}

impl TryEnd for Registration {
    /// Deregisters it after its owner was dropped.
    fn try_end(&mut self) -> bool {
        if self.state() == MrState::Gone {
            return true;
        }
        let Err(error) = self.deregister() else { return true };
        // Passing reasons: a window is bound to it, work in flight names it, or another object uses it. Another reason
        // is permanent once the device is gone: the memory is leaked. The use of the PD ends, so that librdmacm can
        // close the device.
        let passes = matches!(error.errno(), Errno::EINVAL | Errno::EBUSY) && !self.is_lost();
        !passes && self.pd.is_gone()
    }
}

/// Makes one call of a region.
fn make(call: MemoryCall<'_, PdUse, Pinned, Handle>) -> MemoryOutcome<Handle> {
    match call {
        MemoryCall::Register { pd, buffer, access } => MemoryOutcome::Registered(reg_mr(pd, buffer, access)),
        MemoryCall::Reregister { handle, change } => MemoryOutcome::Reregistered(rereg_mr(handle, change)),
        MemoryCall::Deregister { handle } => {
            // SAFETY: the registration is valid: a region requests this call once for each, or again after a failure.
            MemoryOutcome::Deregistered(errno::of_call(|| unsafe { ffi::ibv_dereg_mr(handle.0.as_ptr()) }))
        }
    }
}

/// The limit on memory that the process may lock, in bytes; `None` if there is none.
#[cold]
fn lock_limit() -> Option<u64> {
    getrlimit(Resource::Memlock).current
}

fn reg_mr(pd: &PdUse, buffer: &Pinned, access: Access) -> Result<(Handle, Keys), Errno> {
    let (start, len) = (buffer.start().as_ptr(), memory::Buffer::len(buffer));
    let iova = start.expose_provenance() as u64;
    // SAFETY: the PD is allocated, because it has a user. The memory belongs to the buffer, which is not freed before
    // the registration is gone. Not `ibv_reg_mr`, for the reason in ffi.rs.
    let register = || unsafe { ffi::ibv_reg_mr_iova2(pd.as_ptr(), start.cast(), len, iova, access.bits()) };
    let handle = Handle(errno::of_new(register)?);
    let keys = keys(&handle);
    Ok((handle, keys))
}

/// Calls `ibv_rereg_mr`. Arguments without a flag are null and 0, as the library requires.
fn rereg_mr(handle: &Handle, change: &memory::Change<PdUse, Pinned>) -> Reply {
    let pd = change.pd.as_ref().map_or(ptr::null_mut(), PdUse::as_ptr);
    let (start, len) = change.buffer.as_ref().map_or((ptr::null_mut(), 0), |buffer| {
        buffer.start().as_ptr().expose_provenance();
        (buffer.start().as_ptr(), memory::Buffer::len(buffer))
    });
    let access = change.access.unwrap_or(Access::empty());
    let (flags, access) = (signed(change.flags().bits()), signed(access.bits()));
    // errno decides which registration is valid. No known provider fails without setting it. It is cleared first, so
    // that the errno of an earlier call does not count.
    errno::clear();
    // SAFETY: the registration is valid, and no other code uses it now: its region is borrowed by `&mut`. PD and memory
    // are as in `reg_mr`; the PD is of the same device, which the region has checked. Both buffers, old and new, are
    // kept until it is known which one the device refers to.
    let code = unsafe { ffi::ibv_rereg_mr(handle.0.as_ptr(), flags, pd, start.cast(), len, access) };
    let errno = if code == 0 { Errno(0) } else { errno::last() };
    Reply { code, errno, keys: keys(handle) }
}

/// Returns the keys. Each successful re-registration may change them.
fn keys(handle: &Handle) -> Keys {
    // SAFETY: the registration is valid, and the library writes to it only in calls that take its region by `&mut`.
    let mr = unsafe { handle.0.as_ref() };
    Keys { lkey: mr.lkey, rkey: mr.rkey }
}
