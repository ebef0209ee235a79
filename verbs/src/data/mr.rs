//! Registered memory.

use core::fmt;
use core::ptr::NonNull;
use std::sync::Arc;

use cmid_proto::datapath::{Flag, MESSAGE_MAX, MemoryRegion, Sge};
use cmid_proto::memory::{
    self, Buffer as _, Fallback, MemoryError, MemoryReason, MemoryRefused, MemoryRequest, MemoryTarget, MrState,
    Policy, Provider, Returned, Way,
};
use cmid_proto::{Errno, ErrorWith};

use crate::data::buffer::Pinned;
use crate::data::pd::PdUse;
use crate::data::registration::Registration;
use crate::data::{Access, Buffer, Change, Pd, Reregistered};
use crate::ffi::{ibv_mr, ibv_sge};
use crate::raw;

/// A memory region: memory that the device can access.
///
/// [`ProtectionDomain::register`] creates it. It owns its [`Buffer`]. Dropping it deregisters it and frees the buffer.
///
/// [`ProtectionDomain::register`]: cmid_proto::datapath::ProtectionDomain::register
/// [`ProtectionDomain::dealloc`]: cmid_proto::datapath::ProtectionDomain::dealloc
///
/// # Work in flight pins it
///
/// A work request pins each MR that it names, from the post until its completion is *polled*. Without a completion it
/// does so until the QP is destroyed and its CQs were then polled empty or dropped. Meanwhile [`Mr::reregister`] and
/// [`Mr::deregister`] are refused with [`memory::MemoryReason::InFlight`], also after a removal of the device. Both
/// search the work in flight on the QPs of the PD; an MR can be posted on those QPs only. Two ranges pin nothing:
/// - a range that is sent inline (up to [`Caps::max_inline`](crate::Caps::max_inline) bytes), because the post copies
///   it;
/// - an empty range.
///
/// Dropping a pinned MR does not wait and frees nothing. It is deregistered later: by the next
/// [`ProtectionDomain::register`], [`ProtectionDomain::dealloc`], re-registration or deregistration on the PD that
/// finds it unpinned, or by the drop of the QP or of a handle of the PD. The same applies to an MR that is dropped
/// while a memory window is bound to it, and to that window.
///
/// # Bound windows pin it too
///
/// A peer accesses the MR through a bound window by the rights of the window, whatever the MR's own rights are, and not
/// every provider refuses to deregister an MR with bound windows. So from the post of a bind until the window is
/// invalidated (and the completion is polled) or deallocated, [`Mr::reregister`] and [`Mr::deregister`] are refused with
/// [`memory::MemoryReason::WindowBound`], and [`Mr::slice_mut`] with `EBUSY`; [`Mr::slice`] too if the window lets peers
/// write ([`memory::Bindings`]). A bind whose post or completion has failed counts as long as the window exists.
///
/// # Memory safety
///
/// A device accesses memory by the key of a registration, within its range and rights. Its provider, which runs in
/// this process, does not use keys: `ibv_poll_cq` of mlx5 and hns copies up to 64 bytes of received or read data to the
/// address in the work request, even if the registration is gone.
///
/// 1. *Exclusive ownership.* The MR owns its memory. [`Mr::read`] and [`Mr::write`] access it by atomics, so a device
///    or provider may write at any time: the bytes of a copy are then unspecified, and every byte is a valid `u8`. Only
///    [`Mr::slice`] and [`Mr::slice_mut`] return references. They require that nothing is in flight and that no peer
///    may write. They borrow the MR, so this remains true.
/// 2. *Not freed too early.* The memory is freed or returned when no work request in flight names it (in_flight.rs),
///    and the device no longer refers to it: `ibv_dereg_mr` has succeeded, or a re-registration has replaced the
///    memory. The kernel has then withdrawn the key or range and the pinned pages from the device. A peer that still
///    uses the key gets an error completion. On soft-iWARP another call waits for what peers write (late_writers.rs).
/// 3. *Rights are checked here.* Memory without [`Access::LOCAL_WRITE`] cannot be the target of a receive or a read,
///    and a window cannot grant a right to write to it. A provider that copies does not check rights. A window keeps
///    its rights when the MR loses them, so the MR loses none while a window may be bound to it.
/// 4. *Uncertain memory is kept.* After a failed re-registration the device may refer to the old or the new memory.
///    Both are kept until `ibv_dereg_mr` has succeeded, unless it is certain that the device does not know the new one.
///    Likewise where soft-RoCE may still copy a packet whose right is gone ([`memory::Region::is_exposed`]).
/// 5. *Leaks are deliberate.* If `ibv_dereg_mr` fails at the drop, it is repeated as above. Memory is leaked if it
///    never succeeds, or fails after the device is gone. Memory that a leaked QP names is never freed.
/// 6. *A key that is used again is harmless.* If a peer uses a key that now belongs to another registration, it
///    accesses the memory of another `Mr`, to which 1 applies. If that `Mr` does not let peers write, the device
///    refuses a write.
///
/// The bytes that [`Mr::read`] returns while the device writes to the same place are unspecified: a mix of old and new.
/// Wait for the completion first, as in C, or for a flag that is written last ([`Mr::load_acquire`]).
///
/// An MR is `Send` and `Sync`: methods that store take `&mut self`.
///
/// # Forks
///
/// A child of a fork must not use it. Its drop in the child ends nothing and leaks the child's copy, as that of every
/// object of this crate; requests are refused ([`memory::MemoryReason::OtherProcess`]). This crate does not call `ibv_fork_init`. On kernels before 5.12 the child may
/// then get a registered page when the parent writes to it (ibv_fork_init(3)). In a program that calls it, a
/// re-registration can fail with `ERR_DONT_FORK_NEW` or `ERR_DO_FORK_OLD`. After the latter the new registration is
/// valid. After the former the counts of libibverbs are wrong (`ibv_madvise_range`): children may share later ones.
///
/// # What does not compile
///
/// Using it after it was deregistered:
///
/// ```compile_fail,E0382
/// # use cmid_verbs::{SendWr, Mr, Qp};
/// # use cmid_verbs::datapath::prelude::*;
/// fn reuse(mr: Mr, qp: &mut Qp) {
///     let returned = mr.deregister();
///     let _ = qp.post_send(SendWr::send(1, mr.sge(0..8)));
///     drop(returned);
/// }
/// ```
///
/// Posting it after another thread has taken it:
///
/// ```compile_fail,E0382
/// # use cmid_verbs::{Mr, Qp};
/// # use cmid_verbs::datapath::prelude::*;
/// fn both(mr: Mr, qp: &mut Qp) {
///     let slow = std::thread::spawn(move || mr.deregister().is_ok());
///     let _ = qp.post_recv(1, mr.sge(0..8));
///     let _ = slow.join();
/// }
/// ```
///
/// Re-registering it while it is borrowed, such as by a post on another thread:
///
/// ```compile_fail,E0502
/// # use cmid_verbs::{SendWr, Access, Change, Mr, Policy, Qp};
/// # use cmid_verbs::datapath::prelude::*;
/// fn shared(mut mr: Mr, qp: &mut Qp) {
///     std::thread::scope(|scope| {
///         scope.spawn(|| qp.post_send(SendWr::send(1, mr.sge(0..8))));
///         let _ = mr.reregister(Change::default().to_access(Access::empty()), Policy::default());
///     });
/// }
/// ```
///
/// Cloning it:
///
/// ```compile_fail,E0599
/// # use cmid_verbs::Mr;
/// fn twice(mr: Mr) -> (Mr, Mr) {
///     (mr.clone(), mr)
/// }
/// ```
///
/// Freeing registered memory: a registration takes the buffer.
///
/// ```compile_fail,E0382
/// # use cmid_verbs::{Access, Pd};
/// # use cmid_verbs::datapath::prelude::*;
/// fn free(pd: &Pd) {
///     let memory = vec![0; 4096];
///     let mr = pd.register(memory, Access::LOCAL_WRITE);
///     drop(memory);
///     drop(mr);
/// }
/// ```
///
/// Keeping a reference into registered memory:
///
/// ```compile_fail,E0505
/// # use cmid_verbs::{Access, Pd};
/// # use cmid_verbs::datapath::prelude::*;
/// fn keep(pd: &Pd) -> u8 {
///     let mut memory = vec![0; 4096];
///     let slice = &mut memory[..];
///     let mr = pd.register(memory, Access::LOCAL_WRITE);
///     slice[0] = 1;
///     mr.map(|mr| mr.len() as u8).unwrap_or(0)
/// }
/// ```
///
/// Posting it while a slice of it is borrowed:
///
/// ```compile_fail,E0502
/// # use cmid_verbs::{Mr, Qp};
/// # use cmid_verbs::datapath::prelude::*;
/// fn look(mr: &mut Mr, qp: &mut Qp) -> u8 {
///     let slice = mr.slice().unwrap();
///     let _ = qp.post_recv(1, mr.sge(0..8));
///     slice[0]
/// }
/// ```
///
/// Registering borrowed memory:
///
/// ```compile_fail,E0277
/// # use cmid_verbs::{Access, Pd};
/// # use cmid_verbs::datapath::prelude::*;
/// fn borrow(pd: &Pd, memory: &mut [u8]) {
///     drop(pd.register(memory, Access::LOCAL_WRITE));
/// }
/// ```
///
/// Polling a CQ on two threads at a time:
///
/// ```compile_fail,E0499
/// # use cmid_verbs::{Completion, Cq};
/// # use cmid_verbs::datapath::prelude::*;
/// fn race(cq: &mut Cq) {
///     std::thread::scope(|scope| {
///         scope.spawn(|| cq.poll(&mut [Completion::default()]));
///         scope.spawn(|| cq.poll(&mut [Completion::default()]));
///     });
/// }
/// ```
///
/// # A re-registration
///
/// ```no_run
/// # use cmid_verbs::{Access, Buffer, Change, Fallback, Mr, Policy, Provider, Qp};
/// # use cmid_verbs::datapath::prelude::*;
/// fn replace(mut mr: Mr, memory: Vec<u8>) -> (Mr, Option<Buffer>) {
///     let policy = Policy { fallback: Fallback::Anew, provider: Provider::Unknown };
///     let outcome = mr.reregister(Change::default().to_buffer(memory), policy);
///     match outcome.result {
///         Ok(way) => println!("{way:?}: the peers need address {:#x}, key {:#x}", mr.addr(), mr.rkey()),
///         Err(error) => println!("{error}"),
///     }
///     (mr, outcome.buffer)
/// }
/// # let _ = replace;
/// ```
#[doc(alias = "ibv_mr")]
pub struct Mr {
    /// This field and the next two describe the memory. They are copies, so that a post need not follow pointers.
    pub(super) start: NonNull<u8>,
    pub(super) len: usize,
    /// The name of the PD ([`PdUse::name`]): only its QPs may read from the MR. 0 if no registration is valid.
    pub(super) source: usize,
    /// The name of the PD: only its QPs may write into the MR. 0 also without [`Access::LOCAL_WRITE`].
    pub(super) target: usize,
    /// Whether this program may write to the memory.
    pub(super) writable: bool,
    /// Whether other registrations may use the memory too.
    pub(super) shared: bool,
    keys: memory::Keys,
    /// `None` only in a call that ends `self`.
    pub(super) registration: Option<Box<Registration>>,
}

