//! The trait of registered memory.

use alloc::vec::Vec;
use core::ops::{Deref, DerefMut, Range};

use super::{Access, Flag, Remote, Sge};
#[cfg(feature = "std")]
use super::{Part, Piece};
use crate::errno::Errno;
use crate::error_with::ErrorWith;
use crate::memory::{self, Change, MrState, Policy, Returned, Way};

/// Registered memory. It owns its buffer. Dropping it deregisters it and frees the buffer.
///
/// # Work requests pin it
///
/// A work request pins the memory that it names from the post until its completion is *polled*, or until the QP is
/// destroyed and its CQs are polled empty or dropped. Meanwhile [`MemoryRegion::reregister`] and
/// [`MemoryRegion::deregister`] are refused with [`memory::MemoryReason::InFlight`]. This holds also after a removal of
/// the device. Inline data and empty ranges do not pin memory. A pinned MR that is dropped is deregistered later.
///
/// A memory window pins the MR from the post of its bind until the completion of its invalidation was polled, or the
/// window is deallocated: [`memory::MemoryReason::WindowBound`].
///
/// Peers and the device may write to it at any time, so its bytes are accessed by copies and atomics.
/// [`MemoryRegion::slice`] borrows it while nothing else can write.
///
/// # Example
///
/// ```
/// use cmid_proto::datapath::{Access, prelude::*};
/// # use cmid_proto::{Acks, Drive, Limits, PortSpace};
/// # use cmid_sim::{Config, Fabric};
/// # let fabric = Fabric::new(Config::default());
/// # let mut drive = Drive::new(fabric.host(&["10.0.0.1".parse()?]).device(), Limits::SINGLE);
/// # let channel = drive.open_channel(Acks::OnDelivery)?;
/// # let id = drive.create_id(Some(channel), PortSpace::Tcp)?;
/// # drive.bind(id, "10.0.0.1:7471".parse()?)?;
/// let pd = drive.device_mut().alloc_pd(id)?; // `id` is bound, or its address is resolved: it has a device
/// let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
/// let mut mr = pd.register(vec![0; 4096], rights)?;
///
/// mr.write(0, b"hello")?;
/// let mut bytes = [0; 5];
/// mr.read(0, &mut bytes)?;
/// assert_eq!(&bytes, b"hello");
/// assert_eq!(mr.read(4094, &mut bytes).unwrap_err().to_string(), "EINVAL");
///
/// // What a peer needs to write to it. A work request of this side names `mr.sge(0..5)`.
/// println!("address {:#x}, key {:#x}", mr.addr(), mr.rkey());
///
/// let returned = mr.deregister()?;
/// assert_eq!(returned.buffer.len(), 4096);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "ibv_mr")]
#[expect(clippy::len_without_is_empty, reason = "it is never empty")]
pub trait MemoryRegion: Sized + Send + Sync {
    /// Protection domains.
    type Pd;
    /// Memory that can be registered.
    type Buffer: Memory;
    /// The type that [`MemoryRegion::slice`] returns.
    type Slice<'a>: Deref<Target = [u8]>
    where
        Self: 'a;
    /// The type that [`MemoryRegion::slice_mut`] returns.
    type SliceMut<'a>: DerefMut<Target = [u8]>
    where
        Self: 'a;

    /// Returns the address that peers use for the first byte. A re-registration may change it.
    fn addr(&self) -> u64;

    /// Returns the length in bytes.
    fn len(&self) -> usize;

    /// Returns the key for work requests of this side; 0 if no registration is valid. A re-registration may change it.
    fn lkey(&self) -> u32;

    /// Returns the key for peers; 0 if no registration is valid, and on Linux 6.1 without a right of peers. A re-registration
    /// may change it.
    fn rkey(&self) -> u32;

    /// Returns its state. A removal of the device changes the state at the next request.
    fn state(&self) -> MrState;

    /// Returns its access rights; `None` if no registration is valid.
    fn access(&self) -> Option<Access>;

    /// Returns how the current registration was made.
    fn way(&self) -> Way;

