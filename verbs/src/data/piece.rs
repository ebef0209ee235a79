//! The memory of blocks.

use core::fmt;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;
use core::slice;
use std::sync::Arc;

use cmid_proto::datapath::{self, MemoryRegion as _, Part, Pool, PostReason, Remote, Sge};
use cmid_proto::memory::{MemoryError, MemoryReason, MemoryRefused, MemoryRequest, MemoryTarget};
use smallvec::SmallVec;

use crate::data::{Access, Buffer, Mr, Pd};

/// The memory of a block: a part of an MR that only its pool uses.
///
/// # Memory safety
///
/// It gives references to registered memory, because nothing else accesses its bytes:
/// - the pieces of an MR do not overlap, and only they refer to the MR;
/// - peers have no right to write to the MR, and no window is bound to it;
/// - a work request that names the piece owns its block until the device and its provider can no longer access it, which
///   in_flight.rs defines.
///
/// A peer with [`Access::REMOTE_READ`] may read while the owner writes, and gets the bytes in no particular order.
pub struct Piece {
    start: NonNull<u8>,
    len: usize,
    /// The first byte, as an offset into the MR.
    offset: usize,
    mr: Arc<Mr>,
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
        pd: &Pd,
        buffer: Buffer,
        len: usize,
        access: Access,
    ) -> Result<Pool<Piece>, (Buffer, MemoryError)> {
        let refused = |reason| MemoryRefused { request: MemoryRequest::Register, target: MemoryTarget::Mr(None), reason };
        if access.intersects(PEERS_WRITE) {
            return Err((buffer, refused(MemoryReason::PeersWriteToPool).into()));
        }
        if len == 0 || buffer.len() < len {
            return Err((buffer, refused(MemoryReason::NoBlock).into()));
        }
        // With the right to write, which a read-only buffer does not get: owners of blocks write.
        let mr = Arc::new(Mr::register(pd, buffer, access.union(Access::LOCAL_WRITE))?);
        let offsets = (0..mr.len() / len).map(|block| block * len);
        Ok(Pool::of(offsets.map(|offset| Piece { start: mr.at(offset), len, offset, mr: Arc::clone(&mr) })))
    }
}

impl Deref for Piece {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the bytes are inside the buffer of the MR (`pool`), which is initialised, writable, and exists as long
        // as the MR, which is never re-registered. While `self` is borrowed nothing writes to them, as `Piece` says.
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
        self.mr.remote(self.offset.wrapping_add(offset))
    }
}

/// Returns the range of a part that was checked.
pub(super) fn sge(part: &Part<Piece>) -> Option<Sge<'_, Mr>> {
    let (piece, range) = (part.block().piece()?, part.range());
    Some(Sge { mr: &piece.mr, offset: piece.offset + range.start, len: range.end.checked_sub(range.start) })
}

/// The ranges of one request.
pub(super) type Sges<'a> = SmallVec<[Sge<'a, Mr>; 1]>;

/// Returns the ranges of parts that were checked.
pub(super) fn sges(parts: &[Part<Piece>]) -> Sges<'_> {
    parts.iter().filter_map(sge).collect()
}

/// Checks the parts of a request. The device writes to them if `writes`.
pub(super) fn check(parts: &[Part<Piece>], writes: bool) -> Result<(), PostReason> {
    parts.iter().try_for_each(|part| part.check(writes))
}

impl fmt::Debug for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Piece").field("offset", &self.offset).field("len", &self.len).finish_non_exhaustive()
    }
}
