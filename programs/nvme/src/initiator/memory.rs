//! The memory of the initiator on a device: the protection domain of its connections, and the blocks that it hands out.

use cmid_mio::proto::IdKey;
use cmid_mio::proto::datapath::{Access, CreateError, DataPath, Pool, prelude::*};
use cmid_mio::proto::memory::MemoryError;

/// The memory on one device. Blocks outlive connections, so all connections on the device have its domain.
pub(super) struct Memory<D: DataPath> {
    nic: D::Nic,
    pub(super) pd: D::Pd,
    /// Made when a controller is live for the first time.
    pub(super) pool: Option<Pool<D::Piece>>,
    /// Whether blocks are lent on the present connections.
    pub(super) lends: bool,
}

impl<D: DataPath> Memory<D> {
    /// Returns the memory on the device of an id: that which is there, or anew. Blocks of another device are copied from then on.
    pub(super) fn on<'m>(memory: &'m mut Option<Self>, device: &mut D, id: IdKey) -> Result<&'m mut Self, CreateError> {
        let nic = device.device_of(id)?;
        let it = match memory.take().filter(|memory| memory.nic == nic) {
            Some(it) => it,
            None => Memory { pd: device.alloc_pd_on(&nic)?, nic, pool: None, lends: false },
        };
        Ok(memory.insert(it))
    }

    /// Makes `count` blocks of `len` bytes, if there are none. `lends` says whether windows are to be bound to them.
    pub(super) fn make_blocks(&mut self, count: usize, len: usize, lends: bool) -> Result<(), MemoryError> {
        self.lends = lends;
        if self.pool.is_none() && count > 0 {
            let access = if lends { Access::MW_BIND } else { Access::empty() };
            let bytes = vec![0; count.saturating_mul(len)];
            self.pool = Some(self.pd.pool(bytes, len, access)?);
        }
        Ok(())
    }
}