// SAFETY: the object owns its memory and its registration; libibverbs ties neither to a thread.
unsafe impl Send for Mr {}
// SAFETY: through `&Mr` this program only reads: fields that do not change, and the memory by atomics.
unsafe impl Sync for Mr {}

impl Mr {
    pub(crate) fn register(pd: &Pd, buffer: Buffer, access: Access) -> Result<Self, ErrorWith<Buffer, MemoryError>> {
        let registration = Registration::register(pd, buffer, access)?;
        let mut mr = Mr {
            start: NonNull::dangling(),
            len: 0,
            source: 0,
            target: 0,
            writable: false,
            shared: false,
            keys: memory::Keys::default(),
            registration: Some(registration),
        };
        mr.refresh();
        Ok(mr)
    }

    /// Registers the same memory anew. It retries nothing, because it is part of a retry. False: it has the earlier registration.
    pub(super) fn renew(&mut self) -> bool {
        let Some(registration) = &mut self.registration else { return false };
        let Some(buffer) = registration.memory().and_then(Pinned::again) else { return false };
        let policy = Policy { fallback: Fallback::Anew, provider: Provider::Unknown };
        let renewed = registration.reregister(Change::default().to_buffer(buffer), policy);
        self.refresh();
        renewed.result == Ok(Way::Anew)
    }

