//! The calls of a protection domain. Its type is in a file of its own, because the objects of a domain use it.

use std::iter;

use cmid_proto::ErrorWith;
use cmid_proto::datapath::{Access, AhAttr, Completion, CreateCall, CreateError, Pool, ProtectionDomain, SrqCaps};
use cmid_proto::memory::{MemoryError, PdState};

use crate::data::ah::Ah;
use crate::data::blocks::Piece;
use crate::data::buffer::Buffer;
use crate::data::mr::Mr;
use crate::data::mw::Mw;
use crate::data::pd::Pd;
use crate::data::shared_receive_queue::Srq;

impl ProtectionDomain for Pd {
    type Mr = Mr;
    type Mw = Mw;
    type Ah = Ah;
    type Srq = Srq;
    type Piece = Piece;

    /// # Errors
    /// `ENOMEM` beyond [`Config::lock_limit`](crate::Config::lock_limit).
    fn register(&self, buffer: impl Into<Buffer>, access: Access) -> Result<Mr, ErrorWith<Buffer, MemoryError>> {
        Mr::register(self, buffer.into(), access)
    }

    fn pool_with(
        &self,
        others: &[Self],
        buffer: impl Into<Buffer>,
        block_len: usize,
        access: Access,
    ) -> Result<Pool<Piece>, ErrorWith<Buffer, MemoryError>> {
        let pds: Vec<_> = iter::once(self).chain(others).collect();
        Piece::pool(&pds, buffer.into(), block_len, access)
    }

    fn alloc_mw(&self) -> Result<Mw, CreateError> {
        Mw::alloc(self).map_err(CreateCall::AllocMw.failed())
    }

    /// Does not check that the destination exists.
    fn create_ah(&self, path: &AhAttr) -> Result<Ah, CreateError> {
        Ah::create(self, path).map_err(CreateCall::CreateAh.failed())
    }

    fn create_ah_from(&self, completion: &Completion, mr: &Mr, offset: usize) -> Result<Ah, CreateError> {
        Ah::create_from(self, completion, mr, offset).map_err(CreateCall::CreateAh.failed())
    }

    fn create_srq(&self, caps: SrqCaps) -> Result<Srq, CreateError> {
        Srq::create(self, caps)
    }

    fn users(&self) -> u32 {
        self.fabric.with(|world| world.domains.live.get(&self.no).map_or(0, |held| held.domain.users()))
    }

    fn state(&self) -> PdState {
        self.fabric.with(|world| world.domains.live.get(&self.no).map_or(PdState::Gone, |held| held.domain.state()))
    }

    /// # Errors
    /// [`MemoryError::Dealloc`] with `EBUSY` if the device counts a user that this library does not, with `EIO` after the
    /// device is removed ([`Config::destroy_after_removal`](crate::Config::destroy_after_removal)).
    fn dealloc(&self) -> Result<(), MemoryError> {
        self.fabric.shared().sweep();
        self.fabric.with(|world| world.dealloc_pd(self.no))
    }
}
