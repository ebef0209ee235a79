//! Protection domains.

use core::ptr::NonNull;
use core::{fmt, iter};
use std::sync::Arc;

use cmid_proto::datapath::{AhAttr, Completion, CreateCall, CreateError, Pool, ProtectionDomain, SrqCaps};
use cmid_proto::memory::{
    self, Access, Bindings, Domain, MemoryError, MemoryReason, MemoryRefused, MemoryRequest, MemoryTarget, PdState,
};
use cmid_proto::{Errno, ErrorWith};
use parking_lot::{Mutex, MutexGuard};

use crate::accounting::in_flight::{InFlightSet, PdWork};
use crate::data::create_reasons::srq_error;
use crate::data::late_writers::LateWriters;
use crate::data::parked::{Parked, TryEnd};
use crate::data::vendor::Vendor;
use crate::data::{Ah, Buffer, Context, Mr, Mw, Piece, Srq};
use crate::ffi::{self, ibv_context, ibv_pd};
use crate::{errno, raw};

/// A handle of a protection domain. A QP can use memory of its own PD only. A handle is cheap to clone, and any thread
/// may use it.
///
/// Handles do not count as users of the PD; MRs, QPs, address handles and memory windows do.
#[doc(alias = "ibv_pd")]
#[derive(Clone)]
pub struct Pd(pub(crate) Arc<PdInner>);

/// A PD. [`ProtectionDomain::dealloc`] deallocates it, or else the drop of its last handle or user.
pub(crate) struct PdInner {
    /// Points at an `ibv_pd` while `domain` is not gone.
    raw: NonNull<ibv_pd>,
    /// The port of the id that it was allocated for.
    port_num: u8,
    domain: Mutex<Domain>,
    /// The work in flight on its QPs.
    in_flight: InFlightSet,
    parked: Parked<dyn TryEnd + Send>,
    /// The windows that may be bound to its MRs.
    bindings: Mutex<Bindings>,
    vendor: Vendor,
    has_atomics: bool,
    /// Its QPs, on soft-iWARP.
    late_writers: Option<LateWriters>,
    // Dropped after the PD.
    context: Arc<Context>,
}

/// One user of a PD: an MR, a QP, an address handle, a memory window. As long as there is one, the PD is allocated.
pub(crate) struct PdUse(Arc<PdInner>);

// SAFETY: libibverbs is thread-safe, and a PD is tied to no thread; the other fields are Send by themselves.
unsafe impl Send for PdInner {}
// SAFETY: libibverbs is thread-safe, and this crate never writes to the ibv_pd; the other fields are Sync by
// themselves.
unsafe impl Sync for PdInner {}

impl Pd {
    pub(crate) fn alloc(context: Arc<Context>, port_num: u8) -> Result<Self, Errno> {
        let attrs = context.query()?;
        let (vendor, has_atomics) = (Vendor(attrs.vendor_id), attrs.atomic_cap != 0);
        let late_writers = vendor.is_siw().then(LateWriters::default);
        let mut domain = Domain::alloc();
        // SAFETY: the context is open.
        let raw = errno::of_new(|| unsafe { ffi::ibv_alloc_pd(context.as_ptr()) })?;
        domain.handle_outcome(Ok(())).map_err(|_| Errno::EIO)?;
        let (domain, in_flight, parked) = (Mutex::new(domain), InFlightSet::new(), Parked::new());
        let bindings = Mutex::new(Bindings::new());
        Ok(Pd(Arc::new(PdInner {
            raw,
            port_num,
            domain,
            in_flight,
            parked,
            bindings,
            vendor,
            has_atomics,
            late_writers,
            context,
        })))
    }

    pub(crate) fn context(&self) -> &Context {
        &self.0.context
    }

    /// Adds a user: an object of the PD that is about to be created.
    ///
    /// # Errors
    /// Refused if the PD is being deallocated or is gone, if its device is gone, or in a forked child.
    pub(crate) fn enter(&self) -> Result<PdUse, MemoryRefused> {
        if self.0.is_inherited() {
            return Err(self.0.of_parent(MemoryRequest::Use));
        }
        self.0.domain().acquire()?;
        Ok(PdUse(Arc::clone(&self.0)))
    }
}