    /// Creates an MR without memory and without a registration, with these names of its PD.
    #[cfg(test)]
    pub(super) fn scripted(len: usize, source: usize, target: usize) -> Self {
        let (start, keys) = (NonNull::dangling(), memory::Keys { lkey: 5, rkey: 5 });
        Mr { start, len, source, target, writable: false, shared: false, keys, registration: None }
    }

    /// Returns the address of the byte at `offset`, which is inside the buffer.
    pub(super) fn at(&self, offset: usize) -> NonNull<u8> {
        debug_assert!(offset < self.len);
        // The provenance is that of the buffer.
        NonNull::new(self.start.as_ptr().wrapping_add(offset)).unwrap_or(self.start)
    }

    /// Returns the object of libibverbs; `None` if the MR is unusable.
    pub(crate) fn as_ptr(&self) -> Option<*mut ibv_mr> {
        self.registration.as_ref()?.as_ptr()
    }

    /// Returns the scatter/gather element for a range of the MR. The registration of the MR must be valid. The element
    /// of an empty range has the length 0. `None` if the range is not inside the MR.
    pub(crate) fn ibv_sge(&self, sge: &Sge<'_, Mr>) -> Option<ibv_sge> {
        let len = sge.len?;
        // The offset is checked by itself, so the sum cannot overflow.
        if sge.offset > self.len || len > self.len - sge.offset || len > MESSAGE_MAX {
            return None;
        }
        Some(ibv_sge { addr: self.addr() + sge.offset as u64, length: len as u32, lkey: self.keys.lkey })
    }

