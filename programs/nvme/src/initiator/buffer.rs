//! The memory of a command's data: bytes of the application, or a registered block that the target reads and writes itself.

use std::fmt;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use cmid_mio::proto::datapath::{Block, Part, Piece};

/// The memory of a command's data. One of [`Initiator::buffer`](super::Initiator::buffer) is registered if it can be: the target
/// then reads and writes it by RDMA, with a key that ends with the command. A `Vec<u8>` is copied, to and from registered
/// memory of the connection.
///
/// It moves into the command, and comes back with its end.
pub struct Buffer<P>(Held<P>);

enum Held<P> {
    Bytes(Vec<u8>),
    /// The first bytes of a block.
    Block(Block<P>, usize),
    /// A block that the target may read: this side does not write to it.
    Read(Arc<Block<P>>, usize),
    /// A block that the target may write to: a window has it.
    Written(usize),
}

/// A block that is lent to the target.
pub(super) enum Loan<P> {
    ToRead(Part<P>),
    ToWrite(Part<P>),
}

impl<P: Piece> Buffer<P> {
    /// Makes it of the first `len` bytes of a block, or all of them if it is shorter.
    pub(super) fn of(block: Block<P>, len: usize) -> Self {
        let len = len.min(block.len());
        Buffer(Held::Block(block, len))
    }

    /// Whether it is registered memory. The data is then not copied, if the command has more than fits into a capsule, the
    /// device has memory windows, and the target invalidates their keys.
    #[must_use]
    pub fn is_registered(&self) -> bool {
        !matches!(self.0, Held::Bytes(_))
    }

    /// Keeps the first `len` bytes. It has no effect on one that is shorter.
    pub fn truncate(&mut self, len: usize) {
        match &mut self.0 {
            Held::Bytes(bytes) => bytes.truncate(len),
            Held::Block(_, own) | Held::Read(_, own) | Held::Written(own) => *own = len.min(*own),
        }
    }

    /// Takes out a block for the target to read or to write; `None` of other memory.
    pub(super) fn lend(&mut self, writes: bool) -> Option<Loan<P>> {
        match mem::replace(&mut self.0, Held::Written(0)) {
            Held::Block(block, len) if writes => {
                self.0 = Held::Written(len);
                Some(Loan::ToWrite(block.part(0..len)))
            }
            Held::Block(block, len) => {
                let block = Arc::new(block);
                self.0 = Held::Read(Arc::clone(&block), len);
                Some(Loan::ToRead(Part::shared(block, 0..len)))
            }
            other @ (Held::Bytes(_) | Held::Read(..) | Held::Written(_)) => {
                self.0 = other;
                None
            }
        }
    }

    /// Whether a block of it is lent.
    pub(super) fn is_lent(&self) -> bool {
        matches!(self.0, Held::Read(..) | Held::Written(_))
    }

    /// Takes a part back that was lent.
    pub(super) fn take_back(&mut self, part: Part<P>) {
        let len = part.range().len();
        self.0 = match (mem::replace(&mut self.0, Held::Written(0)), part.into_block()) {
            (Held::Written(_), Some(block)) => Held::Block(block, len),
            // The part of a block to read was a second handle of it.
            (Held::Read(block, len), _) => match Arc::try_unwrap(block) {
                Ok(block) => Held::Block(block, len),
                Err(block) => Held::Read(block, len),
            },
            (other @ (Held::Bytes(_) | Held::Block(..) | Held::Written(_)), _) => other,
        };
    }

    /// Makes it whole after its command. A block that did not come back is kept by a device that is gone, or has
    /// returned to its pool after a panic: these are other bytes, which are not registered. Returns whether what the
    /// target has written is lost with it.
    pub(super) fn restore(&mut self) -> bool {
        let is_lost = matches!(self.0, Held::Written(_));
        self.0 = match mem::replace(&mut self.0, Held::Written(0)) {
            Held::Read(block, len) => match Arc::try_unwrap(block) {
                Ok(block) => Held::Block(block, len),
                Err(block) => Held::Bytes(block.get(..len).unwrap_or_default().to_vec()),
            },
            Held::Written(len) => Held::Bytes(vec![0; len]),
            other @ (Held::Bytes(_) | Held::Block(..)) => other,
        };
        is_lost
    }
}

impl<P> From<Vec<u8>> for Buffer<P> {
    fn from(bytes: Vec<u8>) -> Self {
        Buffer(Held::Bytes(bytes))
    }
}

/// The bytes; none while the target may write to them, which is never so for the application.
impl<P: Piece> Deref for Buffer<P> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Held::Bytes(bytes) => bytes,
            Held::Block(block, len) => block.get(..*len).unwrap_or_default(),
            Held::Read(block, len) => block.get(..*len).unwrap_or_default(),
            Held::Written(_) => &[],
        }
    }
}

impl<P: Piece> DerefMut for Buffer<P> {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Held::Bytes(bytes) => bytes,
            Held::Block(block, len) => block.get_mut(..*len).unwrap_or_default(),
            Held::Read(..) | Held::Written(_) => &mut [],
        }
    }
}

impl<P: Piece> PartialEq for Buffer<P> {
    fn eq(&self, other: &Self) -> bool {
        self[..] == other[..]
    }
}

impl<P: Piece> fmt::Debug for Buffer<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("len", &self.len()).field("is_registered", &self.is_registered()).finish()
    }
}
