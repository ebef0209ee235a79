//! The traits of the data path. The errors named here are those of every device; each device documents its own.

use alloc::vec::Vec;
use core::fmt;
use core::ops::{Deref, DerefMut, Range};
use std::os::fd::BorrowedFd;

use super::{Access, AsyncEvent, Caps, Completion, Flag, PostError, QpState, Remote, SendWr, Sge};
use crate::cq_room::CqRoom;
use crate::device::Pollable;
use crate::drive::Attaching;
use crate::errno::Errno;
use crate::event::AhAttr;
use crate::key::IdKey;
use crate::memory::{self, Change, MrState, PdState, Policy, Returned, Way};

/// A device with a data path. Dropping one of its objects destroys it, after the objects that depend on it.
pub trait DataPath: Pollable + Send {
    /// Protection domains.
    type Pd: ProtectionDomain<Mr = Self::Mr, Ah = Self::Ah, Mw = Self::Mw>;
    /// Memory regions.
    type Mr: MemoryRegion<Pd = Self::Pd>;
    /// Memory windows.
    type Mw: MemoryWindow;
    /// Completion queues.
    type Cq: CompletionQueue;
    /// Queue pairs.
    type Qp: QueuePair<Mr = Self::Mr, Mw = Self::Mw, Ah = Self::Ah>;
    /// Address handles.
    type Ah: Send + Sync;
    /// Handles of RDMA devices. Two are equal if they are of the same device.
    type Nic: Clone + PartialEq + Send + fmt::Debug;

    /// Asynchronous events of a device.
    type AsyncEvents: AsyncEventQueue;

    /// Returns the RDMA device of an id (`rdma_cm_id.verbs`). A server on a wildcard address uses it to select the PD
    /// and the MRs for a connection request. The handle keeps the device open.
    ///
    /// # Errors
    /// `ENOENT` for an unknown id. `ENODEV` while the id has no device: before it is bound to a specific address or
    /// ADDR_RESOLVED is read, and after the device is removed. Else the errno of the device.
    fn device_of(&mut self, id: IdKey) -> Result<Self::Nic, Errno>;

    /// Allocates a protection domain (ibv_alloc_pd(3)).
    ///
    /// # Errors
    /// `ENODEV` or `EIO` after the device is removed; `ENOMEM`.
    fn alloc_pd_on(&mut self, nic: &Self::Nic) -> Result<Self::Pd, Errno>;

    /// Creates a completion queue for at least `depth` completions, with its own non-blocking completion channel
    /// (ibv_create_cq(3)).
    ///
    /// # Errors
    /// As [`DataPath::alloc_pd_on`]. `EINVAL` for a depth of 0 or above the device's maximum; `EMFILE`.
    fn create_cq_on(&mut self, nic: &Self::Nic, depth: u32) -> Result<Self::Cq, Errno>;

    /// Returns the asynchronous events of a device, for one reader. Without a reader they are left in the kernel, which
    /// has no limit for them.
    ///
    /// # Errors
    /// `ENODEV` after the device is removed; the errno of making its descriptor non-blocking.
    fn async_events(&mut self, nic: &Self::Nic) -> Result<Self::AsyncEvents, Errno>;

    /// Allocates a protection domain on the device of an id.
    ///
    /// # Errors
    /// As [`DataPath::device_of`] and [`DataPath::alloc_pd_on`].
    fn alloc_pd(&mut self, id: IdKey) -> Result<Self::Pd, Errno> {
        let nic = self.device_of(id)?;
        self.alloc_pd_on(&nic)
    }

    /// Creates a completion queue on the device of an id.
    ///
    /// # Errors
    /// As [`DataPath::device_of`] and [`DataPath::create_cq_on`].
    fn create_cq(&mut self, id: IdKey, depth: u32) -> Result<Self::Cq, Errno> {
        let nic = self.device_of(id)?;
        self.create_cq_on(&nic, depth)
    }