    /// Copies the fields that a post needs.
    fn refresh(&mut self) {
        let Some(registration) = &self.registration else { return };
        if let Some(memory) = registration.memory() {
            (self.start, self.len, self.writable) = (memory.start(), memory.len(), memory.is_writable());
            self.shared = memory.shared().is_some();
        }
        self.keys = registration.keys().unwrap_or_default();
        self.source = registration.pd().map_or(0, PdUse::name);
        let writable = registration.access().is_some_and(|access| access.contains(Access::LOCAL_WRITE));
        self.target = if writable { self.source } else { 0 };
    }
}

impl MemoryRegion for Mr {
    type Pd = Pd;
    type Buffer = Buffer;
    type Slice<'a> = &'a [u8];
    type SliceMut<'a> = &'a mut [u8];

    fn addr(&self) -> u64 {
        self.start.as_ptr().addr() as u64
    }

    fn len(&self) -> usize {
        self.len
    }

    fn lkey(&self) -> u32 {
        self.keys.lkey
    }

    fn rkey(&self) -> u32 {
        self.keys.rkey
    }

    fn state(&self) -> MrState {
        self.registration.as_ref().map_or(MrState::Gone, |registration| registration.state())
    }

    fn access(&self) -> Option<Access> {
        self.registration.as_ref()?.access()
    }

    fn way(&self) -> Way {
        self.registration.as_ref().map_or(Way::Anew, |registration| registration.way())
    }