impl PdInner {
    pub(crate) fn port_num(&self) -> u8 {
        self.port_num
    }

    pub(super) fn vendor(&self) -> Vendor {
        self.vendor
    }

    /// Whether the device has atomic operations.
    pub(super) fn has_atomics(&self) -> bool {
        self.has_atomics
    }

    /// Returns its state machine.
    pub(crate) fn domain(&self) -> MutexGuard<'_, Domain> {
        let mut domain = self.domain.lock();
        if self.context.is_gone() {
            domain.handle_removal();
        }
        domain
    }

    pub(crate) fn dealloc(&self) -> Result<(), memory::MemoryError> {
        if self.is_inherited() {
            return Err(self.of_parent(MemoryRequest::Dealloc).into());
        }
        self.domain().dealloc()?;
        // SAFETY: allocated by ibv_alloc_pd and not yet deallocated: the domain has just permitted this call, which it
        // does once, or again after a failure. It has no users, so no object of this crate is on it. It refuses new
        // users meanwhile.
        let outcome = errno::of_call(|| unsafe { ffi::ibv_dealloc_pd(self.raw.as_ptr()) });
        self.domain().handle_outcome(outcome)?;
        outcome.map_err(memory::MemoryError::Dealloc)
    }

    /// The windows that may be bound to its MRs.
    pub(crate) fn bindings(&self) -> MutexGuard<'_, Bindings> {
        self.bindings.lock()
    }

    /// The refusal of a request in a forked child.
    #[cold]
    fn of_parent(&self, request: MemoryRequest) -> MemoryRefused {
        // Another thread of the parent may have had the lock.
        let target = MemoryTarget::Pd(self.domain.try_lock().map_or(PdState::Live, |domain| domain.state()));
        MemoryRefused { request, target, reason: MemoryReason::OtherProcess }
    }

    /// Its QPs whose peers may write to memory that is deregistered, until [`LateWriters::end_writes`].
    pub(super) fn late_writers(&self) -> Option<&LateWriters> {
        self.late_writers.as_ref()
    }

    /// Registrations and windows without an owner.
    pub(crate) fn parked(&self) -> &Parked<dyn TryEnd + Send> {
        &self.parked
    }

    /// Ends those that can be ended now, but none in a forked child, where another thread of the parent may have had the lock.
    pub(crate) fn retry(&self) {
        if !self.is_inherited() {
            self.parked.retry();
        }
    }

    /// Whether it was allocated in another process, before a fork.
    pub(crate) fn is_inherited(&self) -> bool {
        self.context.is_inherited()
    }

    /// Called when an id with a QP of it has reported that the device is gone. The device of the id may know another context,
    /// if it has adopted the id.
    pub(crate) fn set_gone(&self) {
        self.context.set_gone();
    }

    /// Whether its device has been removed.
    pub(crate) fn is_gone(&self) -> bool {
        self.context.is_gone()
    }
}

impl PdWork for PdInner {
    fn in_flight(&self) -> &InFlightSet {
        &self.in_flight
    }

    fn released(&self) {
        self.parked.released();
    }
}

impl PdUse {
    pub(crate) fn as_ptr(&self) -> *mut ibv_pd {
        self.0.raw.as_ptr()
    }

    pub(crate) fn pd(&self) -> Pd {
        Pd(Arc::clone(&self.0))
    }

    /// Whether both are uses of the same PD, and thus of the same device.
    pub(crate) fn is_of(&self, other: &PdUse) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns a number that identifies the PD while it has a user. It is not 0, and no other PD with a user has it.
    pub(crate) fn name(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    pub(crate) fn is_on(&self, verbs: NonNull<ibv_context>) -> bool {
        self.0.context.is(verbs)
    }

    pub(crate) fn inner(&self) -> &Arc<PdInner> {
        &self.0
    }
}

impl memory::Pd for PdUse {
    fn same_device(&self, other: &Self) -> bool {
        self.is_on(other.0.context.verbs())
    }