    /// Returns its PD; `None` if no registration is valid.
    fn pd(&self) -> Option<Self::Pd>;

    /// Copies bytes out of it, from `offset` on. The result of concurrent writes of the device is a mix of old and new
    /// bytes.
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

    /// Loads a number that a peer writes, as an acquire atomic: data that the peer wrote before the number is visible
    /// afterwards.
    ///
    /// # Errors
    /// As [`MemoryRegion::load_relaxed`].
    fn load_acquire<F: Flag>(&self, offset: usize) -> Result<F, Errno>;

    /// Stores a number that a peer reads, as a release atomic: earlier writes of this thread are visible before the
    /// number.
    ///
    /// # Errors
    /// As [`MemoryRegion::load_relaxed`]; `EACCES` for read-only memory.
    fn store_release<F: Flag>(&mut self, offset: usize, number: F) -> Result<(), Errno>;

    /// Borrows the memory for reading, if only this program can write to it. During the borrow the MR cannot be posted.
    ///
    /// # Errors
    /// `EBUSY` while a work request in flight names it, a window is bound to it that lets peers write, or another
    /// registration shares its memory ([`Memory`]). `EACCES` if peers may write to it, directly or through a
    /// window ([`Access::lets_peers_write`]), also after a failed re-registration with such a right, and on soft-RoCE after
    /// one in place that has taken it away ([`Region::is_exposed`](crate::memory::Region::is_exposed)); use [`MemoryRegion::read`] then. `EINVAL` if no registration is valid.
    fn slice(&mut self) -> Result<Self::Slice<'_>, Errno>;

    /// Borrows the memory for writing. A peer that may read it sees the bytes in no particular order.
    ///
    /// # Errors
    /// As [`MemoryRegion::slice`]; `EBUSY` while any window is bound to it, `EACCES` also for read-only memory.
    fn slice_mut(&mut self) -> Result<Self::SliceMut<'_>, Errno>;

    /// Re-registers it (ibv_rereg_mr(3)): changes the memory, the PD or the rights, or several of these.
    ///
    /// After a success the address, the length and the keys may differ: send them to the peers. mlx4, mlx5, hns and
    /// irdma support it; [`memory::Fallback::Anew`] is for other devices. A re-registration is not atomic: a concurrent
    /// operation of a peer may fail.
    ///
    /// # Errors
    /// In [`Reregistered::result`], with the buffer that the device does not use: [`memory::MemoryError::Refused`], after
    /// which nothing has changed, or [`memory::MemoryError::Failed`] with the step that failed and the registration that is
    /// valid now. If none is valid, the MR can only be deregistered.
    #[doc(alias = "ibv_rereg_mr")]
    fn reregister(&mut self, change: Change<Self::Pd, Self::Buffer>, policy: Policy) -> Reregistered<Self::Buffer>;

    /// Deregisters it and returns the buffer (ibv_dereg_mr(3)). It returns two buffers if the device may use either
    /// after a failed re-registration.
    ///
    /// # Errors
    /// Returns the MR with the error; the call can be repeated. [`memory::MemoryReason::InFlight`],
    /// [`memory::MemoryReason::WindowBound`], or [`memory::MemoryError::Failed`] with the errno of the device: `EIO` after a
    /// removal of the device.
    #[doc(alias("ibv_dereg_mr", "rdma_dereg_mr"))]
    fn deregister(self) -> Result<Returned<Self::Buffer>, ErrorWith<Self, memory::MemoryError>>;

    /// Returns a range of it for a work request, in bytes.
    fn sge(&self, range: Range<usize>) -> Sge<'_, Self> {
        Sge::new(self, range)
    }

    /// Returns the address and the remote key of the byte at `offset`, for a peer.
    fn remote(&self, offset: usize) -> Remote {
        Remote { addr: self.addr().wrapping_add(offset as u64), rkey: self.rkey() }
    }
}

