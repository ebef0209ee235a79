//! Pools of registered memory, and the blocks that they hand out.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::ops::{Deref, DerefMut, Range};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{Part, Remote};

/// A piece of registered memory that one owner has, made by a device for its pools. Nothing but its owner accesses its
/// bytes: no other piece overlaps it, and peers have no right to write to it.
pub trait Piece: DerefMut<Target = [u8]> + Send + Sync {
    /// Returns the address and the remote key of the byte at `offset`, for a peer. It has access if the pool was made
    /// with [`Access::REMOTE_READ`](super::Access::REMOTE_READ).
    fn remote(&self, offset: usize) -> Remote;
}

/// Registered memory in blocks of one length, for the QPs and SRQs of one PD
/// ([`ProtectionDomain::pool`](super::ProtectionDomain::pool)). Clones are handles of the same pool, which any thread
/// may use.
///
/// [`Pool::take`] hands out a [`Block`], and its drop returns it. The memory is deregistered and freed after the last
/// handle and the last block.
pub struct Pool<P>(Arc<Shelf<P>>);

/// The blocks of a pool that nobody has.
struct Shelf<P> {
    free: Mutex<Vec<Box<P>>>,
    blocks: usize,
    block_len: usize,
}

impl<P> Shelf<P> {
    fn free(&self) -> MutexGuard<'_, Vec<Box<P>>> {
        // No call panics while it holds the lock.
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<P: Piece> Pool<P> {
    /// Creates a pool of pieces of one length. For devices.
    pub fn of(pieces: impl IntoIterator<Item = P>) -> Self {
        let free: Vec<_> = pieces.into_iter().map(Box::new).collect();
        let (blocks, block_len) = (free.len(), free.first().map_or(0, |piece| piece.len()));
        Pool(Arc::new(Shelf { free: Mutex::new(free), blocks, block_len }))
    }

    /// Takes a block; `None` if all are in use. Its bytes are those that its last owner left.
    #[must_use]
    pub fn take(&self) -> Option<Block<P>> {
        let piece = self.0.free().pop()?;
        Some(Block { piece: Some(piece), shelf: Arc::clone(&self.0) })
    }

    /// Returns the number of blocks that can be taken now.
    #[must_use]
    pub fn available(&self) -> usize {
        self.0.free().len()
    }

    /// Returns the number of blocks.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.0.blocks
    }

    /// Returns the length of a block in bytes.
    #[must_use]
    pub fn block_len(&self) -> usize {
        self.0.block_len
    }
}

impl<P> Clone for Pool<P> {
    fn clone(&self) -> Self {
        Pool(Arc::clone(&self.0))
    }
}

impl<P> fmt::Debug for Pool<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shelf { blocks, block_len, .. } = *self.0;
        f.debug_struct("Pool").field("blocks", &blocks).field("block_len", &block_len).finish_non_exhaustive()
    }
}

/// A block of a [`Pool`]: registered memory that its owner alone reads and writes.
///
/// A post moves it into the work request ([`QueuePair::post_send_blocks`](super::QueuePair::post_send_blocks)), and the
/// polled completion moves it back ([`QueuePair::reclaim`](super::QueuePair::reclaim)). So while the device may access
/// it, nobody else can. It can be sent to other threads. Its drop returns it to its pool.
///
/// `Arc<Block>` is the form for one block that is sent to many peers: each request holds a clone, and nobody writes.
pub struct Block<P> {
    /// `None` only in `drop`.
    piece: Option<Box<P>>,
    shelf: Arc<Shelf<P>>,
}

impl<P: Piece> Block<P> {
    /// Returns a part of the block for a work request: `range` in bytes. A post refuses a range beyond the end.
    #[must_use]
    pub fn part(self, range: Range<usize>) -> Part<P> {
        Part::new(self, range)
    }

    /// Returns the address and the remote key of the byte at `offset`, for a peer that may read
    /// ([`Access::REMOTE_READ`](super::Access::REMOTE_READ)).
    #[must_use]
    pub fn remote(&self, offset: usize) -> Remote {
        self.piece.as_ref().map_or(Remote { addr: 0, rkey: 0 }, |piece| piece.remote(offset))
    }

    /// Returns the piece, for devices.
    #[must_use]
    pub fn piece(&self) -> Option<&P> {
        self.piece.as_deref()
    }

    /// Returns the piece, for devices.
    #[must_use]
    pub fn piece_mut(&mut self) -> Option<&mut P> {
        self.piece.as_deref_mut()
    }
}

impl<P: Piece> Deref for Block<P> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.piece.as_ref().map_or(&[], |piece| piece)
    }
}

impl<P: Piece> DerefMut for Block<P> {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.piece.as_mut().map_or(&mut [], |piece| piece)
    }
}

impl<P> Drop for Block<P> {
    fn drop(&mut self) {
        if let Some(piece) = self.piece.take() {
            // It has room for all blocks of the pool.
            self.shelf.free().push(piece);
        }
    }
}

impl<P> fmt::Debug for Block<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block").field("len", &self.shelf.block_len).finish_non_exhaustive()
    }
}
