//! The trait of a protection domain.

use super::{Access, Completion, CreateError, MemoryRegion, MemoryWindow, SharedReceiveQueue, SrqCaps};
#[cfg(feature = "std")]
use super::{Piece, Pool};
use crate::error_with::ErrorWith;
use crate::event::AhAttr;
use crate::memory::{self, PdState};

/// A protection domain. Clones are handles of the same PD. It is deallocated with its last handle and its last user.
#[doc(alias = "ibv_pd")]
pub trait ProtectionDomain: Clone + Send + Sync {
    /// Memory regions.
    type Mr: MemoryRegion<Pd = Self>;
    /// Memory windows.
    #[cfg(feature = "std")]
    type Mw: MemoryWindow<Piece = Self::Piece>;
    /// Memory windows.
    #[cfg(not(feature = "std"))]
    type Mw: MemoryWindow;
    /// Address handles.
    type Ah;
    /// Shared receive queues.
    #[cfg(feature = "std")]
    type Srq: SharedReceiveQueue<Mr = Self::Mr, Piece = Self::Piece>;
    /// Shared receive queues.
    #[cfg(not(feature = "std"))]
    type Srq: SharedReceiveQueue<Mr = Self::Mr>;
    /// The memory of blocks.
    #[cfg(feature = "std")]
    type Piece: Piece;

    /// Registers a buffer (ibv_reg_mr(3)). The MR owns the buffer until [`MemoryRegion::deregister`]. The call blocks
    /// while the kernel pins the pages. Any thread can make it.
    ///
    /// # Errors
    /// Returns the buffer with the error. Refused without a device call: [`memory::MemoryReason::Empty`],
    /// [`memory::MemoryReason::RemoteWithoutLocalWrite`], [`memory::MemoryReason::Gone`] after
    /// [`ProtectionDomain::dealloc`], [`memory::MemoryReason::DeviceGone`] after DEVICE_REMOVAL.
    /// [`memory::MemoryReason::UnknownRights`]. [`memory::MemoryError::Register`] with the errno of the device, and its cause:
    /// `ENOMEM` above the lock limit, `EFAULT` for memory that cannot be pinned, `EOPNOTSUPP` for a right that the device
    /// does not support, `EINVAL` for a right that the kernel does not have yet.
    #[doc(alias("ibv_reg_mr", "rdma_reg_msgs", "rdma_reg_read", "rdma_reg_write"))]
    fn register(
        &self,
        buffer: impl Into<<Self::Mr as MemoryRegion>::Buffer>,
        access: Access,
    ) -> Result<Self::Mr, ErrorWith<<Self::Mr as MemoryRegion>::Buffer, memory::MemoryError>>;

    /// Registers a buffer as a [`Pool`] of blocks of `block_len` bytes. Bytes after the last whole block are not used.
    /// The rights that peers may have are [`Access::REMOTE_READ`] of all blocks, and those of a window that is bound to a
    /// block ([`Access::MW_BIND`]; each block is then a registration).
    ///
    /// # Errors
    /// As [`ProtectionDomain::register`]. [`memory::MemoryReason::NoBlock`] if the buffer is shorter than a block or
    /// `block_len` is 0, [`memory::MemoryReason::PeersWriteToPool`] for a right of peers to write.
    #[cfg(feature = "std")]
    #[expect(clippy::type_complexity, reason = "as that of `register`")]
    fn pool(
        &self,
        buffer: impl Into<<Self::Mr as MemoryRegion>::Buffer>,
        block_len: usize,
        access: Access,
    ) -> Result<Pool<Self::Piece>, ErrorWith<<Self::Mr as MemoryRegion>::Buffer, memory::MemoryError>> {
        self.pool_with(&[], buffer, block_len, access)
    }

