//! The memory of blocks, and posts of blocks.
//!
//! A block owns its bytes. A post copies them to the registered memory of the pool, and the reclaim copies them back.

use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

use cmid_proto::ErrorWith;
use cmid_proto::datapath::{
    self, Access, Lent, MESSAGE_MAX, Memory as _, MemoryRegion as _, Part, Parts, Pool, PostReason, Remote, Returns,
    SendFlags, Sge,
};
use cmid_proto::memory::{MemoryError, MemoryReason, MemoryRefused};

use crate::data::buffer::Buffer;
use crate::data::mr::Mr;
use crate::data::pd::Pd;
use crate::data::receive::RecvOf;
use crate::data::space::{Bytes, Stretch};
use crate::data::work::Stopped;
use crate::fabric::Fabric;
use crate::fabric::shared::{Parked, Shared};
use crate::fabric::world::World;
use crate::index::PdNo;

/// The memory of a block.
#[derive(Debug)]
pub struct Piece {
    bytes: Bytes,
    /// The first byte: its address, and its offset into each region.
    addr: u64,
    offset: usize,
    /// The registrations, one on each domain of the pool.
    mrs: Arc<[Mr]>,
}

impl Piece {
    /// Registers a buffer in pieces.
    pub(super) fn pool(
        pds: &[&Pd],
        buffer: Buffer,
        len: usize,
        access: Access,
    ) -> Result<Pool<Piece>, ErrorWith<Buffer, MemoryError>> {
        let refused = |buffer, reason| ErrorWith::new(buffer, MemoryRefused::register(reason));
        if access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC) {
            return Err(refused(buffer, MemoryReason::PeersWriteToPool));
        }
        if len == 0 || len > MESSAGE_MAX || buffer.len() < len {
            return Err(refused(buffer, MemoryReason::NoBlock));
        }
        // Others could register the memory, with other rights.
        let bytes = buffer.into_vec().map_err(|buffer| refused(buffer, MemoryReason::SharedPool))?;
        let (blocks, whole, shared) = (bytes.len() / len, bytes.len(), Buffer::from(bytes.clone()).share());
        let register = |range: Range<usize>| -> Result<Arc<[Mr]>, MemoryError> {
            let mrs = pds.iter().map(|pd| Mr::register(pd, shared.part(range.clone()), access | Access::LOCAL_WRITE));
            mrs.map(|registered| Ok(registered?)).collect()
        };
        let piece = |block: usize, mrs: &Arc<[Mr]>, offset| {
            let addr = mrs.first().map_or(0, |mr| mr.stretch().addr.wrapping_add(offset as u64));
            Piece { bytes: Bytes::from_slice(&bytes[block * len..][..len]), addr, offset, mrs: Arc::clone(mrs) }
        };
        let pool = if access.contains(Access::MW_BIND) {
            // Soft-RoCE checks the rights of a window and not its range, so the key of a window reaches all of its MR.
            let each = |block| Ok(piece(block, &register(block * len..(block + 1) * len)?, 0));
            Pool::of(blocks, (0..blocks).map(each))
        } else {
            let of = |mrs| Pool::of(blocks, (0..blocks).map(|block| Ok(piece(block, &mrs, block * len))));
            register(0..whole).and_then(of)
        };
        pool.map_err(|error| ErrorWith::new(Buffer::from(shared).unshared().unwrap_or_else(|buffer| buffer), error))
    }

    /// Where the device has the bytes. The registrations share them.
    fn stretch(&self) -> Stretch {
        Stretch { addr: self.addr, len: self.bytes.len() }
    }

    /// Makes the bytes those that a device of this fabric reads. Those of another one are not posted.
    fn flush(&self, fabric: &Fabric, world: &mut World) {
        if !self.mrs.first().is_some_and(|mr| mr.fabric.is(fabric)) {
            return;
        }
        if let Some(memory) = world.memory.space.bytes_mut(self.stretch()) {
            memory.copy_from_slice(&self.bytes);
        }
    }

    /// Takes the bytes that the device has written.
    fn load(&mut self) {
        let stretch = self.stretch();
        let Some(mr) = self.mrs.first() else { return };
        mr.fabric.with(|world| {
            if let Some(memory) = world.memory.space.bytes(stretch) {
                self.bytes.copy_from_slice(memory);
            }
        });
    }

    /// Registers its memory anew, and takes the bytes: the device has copied all that comes by the earlier keys. Returns false
    /// if it has the earlier registrations.
    pub(super) fn renew(&mut self) -> bool {
        let is_anew = Arc::get_mut(&mut self.mrs).is_some_and(|mrs| mrs.iter_mut().all(Mr::renew));
        self.load();
        is_anew
    }

    /// Returns the registration on a domain; another one if there is none, which the post refuses.
    fn mr(&self, pd: PdNo) -> Option<&Mr> {
        match &*self.mrs {
            [only] => Some(only),
            mrs => mrs.iter().find(|mr| mr.is_on(pd)).or(mrs.first()),
        }
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
        let mr = self.mrs.first();
        mr.map_or(Remote { addr: 0, rkey: 0 }, |mr| mr.remote(self.offset.wrapping_add(offset)))
    }
}