    /// Creates a QP on an id (rdma_create_qp(3)), in the closure of [`Drive::attach_qp`](crate::Drive::attach_qp). The
    /// port space of the id decides whether it is a reliable connected QP or one for datagrams. The first changes its
    /// state with the connection. The second can send at once, and is attached to the multicast groups that the id
    /// joins.
    ///
    /// The id keeps the QP; the handle posts to it, on any thread.
    ///
    /// # Errors
    /// As [`DataPath::device_of`]. `EINVAL` if the id has a QP, if the PD or a CQ is of another device, if the device
    /// does not support `caps`, and if the connection has ended. `EOVERFLOW` if a CQ has no room for the completions
    /// of all work requests of `caps` in addition to those of its other QPs ([`CompletionQueue::room`]). `ENOMEM`.
    fn create_qp(
        &mut self,
        attaching: Attaching<'_>,
        pd: &Self::Pd,
        send_cq: &Self::Cq,
        recv_cq: &Self::Cq,
        caps: Caps,
    ) -> Result<Self::Qp, Errno>;

    /// Detaches the QP from an id (rdma_destroy_qp(3)). If the handle of the QP exists, the QP enters its error state
    /// and is destroyed with the handle. Otherwise it is destroyed now.
    ///
    /// Poll its CQs first: its remaining completions are lost with the QP. Until the CQs are polled empty after that,
    /// its work requests pin their memory.
    ///
    /// # Errors
    /// `ENOENT` for an unknown id, `EINVAL` if it has no QP.
    fn destroy_qp(&mut self, id: IdKey) -> Result<(), Errno>;
}

/// A protection domain. Clones are handles of the same PD. It is deallocated with its last handle and its last user.
pub trait ProtectionDomain: Clone + Send + Sync {
    /// Memory regions.
    type Mr: MemoryRegion<Pd = Self>;
    /// Memory windows.
    type Mw: MemoryWindow;
    /// Address handles.
    type Ah;

    /// Registers a buffer (ibv_reg_mr(3)). The MR owns the buffer until [`MemoryRegion::deregister`]. The call takes as
    /// long as pinning the pages takes. Any thread can make it.
    ///
    /// # Errors
    /// Returns the buffer with the error. Refused without a device call: [`memory::RefuseReason::Empty`],
    /// [`memory::RefuseReason::RemoteWithoutLocalWrite`], [`memory::RefuseReason::Gone`] after
    /// [`ProtectionDomain::dealloc`], [`memory::RefuseReason::DeviceGone`] after DEVICE_REMOVAL.
    /// [`memory::Error::Register`] with the errno of the device: `ENOMEM` above the lock limit, `EFAULT` for memory
    /// that is not mapped, `EOPNOTSUPP` for a right that the device does not support, `EINVAL` for one that the kernel
    /// does not know.
    fn register(
        &self,
        buffer: impl Into<<Self::Mr as MemoryRegion>::Buffer>,
        access: Access,
    ) -> Result<Self::Mr, (<Self::Mr as MemoryRegion>::Buffer, memory::Error)>;

    /// Allocates a memory window of type 2, not bound (ibv_alloc_mw(3)).
    ///
    /// # Errors
    /// `ENOSYS` or `EOPNOTSUPP` without support of the device; `EINVAL` after [`ProtectionDomain::dealloc`]; `ENOMEM`;
    /// `EIO` after a removal of the device.
    fn alloc_mw(&self) -> Result<Self::Mw, Errno>;

    /// Creates an address handle for a path (ibv_create_ah(3)): that of an event
    /// ([`Datagram::path`](crate::Datagram::path)), or one of the application.
    ///
    /// # Errors
    /// `EINVAL` for a path that the device does not accept: a wrong port, a GID index that does not exist, on RoCE no
    /// global route; also after [`ProtectionDomain::dealloc`]. `ENOMEM`. `EIO` or `ENODEV` after a removal of the
    /// device.
    fn create_ah(&self, path: &AhAttr) -> Result<Self::Ah, Errno>;