    /// As [`ProtectionDomain::pool`], with blocks that can be posted on queues of other PDs too, also of other devices:
    /// the memory has a registration on each.
    ///
    /// # Errors
    /// As [`ProtectionDomain::pool`].
    #[cfg(feature = "std")]
    #[expect(clippy::type_complexity, reason = "as that of `register`")]
    fn pool_with(
        &self,
        others: &[Self],
        buffer: impl Into<<Self::Mr as MemoryRegion>::Buffer>,
        block_len: usize,
        access: Access,
    ) -> Result<Pool<Self::Piece>, ErrorWith<<Self::Mr as MemoryRegion>::Buffer, memory::MemoryError>>;

    /// Allocates a memory window of type 2, not bound (ibv_alloc_mw(3)).
    ///
    /// # Errors
    /// `ENOSYS` or `EOPNOTSUPP` without support of the device; [`Pd`](super::CreateReason::Pd) after [`ProtectionDomain::dealloc`]; `ENOMEM`;
    /// `EIO` after a removal of the device.
    #[doc(alias = "ibv_alloc_mw")]
    fn alloc_mw(&self) -> Result<Self::Mw, CreateError>;

    /// Creates an address handle for a path (ibv_create_ah(3)), such as that of an event
    /// ([`Datagram::path`](crate::Datagram::path)).
    ///
    /// # Errors
    /// `EINVAL` for a path that the device does not accept (a wrong port, a GID index that does not exist, on RoCE a
    /// path without a global route); [`Pd`](super::CreateReason::Pd) after [`ProtectionDomain::dealloc`]. `ENOMEM`. `EIO` or `ENODEV` after a
    /// removal of the device.
    #[doc(alias = "ibv_create_ah")]
    fn create_ah(&self, path: &AhAttr) -> Result<Self::Ah, CreateError>;

    /// Creates an address handle for the sender of a datagram (ibv_create_ah_from_wc(3)). `completion` is that of the
    /// receive; the datagram is in `mr` at `offset`, in bytes, and begins with its GRH.
    ///
    /// On hardware this takes some system calls, so keep the handle for later answers.
    ///
    /// # Errors
    /// As [`ProtectionDomain::create_ah`]. `EINVAL` if the GRH is not inside the MR, if no GID of the port is its
    /// destination, and for a datagram that was sent to a multicast group. `EPROTONOSUPPORT` without a GRH.
    #[doc(alias("ibv_create_ah_from_wc", "ibv_init_ah_from_wc"))]
    fn create_ah_from(&self, completion: &Completion, mr: &Self::Mr, offset: usize) -> Result<Self::Ah, CreateError>;

    /// Creates a shared receive queue, with no limit armed (ibv_create_srq(3)).
    ///
    /// # Errors
    /// `ENOSYS` or `EOPNOTSUPP` without support of the device; [`CreateReason::Zero`](super::CreateReason::Zero) for
    /// `max_wr` 0, [`TooLarge`](super::CreateReason::TooLarge) with the capacity that is above the device's maximum,
    /// [`Pd`](super::CreateReason::Pd) after [`ProtectionDomain::dealloc`]; `ENOMEM`; `EIO` after a removal of the device.
    #[doc(alias("ibv_create_srq", "rdma_create_srq"))]
    fn create_srq(&self, caps: SrqCaps) -> Result<Self::Srq, CreateError>;

    /// Returns the number of MRs, QPs, address handles, memory windows and SRQs that use it. An MR that was dropped
    /// counts until it is deregistered.
    fn users(&self) -> u32;

    /// Returns its state.
    fn state(&self) -> PdState;

    /// Deallocates it now (ibv_dealloc_pd(3)).
    ///
    /// # Errors
    /// [`memory::MemoryReason::InUse`] while it has users, [`memory::MemoryReason::Gone`] the second time;
    /// [`memory::MemoryError::Dealloc`] with the errno of the device, after which it is unchanged.
    #[doc(alias = "ibv_dealloc_pd")]
    fn dealloc(&self) -> Result<(), memory::MemoryError>;
}
