//! The memory of blocks, and posts of blocks.
//!
//! A block owns its bytes. A post copies them to the registered memory of the pool, and the reclaim copies them back.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use cmid_proto::datapath::{
    self, Access, Lent, MemoryRegion as _, Part, Parts, Pool, PostReason, Remote, Returns, SendFlags, Sge,
};
use cmid_proto::memory::{MemoryError, MemoryReason, MemoryRefused, MemoryRequest, MemoryTarget};

use crate::data::mr::{Buffer, Mr};
use crate::data::pd::Pd;
use crate::fabric::shared::{Parked, Shared};
use crate::index::{QpNo, SrqNo};

/// The memory of a block.
#[derive(Debug)]
pub struct Piece {
    bytes: Box<[u8]>,
    /// The first byte, as an offset into the region.
    offset: usize,
    mr: Arc<Mr>,
}

impl Piece {
    /// Registers a buffer in pieces.
    pub(super) fn pool(
        pd: &Pd,
        buffer: Buffer,
        len: usize,
        access: Access,
    ) -> Result<Pool<Piece>, (Buffer, MemoryError)> {
        let refused = |reason| MemoryRefused { request: MemoryRequest::Register, target: MemoryTarget::Mr(None), reason };
        if access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC) {
            return Err((buffer, refused(MemoryReason::PeersWriteToPool).into()));
        }
        if len == 0 || buffer.len() < len {
            return Err((buffer, refused(MemoryReason::NoBlock).into()));
        }
        let blocks: Vec<Box<[u8]>> = buffer.chunks_exact(len).map(Box::from).collect();
        let mr = Arc::new(Mr::register(pd, buffer, access | Access::LOCAL_WRITE)?);
        let pieces = blocks.into_iter().zip(0..);
        Ok(Pool::of(pieces.map(|(bytes, block)| Piece { bytes, offset: block * len, mr: Arc::clone(&mr) })))
    }

    /// Makes the bytes those that the device reads.
    fn flush(&self) {
        // The range is inside the region.
        let _: Result<(), _> = self.mr.copy_in(self.offset, &self.bytes);
    }

    /// Takes the bytes that the device has written.
    fn load(&mut self) {
        let _: Result<(), _> = self.mr.copy_out(self.offset, &mut self.bytes);
    }
}

impl Deref for Piece {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for Piece {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl datapath::Piece for Piece {
    /// In the simulator a peer reads the bytes that the last request of the block has sent or received.
    fn remote(&self, offset: usize) -> Remote {
        self.mr.remote(self.offset.wrapping_add(offset))
    }
}

/// Returns the range of a part that was checked.
fn sge(part: &Part<Piece>) -> Option<Sge<'_, Mr>> {
    let (piece, range) = (part.block().piece()?, part.range());
    Some(Sge { mr: &piece.mr, offset: piece.offset + range.start, len: range.end.checked_sub(range.start) })
}

/// Returns the ranges of parts that were checked, after their bytes are flushed.
pub(super) fn sges(parts: &[Part<Piece>]) -> Vec<Sge<'_, Mr>> {
    parts.iter().filter_map(|part| part.block().piece()).for_each(Piece::flush);
    parts.iter().filter_map(sge).collect()
}

/// Checks the parts of a request. The device writes to them if `writes`.
pub(super) fn check(parts: &[Part<Piece>], writes: bool) -> Result<(), PostReason> {
    parts.iter().try_for_each(|part| part.check(writes))
}

/// Where the blocks of a request with these flags go.
pub(super) fn returns(flags: SendFlags) -> Returns {
    if flags.contains(SendFlags::SIGNALED) { Returns::ByCompletion } else { Returns::OnFailure }
}

/// Adds the blocks of the requests that are in a queue: `posted` by the device, and those after them, up to the number
/// `filed`, refused by it. `before` and `after` are the numbers of the queue's last request before and after the post.
pub(super) fn lend(
    lent: &mut Lent<Piece>,
    posted: usize,
    (before, after): (u64, u64),
    requests: impl IntoIterator<Item = (u64, Returns, Parts<Piece>)>,
) {
    for ((number, (wr_id, returns, parts)), at) in (before + 1..=after).zip(requests).zip(0..) {
        let returns = if at < posted { returns } else { Returns::ToPool };
        lent.lend(number, wr_id, returns, parts);
    }
}

/// Takes the bytes that the device has written.
pub(super) fn loaded(mut parts: Parts<Piece>) -> Parts<Piece> {
    let blocks = parts.as_mut_slice().iter_mut().filter_map(Part::block_mut);
    blocks.filter_map(|block| block.piece_mut()).for_each(Piece::load);
    parts
}

/// The blocks that the requests of a queue have whose handle is dropped.
#[derive(Debug)]
pub(super) struct LeftBlocks {
    pub(super) queue: LeftQueue,
    pub(super) _blocks: [Lent<Piece>; 2],
}

/// A queue whose handle is dropped.
#[derive(Clone, Copy, Debug)]
pub(super) enum LeftQueue {
    Qp(QpNo),
    Srq(SrqNo),
}

impl Parked for LeftBlocks {
    fn try_end(&self, shared: &Shared) -> bool {
        shared.with(|world| match self.queue {
            LeftQueue::Qp(qp) => !world.queues.may_complete(qp),
            LeftQueue::Srq(srq) => !world.queues.may_complete_of_srq(srq),
        })
    }
}