    /// Creates an address handle for the sender of a datagram (ibv_create_ah_from_wc(3)). `completion` is that of the
    /// receive; the datagram is in `mr` at `offset`, in bytes, and begins with its GRH.
    ///
    /// On hardware it takes some system calls. Keep the handle for the next answer.
    ///
    /// # Errors
    /// As [`ProtectionDomain::create_ah`]. `EINVAL` if the GRH is not inside the MR, if no GID of the port is its
    /// destination, and for a datagram that was sent to a multicast group. `EPROTONOSUPPORT` without a GRH.
    fn create_ah_from(&self, completion: &Completion, mr: &Self::Mr, offset: usize) -> Result<Self::Ah, Errno>;

    /// Returns the number of MRs, QPs, address handles and memory windows that use it. An MR that was dropped counts
    /// until it is deregistered.
    fn users(&self) -> u32;

    /// Returns its state.
    fn state(&self) -> PdState;

    /// Deallocates it now (ibv_dealloc_pd(3)).
    ///
    /// # Errors
    /// [`memory::RefuseReason::InUse`] while it has users, [`memory::RefuseReason::Gone`] the second time;
    /// [`memory::Error::Dealloc`] with the errno of the device, after which it is unchanged.
    fn dealloc(&self) -> Result<(), memory::Error>;
}

/// Registered memory. It owns its buffer. Dropping it deregisters it and frees the buffer.
///
/// # Work requests pin it
///
/// From the time a work request that names it is posted until the completion is *polled*, or until the QP is destroyed
/// and its CQs are polled empty or dropped, [`MemoryRegion::reregister`] and [`MemoryRegion::deregister`] are refused
/// with [`memory::RefuseReason::InFlight`]. This holds also after a removal of the device. Inline data and empty
/// ranges do not pin it. A pinned MR that is dropped is deregistered later.
///
/// Peers and the device may write to it at any time, so its bytes are accessed by copies and atomics.
/// [`MemoryRegion::slice`] borrows it while nothing else can write.
#[expect(clippy::len_without_is_empty, reason = "it is never empty")]
pub trait MemoryRegion: Sized + Send + Sync {
    /// Protection domains.
    type Pd;
    /// Memory that can be registered.
    type Buffer: From<Vec<u8>>;
    /// What [`MemoryRegion::slice`] returns.
    type Slice<'a>: Deref<Target = [u8]>
    where
        Self: 'a;
    /// What [`MemoryRegion::slice_mut`] returns.
    type SliceMut<'a>: DerefMut<Target = [u8]>
    where
        Self: 'a;

    /// Returns the address that peers use for the first byte. A re-registration may change it.
    fn addr(&self) -> u64;

    /// Returns the length in bytes.
    fn len(&self) -> usize;

    /// Returns the key for work requests of this side; 0 if no registration is valid. A re-registration may change it.
    fn lkey(&self) -> u32;

    /// Returns the key for peers; 0 if no registration is valid. A re-registration may change it.
    fn rkey(&self) -> u32;

    /// Returns its state. A removal of the device shows after the next request.
    fn state(&self) -> MrState;

    /// Returns its access rights; `None` if no registration is valid.
    fn access(&self) -> Option<Access>;

    /// Returns how the current registration was made.
    fn way(&self) -> Way;

    /// Returns its PD; `None` if no registration is valid.
    fn pd(&self) -> Option<Self::Pd>;

