//! Access rights of registered memory.

use crate::memory::MemoryReason;

bitflags::bitflags! {
    /// Access rights of registered memory, besides local reads (ibv_reg_mr(3), `enum ibv_access_flags`). The empty
    /// set is legal.
    ///
    /// `IBV_ACCESS_ZERO_BASED` is not supported, because a region names its memory by address. A request with a bit that
    /// is not among these is refused ([`MemoryReason::UnknownRights`]): what the kernel makes of it depends on its version.
    #[doc(alias = "ibv_access_flags")]
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Access: u32 {
        /// Local receives and RDMA reads may write to the memory.
        #[doc(alias = "IBV_ACCESS_LOCAL_WRITE")]
        const LOCAL_WRITE = 1;
        /// Peers may write to the memory. Needs [`Access::LOCAL_WRITE`].
        #[doc(alias = "IBV_ACCESS_REMOTE_WRITE")]
        const REMOTE_WRITE = 1 << 1;
        /// Peers may read the memory.
        #[doc(alias = "IBV_ACCESS_REMOTE_READ")]
        const REMOTE_READ = 1 << 2;
        /// Peers may do atomic operations on the memory. Needs [`Access::LOCAL_WRITE`].
        #[doc(alias = "IBV_ACCESS_REMOTE_ATOMIC")]
        const REMOTE_ATOMIC = 1 << 3;
        /// Memory windows may be bound to the MR.
        #[doc(alias = "IBV_ACCESS_MW_BIND")]
        const MW_BIND = 1 << 4;
        /// The pages are not pinned; the device fetches them on demand. Few devices support it.
        #[doc(alias = "IBV_ACCESS_ON_DEMAND")]
        const ON_DEMAND = 1 << 6;
        /// The memory consists of huge pages. Few devices use this flag.
        #[doc(alias = "IBV_ACCESS_HUGETLB")]
        const HUGETLB = 1 << 7;
        /// Peers may flush writes until they are visible. Few devices support it.
        const FLUSH_GLOBAL = 1 << 8;
        /// Peers may flush writes until they are persistent. Few devices support it.
        const FLUSH_PERSISTENT = 1 << 9;
        /// The device may write in any order. Kernels and devices without support ignore this flag.
        #[doc(alias = "IBV_ACCESS_RELAXED_ORDERING")]
        const RELAXED_ORDERING = 1 << 20;
    }
}

impl Access {
    /// Returns the rights that an MR needs before a window with these rights can be bound to it (`rxe_check_bind_mw`,
    /// `mlx5_bind_mw`). Remote writes through a window need local write. `None` if the set has other bits than the three
    /// rights of a peer: those would pass unchecked from the provider to the device.
    #[must_use]
    pub const fn needed_to_bind(self) -> Option<Access> {
        let of_window = Access::REMOTE_READ.union(Access::REMOTE_WRITE).union(Access::REMOTE_ATOMIC);
        if !of_window.contains(self) {
            return None;
        }
        let written = self.intersects(Access::REMOTE_WRITE.union(Access::REMOTE_ATOMIC));
        Some(if written { Access::WRITABLE_BY_WINDOW } else { Access::MW_BIND })
    }

    const WRITABLE_BY_WINDOW: Access = Access::MW_BIND.union(Access::LOCAL_WRITE);

    /// Whether peers may write to memory with these rights, directly or through a window.
    #[must_use]
    pub const fn lets_peers_write(self) -> bool {
        self.intersects(Access::REMOTE_WRITE.union(Access::REMOTE_ATOMIC)) || self.contains(Access::WRITABLE_BY_WINDOW)
    }

    /// Refuses bits that have no name here, and by the rule of `ib_check_mr_access` remote write and remote atomic without
    /// local write.
    pub(crate) const fn check(self) -> Result<(), MemoryReason> {
        let unknown = self.difference(Access::all());
        if !unknown.is_empty() {
            return Err(MemoryReason::UnknownRights(unknown.bits()));
        }
        if self.intersects(Access::REMOTE_WRITE.union(Access::REMOTE_ATOMIC)) && !self.contains(Access::LOCAL_WRITE) {
            return Err(MemoryReason::RemoteWithoutLocalWrite);
        }
        Ok(())
    }
}
