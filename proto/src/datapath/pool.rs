//! Pools of registered memory, and the blocks that they hand out.

use alloc::boxed::Box;
use alloc::collections::TryReserveError;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::ops::{Deref, DerefMut, Range};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use super::{Part, Remote};
use crate::memory::{MemoryError, MemoryReason, MemoryRefused};

/// A piece of registered memory that one owner has, made by a device for its pools. Nothing but its owner accesses its
/// bytes: no other piece overlaps it, and peers have no right to write to it.
pub trait Piece: DerefMut<Target = [u8]> + Send + Sync + 'static {
    /// Returns the address and the remote key of the byte at `offset`, for a peer. It has access if the pool was made
    /// with [`Access::REMOTE_READ`](super::Access::REMOTE_READ).
    fn remote(&self, offset: usize) -> Remote;

    /// A number that this process has and no child that it forks, for a device whose objects a child inherits.
    #[must_use]
    fn process() -> u32 {
        0
    }
}

/// Registered memory in blocks of one length, for the QPs and SRQs of one PD
/// ([`ProtectionDomain::pool`](super::ProtectionDomain::pool)). Clones are handles of the same pool, which any thread
/// may use.
///
/// [`Pool::take`] hands out a [`Block`], and its drop returns it. The memory is deregistered and freed after the last
/// handle and the last block. In a child of fork(2) neither waits: it may find a lock that no thread has any more.
///
/// ```
/// use cmid_proto::datapath::{Access, Parts, QueuePair, SendWr, prelude::*};
/// use cmid_proto::{Errno, IdKey};
///
/// /// Sends a greeting, and gets its block back when the completion is polled.
/// fn greet<D: DataPath>(device: &mut D, id: IdKey, qp: &mut D::Qp, cq: &mut D::Cq) -> Result<(), Errno> {
///     let pd = device.alloc_pd(id)?;
///     let pool = pd.pool(vec![0; 64 * 1024], 1024, Access::empty())?;
///     let mut block = pool.take().ok_or(Errno::ENOMEM)?;
///     block[..5].copy_from_slice(b"hello");
///     qp.post_send_blocks(SendWr::send(1, block.part(0..5)))?;
///     while let Some(completion) = cq.poll_one()? {
///         drop(qp.reclaim(&completion).and_then(Parts::into_block));
///     }
///     Ok(())
/// }
/// ```
pub struct Pool<P>(Arc<Shelf<P>>);

/// The blocks of a pool that nobody has.
struct Shelf<P> {
    free: Mutex<Vec<Box<Slot<P>>>>,
    blocks: usize,
    block_len: usize,
    /// [`Piece::process`], and what it was here.
    process: fn() -> u32,
    home: u32,
}

struct Slot<P> {
    piece: P,
    /// The range that a work request names, while the block is a [`Part`]. It is here to keep what moves small.
    range: (u32, u32),
    /// The shelf that it belongs on, while it is a block.
    shelf: Option<Arc<Shelf<P>>>,
}

impl<P> Shelf<P> {
    /// `None` in a forked child, if a thread of the parent had the lock.
    fn free(&self) -> Option<MutexGuard<'_, Vec<Box<Slot<P>>>>> {
        match self.free.try_lock() {
            Ok(free) => Some(free),
            Err(TryLockError::WouldBlock) if (self.process)() != self.home => None,
            // No call panics while it holds the lock.
            Err(_) => Some(self.free.lock().unwrap_or_else(PoisonError::into_inner)),
        }
    }
}

impl<P: Piece> Pool<P> {
    /// Creates a pool of at most `blocks` pieces of one length. For devices.
    ///
    /// # Errors
    /// That of a piece. [`MemoryReason::NoMemory`] if so many slots cannot be had.
    pub fn of(blocks: usize, pieces: impl IntoIterator<Item = Result<P, MemoryError>>) -> Result<Self, MemoryError> {
        let mut free = Vec::new();
        // Asks for the memory of all slots at once, and returns it: each has a box of its own, which cannot fail.
        let all: Result<(), TryReserveError> = Vec::<Slot<P>>::new().try_reserve_exact(blocks);
        all.and_then(|()| free.try_reserve_exact(blocks)).map_err(|_| {
            MemoryRefused::register(MemoryReason::NoMemory(blocks.saturating_mul(size_of::<Slot<P>>())))
        })?;
        for piece in pieces.into_iter().take(blocks) {
            free.push(Box::new(Slot { piece: piece?, range: (0, 0), shelf: None }));
        }
        let (blocks, block_len) = (free.len(), free.first().map_or(0, |slot| slot.piece.len()));
        let (free, process) = (Mutex::new(free), P::process);
        Ok(Pool(Arc::new(Shelf { free, blocks, block_len, process, home: process() })))
    }

    /// Takes a block; `None` if all are in use. Its bytes are those that its last owner left.
    #[must_use]
    pub fn take(&self) -> Option<Block<P>> {
        let mut slot = self.0.free()?.pop()?;
        slot.shelf = Some(Arc::clone(&self.0));
        Some(Block(Some(slot)))
    }