    /// Copies bytes out of it, from `offset` on. Concurrent writes of the device give a mix of old and new bytes.
    ///
    /// # Errors
    /// `EINVAL` beyond the end.
    fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), Errno>;

    /// Copies bytes into it, from `offset` on.
    ///
    /// # Errors
    /// `EINVAL` beyond the end, `EACCES` for read-only memory.
    fn write(&mut self, offset: usize, from: &[u8]) -> Result<(), Errno>;

    /// Loads a number as a relaxed atomic.
    ///
    /// # Errors
    /// `EINVAL` beyond the end, or if its address is not a multiple of its length.
    fn load_relaxed<F: Flag>(&self, offset: usize) -> Result<F, Errno>;

    /// Loads a number that a peer writes, as an atomic. What the peer wrote before it is visible after it.
    ///
    /// # Errors
    /// As [`MemoryRegion::load_relaxed`].
    fn load_acquire<F: Flag>(&self, offset: usize) -> Result<F, Errno>;

    /// Stores a number that a peer reads, as an atomic, after everything that this thread wrote before.
    ///
    /// # Errors
    /// As [`MemoryRegion::load_relaxed`]; `EACCES` for read-only memory.
    fn store_release<F: Flag>(&mut self, offset: usize, number: F) -> Result<(), Errno>;

    /// Borrows the memory for reading, if only this program can write to it. The MR cannot be posted meanwhile.
    ///
    /// # Errors
    /// `EBUSY` while a work request in flight names it. `EACCES` if peers may write to it, directly or through a
    /// window ([`Access::lets_peers_write`]), also after a failed re-registration that would have permitted it; use
    /// [`MemoryRegion::view`] then. `EINVAL` if no registration is valid.
    fn slice(&mut self) -> Result<Self::Slice<'_>, Errno>;

    /// Borrows the memory for writing. A peer that may read it sees the bytes in no particular order.
    ///
    /// # Errors
    /// As [`MemoryRegion::slice`]; `EACCES` also for read-only memory.
    fn slice_mut(&mut self) -> Result<Self::SliceMut<'_>, Errno>;

    /// Re-registers it (ibv_rereg_mr(3)): changes the memory, the PD, the rights, or several of them.
    ///
    /// After a success the address, the length and the keys may differ: send them to the peers. mlx4, mlx5, hns and
    /// irdma support it; [`memory::Fallback::Anew`] is for other devices. It is not atomic: a concurrent operation of a
    /// peer may fail.
    ///
    /// # Errors
    /// In [`Reregistered::result`], with the buffer that the device does not use. Refused with
    /// [`memory::RefuseReason`] without a change, or [`memory::Error::Failed`] with the step that failed and the
    /// registration that is valid now. If none is, the MR can only be deregistered.
    fn reregister(&mut self, change: Change<Self::Pd, Self::Buffer>, policy: Policy) -> Reregistered<Self::Buffer>;

    /// Deregisters it and returns the buffer (ibv_dereg_mr(3)). It returns two buffers if a re-registration failed
    /// after which the device may use either.
    ///
    /// # Errors
    /// Returns the MR with the error; retry is possible. [`memory::RefuseReason::InFlight`], or
    /// [`memory::Error::Failed`] with the errno of the device: `EINVAL` while a memory window is bound to it, `EIO`
    /// after a removal of the device.
    fn deregister(self) -> Result<Returned<Self::Buffer>, (Self, memory::Error)>;

    /// Returns a range of it for a work request, in bytes.
    #[inline]
    fn sge(&self, range: Range<usize>) -> Sge<'_, Self> {
        Sge::new(self, range)
    }

    /// Returns what a peer needs to access the byte at `offset`.
    #[inline]
    fn remote(&self, offset: usize) -> Remote {
        Remote { addr: self.addr().wrapping_add(offset as u64), rkey: self.rkey() }
    }

    /// Returns a view of it as atomics, in place. It can be used while the device and peers write.
    #[inline]
    fn view(&self) -> View<'_, Self> {
        View(self)
    }
}

/// The result of a re-registration.
#[derive(Debug)]
#[must_use]
pub struct Reregistered<B> {
    /// The way it was done, or the error. After an error [`memory::Failure::valid`] is the registration that is valid.
    pub result: Result<Way, memory::Error>,
    /// The buffer that the device does not use: the old one if the new registration is valid; the new one after a
    /// refusal, or if the old registration is valid and the device has no record of the new one. `None` if the memory
    /// was not to change, and if the device may use either; the MR then keeps both until it is deregistered.
    pub buffer: Option<B>,
}

/// Registered memory as atomics, in place.
pub struct View<'a, M>(&'a M);

impl<M: MemoryRegion> View<'_, M> {
    /// Returns the length in bytes.
    #[must_use]
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns one byte, by a relaxed load; `None` beyond the end.
    #[must_use]
    #[inline]
    pub fn byte(&self, offset: usize) -> Option<u8> {
        let mut byte = [0];
        self.0.read(offset, &mut byte).ok()?;
        Some(byte[0])
    }

    /// Returns eight bytes in native byte order, by one relaxed load; `None` beyond the end, or if they are not
    /// aligned.
    #[must_use]
    #[inline]
    pub fn word(&self, offset: usize) -> Option<u64> {
        self.0.load_relaxed(offset).ok()
    }
}