    fn copies_late(&self) -> bool {
        self.0.vendor.is_rxe()
    }
}

impl Clone for PdUse {
    fn clone(&self) -> Self {
        self.0.domain().share();
        PdUse(Arc::clone(&self.0))
    }
}

impl Drop for PdUse {
    fn drop(&mut self) {
        if self.0.is_inherited() {
            return;
        }
        self.0.domain().release();
    }
}

impl Drop for Pd {
    fn drop(&mut self) {
        // Retries deregistrations that failed for a passing reason. This may be the last opportunity.
        self.0.retry();
    }
}

impl Drop for PdInner {
    fn drop(&mut self) {
        if self.is_inherited() {
            return;
        }
        // Every user holds it, so there is none. It may be deallocated already. If the kernel refuses, it is leaked.
        let _ = self.dealloc();
    }
}

impl Pd {
    /// Returns the `ibv_pd`; see [`raw`].
    ///
    /// # Safety
    /// The pointer is used only as long as `self` lives, and as [`raw`] says.
    #[must_use]
    pub unsafe fn raw_pd(&self) -> NonNull<raw::IbvPd> {
        self.0.raw.cast()
    }
}

impl fmt::Debug for Pd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let domain = self.0.domain();
        f.debug_struct("Pd").field("state", &domain.state()).field("users", &domain.users()).finish_non_exhaustive()
    }
}

impl ProtectionDomain for Pd {
    type Mr = Mr;
    type Mw = Mw;
    type Ah = Ah;
    type Srq = Srq;
    type Piece = Piece;

    /// # Errors
    /// `EACCES`, without a call to the device, for a right to write to memory of [`Buffer::from_raw_read_only`].
    /// `EFAULT` also for memory that is mapped read-only, if [`Access::LOCAL_WRITE`] is requested.
    fn register(&self, buffer: impl Into<Buffer>, access: Access) -> Result<Mr, ErrorWith<Buffer, MemoryError>> {
        self.0.retry();
        Mr::register(self, buffer.into(), access)
    }

    fn pool_with(
        &self,
        others: &[Self],
        buffer: impl Into<Buffer>,
        block_len: usize,
        access: Access,
    ) -> Result<Pool<Piece>, ErrorWith<Buffer, MemoryError>> {
        self.0.retry();
        let pds: Vec<_> = iter::once(self).chain(others).collect();
        Piece::pool(&pds, buffer.into(), block_len, access)
    }

    fn alloc_mw(&self) -> Result<Mw, CreateError> {
        self.0.retry();
        Mw::alloc(self).map_err(CreateCall::AllocMw.failed())
    }

    fn create_ah(&self, path: &AhAttr) -> Result<Ah, CreateError> {
        Ah::create(self, path).map_err(CreateCall::CreateAh.failed())
    }

    /// It searches the GIDs of a port for the address that the datagram was sent to. The port is that of the id for
    /// which the PD was allocated.
    ///
    /// For a datagram that was sent to a multicast group, the path of MULTICAST_JOIN leads back, with the sender's GID
    /// for the group's. Over IPv4 the sender's address is at byte 32 of the GRH.
    fn create_ah_from(&self, completion: &Completion, mr: &Mr, offset: usize) -> Result<Ah, CreateError> {
        Ah::create_from(self, completion, mr, offset).map_err(CreateCall::CreateAh.failed())
    }

    /// # Errors
    /// The maximum of receives is 1,048,576, or that of the device if it is less. `ENOMEM` also for more than 65,536 SRQs in a process.
    fn create_srq(&self, caps: SrqCaps) -> Result<Srq, CreateError> {
        Srq::create(self, caps).map_err(|errno| srq_error(self, caps, errno))
    }

    fn users(&self) -> u32 {
        self.0.domain().users()
    }

    fn state(&self) -> PdState {
        self.0.domain().state()
    }

    fn dealloc(&self) -> Result<(), MemoryError> {
        self.0.retry();
        self.0.dealloc()
    }
}
