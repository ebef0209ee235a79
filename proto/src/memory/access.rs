//! What may be done with registered memory.

use crate::memory::RefuseReason;

bitflags::bitflags! {
    /// What may be done with registered memory, besides being read by its own side (ibv_reg_mr(3), `enum
    /// ibv_access_flags`). None is legal.
    ///
    /// `IBV_ACCESS_ZERO_BASED` is not among them, because a region names its memory by address. Further bits are passed
    /// on; the kernel refuses those that it does not know.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Access: u32 {
        /// Receives and RDMA reads of this side may write to it.
        const LOCAL_WRITE = 1;
        /// Peers may write to it. Needs [`Access::LOCAL_WRITE`].
        const REMOTE_WRITE = 1 << 1;
        /// Peers may read it.
        const REMOTE_READ = 1 << 2;
        /// Peers may do atomic operations on it. Needs [`Access::LOCAL_WRITE`].
        const REMOTE_ATOMIC = 1 << 3;
        /// Memory windows may be bound to it.
        const MW_BIND = 1 << 4;
        /// Its pages are not pinned, but fetched when the device asks for them. Few devices can.
        const ON_DEMAND = 1 << 6;
        /// It consists of huge pages. Few devices look at it.
        const HUGETLB = 1 << 7;
        /// Peers may flush writes until they can be seen. Few devices can.
        const FLUSH_GLOBAL = 1 << 8;
        /// Peers may flush writes until they would survive a loss of power. Few devices can.
        const FLUSH_PERSISTENT = 1 << 9;
        /// The device may write in any order. Ignored where the kernel or the device does not know it.
        const RELAXED_ORDERING = 1 << 20;
    }
}

impl Access {
    /// What a registration needs for a window with these rights to be bound to it (`rxe_check_bind_mw`, `mlx5_bind_mw`): a peer
    /// that writes through a window writes to memory that this side must be able to write to.
    #[must_use]
    pub const fn needed_to_bind(self) -> Access {
        let written = self.intersects(Access::REMOTE_WRITE.union(Access::REMOTE_ATOMIC));
        if written { Access::MW_BIND.union(Access::LOCAL_WRITE) } else { Access::MW_BIND }
    }

    /// Whether peers may write to memory with these rights, themselves or through a window.
    #[must_use]
    pub const fn lets_peers_write(self) -> bool {
        self.intersects(Access::REMOTE_WRITE.union(Access::REMOTE_ATOMIC))
            || self.contains(Access::REMOTE_WRITE.needed_to_bind())
    }

    /// The rule of `ib_check_mr_access`: what a peer may write, this side must be able to write.
    pub(crate) const fn check(self) -> Result<(), RefuseReason> {
        if self.intersects(Access::REMOTE_WRITE.union(Access::REMOTE_ATOMIC)) && !self.contains(Access::LOCAL_WRITE) {
            return Err(RefuseReason::RemoteWithoutLocalWrite);
        }
        Ok(())
    }
}