impl<M> Clone for View<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for View<'_, M> {}

impl<M: MemoryRegion> fmt::Debug for View<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// A memory window of type 2: gives the peer of a QP access to a part of an MR, with its own rights and key.
/// [`QueuePair::post_bind`] binds it, [`QueuePair::post_invalidate`] unbinds it. Dropping it deallocates it, which also
/// unbinds it.
///
/// An MR with a bound window cannot be deregistered (`EINVAL`). The window keeps the QPs that it was bound through:
/// such a QP is in the error state after its end, and is destroyed after the window.
pub trait MemoryWindow: Sized + Send {
    /// Returns the key for peers. Every bind changes it.
    fn rkey(&self) -> u32;

    /// Deallocates it now (ibv_dealloc_mw(3)), bound or not.
    ///
    /// # Errors
    /// Returns the window with the errno of the device.
    fn dealloc(self) -> Result<(), (Self, Errno)>;
}

/// A completion queue with a completion channel. One thread at a time polls it.
pub trait CompletionQueue: Send {
    /// Takes completions, oldest first, as many as are available and fit, and returns their number (ibv_poll_cq(3)).
    /// Their work requests do not pin memory any more.
    ///
    /// Completions of a destroyed QP may be dropped.
    ///
    /// # Errors
    /// The errno of the device. Completions that came before are not lost.
    fn poll(&mut self, completions: &mut [Completion]) -> Result<usize, Errno>;

    /// Takes the oldest completion. For much traffic [`CompletionQueue::poll`] with a larger slice costs less.
    ///
    /// # Errors
    /// As [`CompletionQueue::poll`].
    #[inline]
    fn poll_one(&mut self) -> Result<Option<Completion>, Errno> {
        let mut one = [Completion::default()];
        let polled = self.poll(&mut one)?;
        let [completion] = one;
        Ok((polled == 1).then_some(completion))
    }

    /// Returns its number, by which an [`AsyncEvent`] names it.
    fn num(&self) -> u32;

    /// Returns its depth, and the number of work requests of the QPs that use it.
    fn room(&self) -> CqRoom;

    /// Requests one notification, at the next completion (ibv_req_notify_cq(3)). Poll once more after it: earlier
    /// completions do not notify.
    ///
    /// # Errors
    /// The errno of the device.
    fn arm(&self) -> Result<(), Errno>;

    /// Requests one notification, at the next solicited completion or failure.
    ///
    /// # Errors
    /// The errno of the device.
    fn arm_solicited(&self) -> Result<(), Errno>;

    /// Returns the descriptor of its completion channel: readable while there are notifications. It is non-blocking.
    fn fd(&self) -> BorrowedFd<'_>;

    /// Takes notifications and acks them, at least one if there is any, and returns their number (ibv_get_cq_event(3)).
    /// Never waits. The next call takes what is left.
    ///
    /// # Errors
    /// The errno of the device, never `EAGAIN`.
    fn take_notifications(&self) -> Result<u32, Errno>;
}

/// The asynchronous events of a device (`ibv_context.async_fd`), which no work request and no event channel reports.
///
/// An event is acknowledged when it is read, so it never delays the destruction of its object.
pub trait AsyncEventQueue: Send {
    /// Returns the descriptor: readable while there are events. It is non-blocking.
    fn fd(&self) -> BorrowedFd<'_>;

    /// Returns the next event (ibv_get_async_event(3)); `None` if there is none. Never waits.
    ///
    /// # Errors
    /// The errno of the device, `EIO` after its removal; never `EAGAIN`.
    fn next_event(&mut self) -> Result<Option<AsyncEvent>, Errno>;
}

/// The handle of a QP. One thread at a time posts to it.
///
/// The QP is destroyed when it is off its id and the handle is dropped. Each post checks its ranges: they are inside
/// their MRs, which are of the PD of the QP and have the right to be written to where the device or its library writes.
/// The device checks the rest.
pub trait QueuePair: Send {
    /// Memory regions.
    type Mr: MemoryRegion;
    /// Memory windows.
    type Mw;
    /// Address handles.
    type Ah;