    fn pd(&self) -> Option<Pd> {
        self.registration.as_ref()?.pd().map(PdUse::pd)
    }

    /// Copies by relaxed atomic loads: aligned words, and single bytes at the ends. A loop that waits for a write of
    /// the device ends. To order reads after a flag of the peer use [`MemoryRegion::load_acquire`]; for large amounts
    /// of data use [`MemoryRegion::slice`].
    fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), Errno> {
        self.copy_out(offset, into)
    }

    /// Copies by relaxed atomic stores.
    ///
    /// # Errors
    /// `EACCES` for memory of [`Buffer::from_raw_read_only`].
    fn write(&mut self, offset: usize, from: &[u8]) -> Result<(), Errno> {
        self.copy_in(offset, from)
    }

    fn load_relaxed<F: Flag>(&self, offset: usize) -> Result<F, Errno> {
        self.load_number(offset)
    }

    fn load_acquire<F: Flag>(&self, offset: usize) -> Result<F, Errno> {
        self.load_number_acquire(offset)
    }

    fn store_release<F: Flag>(&mut self, offset: usize, number: F) -> Result<(), Errno> {
        self.store_number(offset, number)
    }

    /// Searches the work in flight on the QPs of its PD.
    fn slice(&mut self) -> Result<&[u8], Errno> {
        self.borrow_bytes()
    }

    /// # Errors
    /// As [`MemoryRegion::slice`]; `EACCES` also for memory of [`Buffer::from_raw_read_only`].
    fn slice_mut(&mut self) -> Result<&mut [u8], Errno> {
        self.borrow_bytes_mut()
    }

    /// With a wrong [`memory::Provider::ChecksFirst`] a lost MR may appear valid. Its memory is not returned even then.
    ///
    /// # Errors
    /// `ERR_INPUT` with `EACCES` for a right to write to memory of [`Buffer::from_raw_read_only`].
    fn reregister(&mut self, change: Change, policy: Policy) -> Reregistered {
        let Some(registration) = self.registration.as_mut() else {
            return Reregistered { result: Err(gone(MemoryRequest::Reregister)), buffer: change.buffer };
        };
        registration.owner().retry();
        let reregistered = registration.reregister(change, policy);
        self.refresh();
        reregistered
    }

    fn deregister(mut self) -> Result<Returned<Buffer>, ErrorWith<Mr, MemoryError>> {
        // First, because the owner of a buffer may panic.
        self.registration.iter().for_each(|registration| registration.owner().retry());
        let Some(mut registration) = self.registration.take() else {
            return Err(ErrorWith::new(self, gone(MemoryRequest::Deregister)));
        };
        registration.deregister().map_err(|error| {
            self.registration = Some(registration);
            self.refresh();
            ErrorWith::new(self, error)
        })
    }
}

/// The error of an MR without a registration. It is unreachable: only calls that end the MR take the registration out.
fn gone(request: MemoryRequest) -> MemoryError {
    MemoryRefused { request, target: MemoryTarget::Mr(Some(MrState::Gone)), reason: MemoryReason::Gone }.into()
}

impl Drop for Mr {
    fn drop(&mut self) {
        let Some(registration) = self.registration.take() else { return };
        let owner = Arc::clone(registration.owner());
        if owner.is_inherited() {
            core::mem::forget(registration);
        } else {
            owner.parked().end(registration);
        }
    }
}

impl Mr {
    /// Returns the `ibv_mr`; see [`raw`]. `None` if no registration is valid.
    ///
    /// # Safety
    /// The pointer is used only as long as `self` lives and is not re-registered, and as [`raw`] says.
    #[must_use]
    pub unsafe fn raw_mr(&self) -> Option<NonNull<raw::IbvMr>> {
        NonNull::new(self.as_ptr()?.cast())
    }
}

impl fmt::Debug for Mr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mr")
            .field("state", &self.state())
            .field("len", &self.len)
            .field("rkey", &self.rkey())
            .finish_non_exhaustive()
    }
}