/// Makes the bytes of parts those that the device reads.
pub(super) fn flush(parts: &[Part<Piece>], fabric: &Fabric, world: &mut World) {
    parts.iter().filter_map(|part| part.block().piece()).for_each(|piece| piece.flush(fabric, world));
}

/// Returns the range of a part that was checked, for a queue of this domain.
pub(super) fn sge(part: &Part<Piece>, pd: PdNo) -> Option<Sge<'_, Mr>> {
    let (piece, range) = part.place(false).ok()?;
    Some(Sge { mr: piece.mr(pd)?, offset: piece.offset + range.start, len: range.end.checked_sub(range.start) })
}

/// Returns the ranges of parts that were checked.
pub(super) fn sges(parts: &[Part<Piece>], pd: PdNo) -> impl Iterator<Item = Sge<'_, Mr>> {
    parts.iter().filter_map(move |part| sge(part, pd))
}

/// Checks the parts of a request. The device writes to them if `writes`.
pub(super) fn check(parts: &[Part<Piece>], writes: bool) -> Result<(), PostReason> {
    parts.iter().try_for_each(|part| part.place(writes).map(drop))
}

/// Where the blocks of a request with these flags go.
pub(super) fn returns(flags: SendFlags) -> Returns {
    if flags.contains(SendFlags::SIGNALED) { Returns::ByCompletion } else { Returns::OnFailure }
}

/// Adds the blocks of the requests that are in a queue: those that are posted, and after them those that the device has
/// refused. `last` is the number of the queue's last request before the post.
pub(super) fn lend(
    lent: &mut Lent<Piece>,
    posted: Result<usize, Stopped>,
    last: u64,
    requests: impl IntoIterator<Item = (u64, Returns, Parts<Piece>)>,
) {
    let posted = posted.unwrap_or_else(|stopped| stopped.posted);
    for ((wr_id, returns, parts), at) in requests.into_iter().zip(0..) {
        let returns = if at < posted { returns } else { Returns::ToPool };
        lent.lend(last + 1 + at as u64, wr_id, returns, parts);
    }
}

/// Takes the bytes that the device has written.
pub(super) fn loaded(mut parts: Parts<Piece>) -> Parts<Piece> {
    let blocks = parts.as_mut_slice().iter_mut().filter_map(Part::block_mut);
    blocks.filter_map(|block| block.piece_mut()).for_each(Piece::load);
    parts
}

/// Takes the bytes that a peer has written.
pub(super) fn loaded_part(mut part: Part<Piece>) -> Part<Piece> {
    if let Some(piece) = part.block_mut().and_then(|block| block.piece_mut()) {
        piece.load();
    }
    part
}

/// The blocks that the requests of a QP or an SRQ have whose handle is dropped.
#[derive(Debug)]
pub(super) struct LeftBlocks {
    pub(super) of: RecvOf,
    pub(super) _blocks: [Lent<Piece>; 2],
}

impl Parked for LeftBlocks {
    fn try_end(&self, shared: &Shared) -> bool {
        shared.with(|world| !world.queues.may_complete(self.of))
    }
}
