//! The calls of a protection domain. Its type is in a file of its own, because the objects of a PD use it.

use core::iter;

use cmid_proto::ErrorWith;
use cmid_proto::datapath::{AhAttr, Completion, CreateCall, CreateError, Pool, ProtectionDomain, SrqCaps};
use cmid_proto::memory::{Access, MemoryError, PdState};

use crate::data::create_reasons::srq_error;
use crate::data::{Ah, Buffer, Mr, Mw, Pd, Piece, Srq};

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