/// Memory that can be registered.
///
/// [`Memory::share`] makes it memory of several registrations: on several PDs, and on several devices. Each of them is
/// re-registered and deregistered by itself: a change of one neither moves nor frees the memory of another. The memory is
/// freed when the last registration and the last handle have let go. While it is shared, [`MemoryRegion::slice`] and
/// [`MemoryRegion::slice_mut`] return `EBUSY`: another registration may have work in flight.
pub trait Memory: memory::Buffer + From<Vec<u8>> + Send + Sync + 'static {
    /// A handle of memory that several registrations share. Each registration takes a clone.
    type Shared: Clone + Into<Self> + Send + Sync;

    /// Makes it memory of several registrations.
    fn share(self) -> Self::Shared;

    /// Returns the `Vec` that it was made from.
    ///
    /// # Errors
    /// Returns the memory if it is not that of a `Vec`, or if a registration or a handle shares it.
    fn into_vec(self) -> Result<Vec<u8>, Self>;
}

/// Returns memory of `count` times `len` bytes, all 0, to be registered. A size from an application or a peer may be one
/// that no process has: `vec!` ends the process then.
///
/// # Errors
/// [`memory::MemoryReason::NoMemory`].
pub fn zeros(count: usize, len: usize) -> Result<Vec<u8>, memory::MemoryError> {
    let (all, mut bytes) = (count.saturating_mul(len), Vec::new());
    bytes.try_reserve_exact(all).map_err(|_| memory::MemoryRefused::register(memory::MemoryReason::NoMemory(all)))?;
    bytes.resize(all, 0);
    Ok(bytes)
}

/// The result of a re-registration.
#[derive(Debug)]
#[must_use]
pub struct Reregistered<B> {
    /// The way of the re-registration, or its error. After [`memory::MemoryError::Failed`], [`memory::MemoryFailure::valid`] is the
    /// registration that is valid.
    pub result: Result<Way, memory::MemoryError>,
    /// The buffer that the device does not use: the old one if the new registration is valid; the new one after a
    /// refusal, or if the old registration is valid and the device has no record of the new one. `None` if the change
    /// has no buffer. Also `None` if the device may use either buffer; the MR then keeps both until it is deregistered.
    pub buffer: Option<B>,
}

/// A memory window of type 2: gives the peer of a QP access to a part of an MR, with its own rights and key.
/// [`post_bind`](super::QueuePair::post_bind) binds it, [`post_invalidate`](super::QueuePair::post_invalidate) unbinds
/// it. Dropping it deallocates it, which also unbinds it; it is deallocated later if a bind or an invalidation of it is in
/// flight, because the device knows the window by its key, which another one may have then.
///
/// An MR with a bound window cannot be deregistered or re-registered ([`memory::MemoryReason::WindowBound`]). The window keeps alive the QPs through which it was
/// bound: a QP that is detached and dropped enters its error state, and is destroyed after the window.
#[doc(alias = "ibv_mw")]
pub trait MemoryWindow: Sized + Send {
    /// The memory of blocks.
    #[cfg(feature = "std")]
    type Piece: Piece;

    /// Returns the key for peers. Every bind changes it.
    fn rkey(&self) -> u32;

    /// Deallocates it now (ibv_dealloc_mw(3)), bound or not. Returns the parts that it had, which no peer can access any more. If
    /// it is dropped, they return to their pools.
    ///
    /// # Errors
    /// Returns the window: with `EBUSY` while a bind or an invalidation of it is in flight, otherwise with the errno of the
    /// device.
    #[doc(alias = "ibv_dealloc_mw")]
    #[cfg(feature = "std")]
    fn dealloc(self) -> Result<alloc::vec::Vec<Part<Self::Piece>>, ErrorWith<Self, Errno>>;

    /// Returns a part that was bound ([`post_bind_block`](super::QueuePair::post_bind_block)) and certainly is not any more:
    /// the completion of its invalidation was polled, or the receive that tells that the peer has invalidated it; `None`
    /// if there is none.
    #[cfg(feature = "std")]
    fn reclaim(&mut self) -> Option<Part<Self::Piece>>;
}