    /// Returns the number of blocks that can be taken now.
    #[must_use]
    pub fn available(&self) -> usize {
        self.0.free().map_or(0, |free| free.len())
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
///
/// # What does not compile
///
/// Using it after it was posted:
///
/// ```compile_fail,E0382
/// # use cmid_proto::datapath::{Block, QueuePair, SendWr};
/// fn reuse<Q: QueuePair>(qp: &mut Q, mut block: Block<Q::Piece>) {
///     let _ = qp.post_send_blocks(SendWr::send(1, block));
///     block[0] = 1;
/// }
/// ```
///
/// Keeping a reference into it:
///
/// ```compile_fail,E0505
/// # use cmid_proto::datapath::{Block, QueuePair};
/// fn keep<Q: QueuePair>(qp: &mut Q, block: Block<Q::Piece>) -> u8 {
///     let first = &block[0];
///     let _ = qp.post_recv_blocks(1, block);
///     *first
/// }
/// ```
///
/// Posting it twice, and having it twice:
///
/// ```compile_fail,E0382
/// # use cmid_proto::datapath::{Block, QueuePair, SendWr};
/// fn twice<Q: QueuePair>(qp: &mut Q, other: &mut Q, block: Block<Q::Piece>) {
///     let _ = qp.post_send_blocks(SendWr::send(1, block));
///     let _ = other.post_send_blocks(SendWr::send(1, block));
/// }
/// ```
///
/// ```compile_fail,E0599
/// # use cmid_proto::datapath::{Block, Piece};
/// fn copy<P: Piece>(block: Block<P>) -> (Block<P>, Block<P>) {
///     (block.clone(), block)
/// }
/// ```
///
/// Writing to one that several requests may send:
///
/// ```compile_fail,E0596
/// # use cmid_proto::datapath::{Block, Piece};
/// # use std::sync::Arc;
/// fn write<P: Piece>(block: Arc<Block<P>>) {
///     block[0] = 1;
/// }
/// ```
pub struct Block<P>(
    /// `None` only in `drop`.
    Option<Box<Slot<P>>>,
);

// It is moved with every request.
static_assertions::const_assert!(size_of::<Block<u8>>() == size_of::<usize>());

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
        self.piece().map_or(Remote { addr: 0, rkey: 0 }, |piece| piece.remote(offset))
    }

    pub(super) fn range(&self) -> (u32, u32) {
        self.0.as_ref().map_or((0, 0), |slot| slot.range)
    }

    pub(super) fn set_range(&mut self, range: (u32, u32)) {
        if let Some(slot) = &mut self.0 {
            slot.range = range;
        }
    }

    /// Returns the piece, for devices.
    #[must_use]
    pub fn piece(&self) -> Option<&P> {
        self.0.as_ref().map(|slot| &slot.piece)
    }

    /// Returns the piece, for devices.
    #[must_use]
    pub fn piece_mut(&mut self) -> Option<&mut P> {
        self.0.as_mut().map(|slot| &mut slot.piece)
    }
}

impl<P: Piece> Deref for Block<P> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.as_ref().map_or(&[], |slot| &slot.piece)
    }
}

impl<P: Piece> DerefMut for Block<P> {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.0.as_mut().map_or(&mut [], |slot| &mut slot.piece)
    }
}

impl<P> Drop for Block<P> {
    fn drop(&mut self) {
        let Some(mut slot) = self.0.take() else { return };
        let Some(shelf) = slot.shelf.take() else { return };
        if let Some(mut free) = shelf.free() {
            // It has room for all blocks of the pool.
            free.push(slot);
        }
    }
}

impl<P> fmt::Debug for Block<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shelf = self.0.as_ref().and_then(|slot| slot.shelf.as_ref());
        f.debug_struct("Block").field("len", &shelf.map(|shelf| shelf.block_len)).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;

    use super::*;

    std::thread_local! {
        static PROCESS: Cell<u32> = const { Cell::new(1) };
    }

    impl Piece for Box<[u8]> {
        fn remote(&self, _: usize) -> Remote {
            Remote { addr: 0, rkey: 0 }
        }

        fn process() -> u32 {
            PROCESS.get()
        }
    }

    /// It would wait for ever: the thread that had the lock is not in the child.
    #[test]
    fn a_forked_child_does_not_wait_for_the_lock_of_a_pool() {
        let pool = Pool::<Box<[u8]>>::of(2, [0, 1].map(|n| Ok([n].into()))).unwrap();
        let taken = pool.take().unwrap();
        let held = pool.0.free.lock().unwrap();
        PROCESS.set(2);
        drop(taken);
        assert_eq!((pool.take().map(drop), pool.available()), (None, 0));
        drop(held);
        assert_eq!(pool.available(), 1, "what was dropped is not there");
    }
}