    /// Returns its number.
    fn num(&self) -> u32;

    /// Returns its state (ibv_query_qp(3)). A system call on hardware.
    ///
    /// # Errors
    /// The errno of the device.
    fn state(&self) -> Result<QpState, Errno>;

    /// Returns its capacities as the provider has rounded them. Its queues accept no more work requests than were
    /// requested.
    fn caps(&self) -> Caps;

    /// Posts a request to the send queue (ibv_post_send(3)).
    ///
    /// Sends and writes of at most [`Caps::max_inline`] bytes are inlined.
    ///
    /// # Errors
    /// The request is not posted. `EINVAL` for a range beyond the end, an MR or an address handle of another PD, an MR
    /// without a valid registration, a target without [`Access::LOCAL_WRITE`], more ranges than the QP permits, a
    /// datagram on a connected QP or the reverse, and in a state of the QP that does not permit it. `ENOMEM` if the
    /// queue is full: of requests that are not complete, whose completions are not polled, or that are unsignaled.
    fn post_send<'a, L>(&mut self, request: SendWr<'a, L, Self::Ah>) -> Result<(), Errno>
    where
        L: AsRef<[Sge<'a, Self::Mr>]>,
        Self::Mr: 'a;

    /// Posts requests to the send queue in order, with one doorbell, and returns their number. If the iterator or a
    /// check fails, none is posted.
    ///
    /// The iterator runs while the provider holds the lock of the QP: it should only compute.
    ///
    /// # Errors
    /// As [`QueuePair::post_send`], with the number of requests that are posted all the same; `EINVAL` for an empty
    /// batch.
    fn post_sends<'a, L, I>(&mut self, requests: I) -> Result<usize, PostError>
    where
        I: IntoIterator<Item = SendWr<'a, L, Self::Ah>>,
        L: AsRef<[Sge<'a, Self::Mr>]>,
        Self::Mr: 'a,
        Self::Ah: 'a;

    /// Posts ranges to receive a message, or a datagram after its [`GRH_LEN`](super::GRH_LEN) bytes
    /// (ibv_post_recv(3)).
    ///
    /// # Errors
    /// As [`QueuePair::post_send`].
    fn post_recv<'a, L>(&mut self, wr_id: u64, sges: L) -> Result<(), Errno>
    where
        L: AsRef<[Sge<'a, Self::Mr>]>,
        Self::Mr: 'a;

    /// Posts receives in order, with one doorbell, and returns their number.
    ///
    /// # Errors
    /// As [`QueuePair::post_sends`].
    fn post_recvs<'a, L, I>(&mut self, requests: I) -> Result<usize, PostError>
    where
        I: IntoIterator<Item = (u64, L)>,
        L: AsRef<[Sge<'a, Self::Mr>]>,
        Self::Mr: 'a;

    /// Posts the bind of a window to a range of `mr`, for the peer of this QP (`IBV_WR_BIND_MW`). It is effective when
    /// the completion is polled. The MR needs [`Access::MW_BIND`], and [`Access::LOCAL_WRITE`] if `access` has a right
    /// to write. The key of the window changes. Invalidate a bound window first; else the completion is an error.
    ///
    /// # Errors
    /// As [`QueuePair::post_send`]; `EINVAL` also if window or MR are of another PD, or if the MR lacks a right.
    fn post_bind(
        &mut self,
        wr_id: u64,
        window: &mut Self::Mw,
        mr: &Self::Mr,
        range: Range<usize>,
        access: Access,
    ) -> Result<(), Errno>;

    /// Posts the invalidation of a window (`IBV_WR_LOCAL_INV`). When the completion is polled, the peer has no access.
    ///
    /// # Errors
    /// As [`QueuePair::post_send`]; `EINVAL` also unless the last bind of the window was posted to this QP and no
    /// invalidation since.
    fn post_invalidate(&mut self, wr_id: u64, window: &mut Self::Mw) -> Result<(), Errno>;
}
