//! The memory of blocks.

use core::fmt;
use core::ops::{Deref, DerefMut, Range};
use core::ptr::NonNull;
use core::slice;
use std::sync::Arc;

use cmid_proto::datapath::{self, MESSAGE_MAX, Memory as _, MemoryRegion as _, OfPd, Pool, PostReason, Remote};
use cmid_proto::memory::{MemoryError, MemoryReason, MemoryRefused};
use cmid_proto::{Errno, ErrorWith};

use crate::data::{Access, Buffer, Mr, Pd};
use crate::ffi::ibv_sge;
use crate::process::Process;

/// The memory of a block: a part of a buffer that only its pool uses, with a registration on each PD of the pool.
///
/// # Memory safety
///
/// It gives references to registered memory, because nothing else accesses its bytes:
/// - the pieces of a buffer do not overlap, and only they refer to its registrations, which are never re-registered;
/// - peers have no right to write by the keys of the registrations. A window that lets them owns the block, until it is
///   certain that it is not bound ([`Bindings`](cmid_proto::memory::Bindings)). Soft-RoCE does not check the range of a
///   window, so a piece that a window can be bound to has registrations of its own;
/// - a work request that names the piece owns its block until the device and its provider can no longer access it, which
///   in_flight.rs defines.
///
/// Where soft-RoCE may still copy what has come by the key of a window that this side has ended, the registrations are made
/// anew, with other keys, before the block is its owner's again.
///
/// A peer with [`Access::REMOTE_READ`] may read while the owner writes, and gets the bytes in no particular order.
pub struct Piece {
    start: NonNull<u8>,
    len: usize,
    /// The first byte, as an offset into the MRs.
    offset: usize,
    /// The name of the first PD, and the key there.
    pd: usize,
    lkey: u32,
    /// One on each PD.
    mrs: Arc<[Mr]>,
}

// SAFETY: it owns its bytes alone, and `Mr` is Send and Sync.
unsafe impl Send for Piece {}
// SAFETY: a shared reference only reads its bytes.
unsafe impl Sync for Piece {}

/// The rights of peers to write.
const PEERS_WRITE: Access = Access::REMOTE_WRITE.union(Access::REMOTE_ATOMIC);

impl Piece {
    /// Registers a buffer in pieces.
    pub(super) fn pool(
        pds: &[&Pd],
        buffer: Buffer,
        len: usize,
        access: Access,
    ) -> Result<Pool<Piece>, ErrorWith<Buffer, MemoryError>> {
        let refused = |buffer, reason| ErrorWith::new(buffer, MemoryRefused::register(reason));
        if access.intersects(PEERS_WRITE) {
            return Err(refused(buffer, MemoryReason::PeersWriteToPool));
        }
        // Others could register the memory, with other rights.
        let buffer = buffer.unshared().map_err(|buffer| refused(buffer, MemoryReason::SharedPool))?;
        if len == 0 || len > MESSAGE_MAX || buffer.len() < len {
            return Err(refused(buffer, MemoryReason::NoBlock));
        }
        let (blocks, shared) = (buffer.len() / len, buffer.share());
        // With the right to write, which a read-only buffer does not get: owners of blocks write.
        let access = access.union(Access::LOCAL_WRITE);
        let register = |range: Range<usize>| -> Result<Arc<[Mr]>, MemoryError> {
            let mrs = pds.iter().map(|pd| Mr::register(pd, shared.part(range.clone()), access));
            mrs.map(|registered| Ok(registered?)).collect()
        };
        let pool = if access.contains(Access::MW_BIND) {
            let each = |block| Piece::of(&register(block * len..(block + 1) * len)?, 0, len);
            Pool::of(blocks, (0..blocks).map(each))
        } else {
            let of = |mrs| Pool::of(blocks, (0..blocks).map(|block| Piece::of(&mrs, block * len, len)));
            register(0..blocks * len).and_then(of)
        };
        pool.map_err(|error| ErrorWith::new(Buffer::from(shared).unshared().unwrap_or_else(|buffer| buffer), error))
    }

    /// Registers its memory anew, so that the device has ended all accesses by the earlier keys. Only a piece that a window can
    /// be bound to has registrations of its own. Returns false if it has the earlier ones.
    pub(super) fn renew(&mut self) -> bool {
        let Some(mrs) = Arc::get_mut(&mut self.mrs) else { return false };
        let is_anew = mrs.iter_mut().all(Mr::renew);
        self.lkey = self.mrs.first().map_or(self.lkey, |mr| mr.lkey());
        is_anew
    }

    /// Creates the piece of a range that no other piece has.
    fn of(mrs: &Arc<[Mr]>, offset: usize, len: usize) -> Result<Self, MemoryError> {
        let mr = mrs.first().ok_or(MemoryError::register(Errno::EINVAL, len, None))?;
        Ok(Piece { start: mr.at(offset), len, offset, pd: mr.source, lkey: mr.lkey(), mrs: Arc::clone(mrs) })
    }

    /// Returns a range inside it for a queue of a PD ([`PdUse::name`](crate::data::pd::PdUse::name)).
    pub(super) fn range(&self, range: Range<usize>, pd: usize) -> Result<ibv_sge, PostReason> {
        let lkey = if self.pd == pd { self.lkey } else { self.mr(pd)?.lkey() };
        let addr = self.start.as_ptr().expose_provenance() + range.start;
        Ok(ibv_sge { addr: addr as u64, length: (range.end - range.start) as u32, lkey })
    }

    /// Returns a range inside it as one of its MR on a PD.
    pub(super) fn of_mr(&self, range: Range<usize>, pd: usize) -> Result<(&Mr, Range<usize>), PostReason> {
        Ok((self.mr(pd)?, self.offset + range.start..self.offset + range.end))
    }

    #[cold]
    fn mr(&self, pd: usize) -> Result<&Mr, PostReason> {
        self.mrs.iter().find(|mr| mr.source == pd).ok_or(PostReason::OtherPd(OfPd::Mr))
    }
}

impl Deref for Piece {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the bytes are inside the buffer of the MRs (`pool`), which is initialised, writable, and exists as long
        // as they. While `self` is borrowed nothing writes to them, as `Piece` says.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Piece {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above. `self` is borrowed by `&mut`, and is the only piece of these bytes.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl datapath::Piece for Piece {
    fn remote(&self, offset: usize) -> Remote {
        let mr = self.mrs.first();
        mr.map_or(Remote { addr: 0, rkey: 0 }, |mr| mr.remote(self.offset.wrapping_add(offset)))
    }

    fn process() -> u32 {
        Process::current().map_or(0, Process::number)
    }
}

impl fmt::Debug for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Piece").field("offset", &self.offset).field("len", &self.len).finish_non_exhaustive()
    }
}
