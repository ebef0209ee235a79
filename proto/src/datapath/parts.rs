//! The parts of blocks that a work request names.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::{self, Vec};
use core::fmt;
use core::ops::{Deref, Range};

use super::{BatchError, Block, Length, Piece, PostError, PostReason};
use crate::error_with::ErrorWith;

/// A block, or a part of it, in a work request. The request has the whole block.
pub struct Part<P>(Held<P>);

enum Held<P> {
    /// The whole block.
    Owned(Block<P>),
    /// The block knows the range.
    OwnedPart(Block<P>),
    /// The whole block.
    Shared(Arc<Block<P>>),
    SharedPart(Box<SharedPart<P>>),
}

struct SharedPart<P> {
    block: Arc<Block<P>>,
    range: (u32, u32),
}

/// What is too large is beyond the end of every block.
fn narrow(range: Range<usize>) -> (u32, u32) {
    let narrow = |at| u32::try_from(at).unwrap_or(u32::MAX);
    (narrow(range.start), narrow(range.end))
}

impl<P: Piece> Part<P> {
    pub(super) fn new(mut block: Block<P>, range: Range<usize>) -> Self {
        block.set_range(narrow(range));
        Part(Held::OwnedPart(block))
    }

    /// Returns a part of a block that several requests send. A post refuses to receive into it. Unlike the whole block
    /// ([`Part::from`]) it is an allocation.
    #[must_use]
    pub fn shared(block: Arc<Block<P>>, range: Range<usize>) -> Self {
        Part(Held::SharedPart(Box::new(SharedPart { block, range: narrow(range) })))
    }

    /// Returns the block; `None` for a shared one.
    #[must_use]
    pub fn into_block(self) -> Option<Block<P>> {
        match self.0 {
            Held::Owned(block) | Held::OwnedPart(block) => Some(block),
            Held::Shared(_) | Held::SharedPart(_) => None,
        }
    }

    /// Returns the whole block, to read.
    #[must_use]
    pub fn block(&self) -> &Block<P> {
        match &self.0 {
            Held::Owned(block) | Held::OwnedPart(block) => block,
            Held::Shared(block) => block,
            Held::SharedPart(part) => &part.block,
        }
    }

    /// Returns the whole block, to write; `None` for a shared one.
    #[must_use]
    pub fn block_mut(&mut self) -> Option<&mut Block<P>> {
        match &mut self.0 {
            Held::Owned(block) | Held::OwnedPart(block) => Some(block),
            Held::Shared(_) | Held::SharedPart(_) => None,
        }
    }

    /// Returns its range in the block, in bytes.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        let (start, end) = match &self.0 {
            Held::Owned(block) => return 0..block.len(),
            Held::Shared(block) => return 0..block.len(),
            Held::OwnedPart(block) => block.range(),
            Held::SharedPart(part) => part.range,
        };
        start as usize..end as usize
    }

    fn is_owned(&self) -> bool {
        matches!(self.0, Held::Owned(_) | Held::OwnedPart(_))
    }

    /// Returns the memory and the range inside it, for devices. `writes` says whether the device writes to it.
    ///
    /// # Errors
    /// [`PostReason::ReversedRange`], [`PostReason::OutOfRange`], [`PostReason::SharedBlock`].
    pub fn place(&self, writes: bool) -> Result<(&P, Range<usize>), PostReason> {
        let Range { start, end } = self.range();
        match (&self.0, self.block().piece()) {
            (Held::Owned(_), Some(piece)) => Ok((piece, 0..piece.len())),
            (_, Some(piece)) if start <= end && end <= piece.len() && (!writes || self.is_owned()) => {
                Ok((piece, start..end))
            }
            _ => Err(self.refusal()),
        }
    }

    #[cold]
    fn refusal(&self) -> PostReason {
        let (Range { start, end }, len) = (self.range(), self.block().len());
        if start > end {
            PostReason::ReversedRange
        } else if end > len {
            PostReason::OutOfRange { len: Length::new(len) }
        } else {
            PostReason::SharedBlock
        }
    }
}

/// The bytes of the part; none if its range is not inside the block.
impl<P: Piece> Deref for Part<P> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.block().get(self.range()).unwrap_or_default()
    }
}

impl<P: Piece> From<Block<P>> for Part<P> {
    /// The whole block.
    fn from(block: Block<P>) -> Self {
        Part(Held::Owned(block))
    }
}

impl<P: Piece> From<Arc<Block<P>>> for Part<P> {
    /// The whole block, without an allocation.
    fn from(block: Arc<Block<P>>) -> Self {
        Part(Held::Shared(block))
    }
}

impl<P: Piece> fmt::Debug for Part<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Part").field("range", &self.range()).field("is_shared", &!self.is_owned()).finish()
    }
}

/// The blocks of one work request: one without an allocation, or several, which the device gathers or scatters in
/// order.
pub struct Parts<P>(List<P>);

enum List<P> {
    One(Part<P>),
    #[expect(clippy::box_collection, reason = "it keeps what moves small")]
    Several(Box<Vec<Part<P>>>),
}

impl<P: Piece> fmt::Debug for Parts<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&**self).finish()
    }
}

impl<P> Parts<P> {
    /// Returns the blocks of the parts, without those that are shared.
    pub fn into_blocks(self) -> impl Iterator<Item = Block<P>>
    where
        P: Piece,
    {
        self.into_iter().filter_map(Part::into_block)
    }

    /// Returns the first block that is not shared. Others return to their pools.
    #[must_use]
    pub fn into_block(self) -> Option<Block<P>>
    where
        P: Piece,
    {
        match self.0 {
            // The usual case.
            List::One(Part(Held::Owned(block) | Held::OwnedPart(block))) => Some(block),
            other @ (List::One(_) | List::Several(_)) => first_block(Parts(other)),
        }
    }

    /// Returns the parts, to change the blocks.
    #[must_use]
    pub fn as_mut_slice(&mut self) -> &mut [Part<P>] {
        match &mut self.0 {
            List::One(part) => core::slice::from_mut(part),
            List::Several(parts) => parts,
        }
    }
}

#[cold]
fn first_block<P: Piece>(parts: Parts<P>) -> Option<Block<P>> {
    parts.into_iter().find_map(Part::into_block)
}

impl<P> Deref for Parts<P> {
    type Target = [Part<P>];

    fn deref(&self) -> &[Part<P>] {
        match &self.0 {
            List::One(part) => core::slice::from_ref(part),
            List::Several(parts) => parts,
        }
    }
}

impl<P> AsRef<[Part<P>]> for Parts<P> {
    fn as_ref(&self) -> &[Part<P>] {
        self
    }
}

impl<P, T: Into<Part<P>>> From<T> for Parts<P> {
    fn from(part: T) -> Self {
        Parts(List::One(part.into()))
    }
}

impl<P> From<Vec<Part<P>>> for Parts<P> {
    fn from(parts: Vec<Part<P>>) -> Self {
        Parts(List::Several(Box::new(parts)))
    }
}

impl<P> FromIterator<Part<P>> for Parts<P> {
    fn from_iter<I: IntoIterator<Item = Part<P>>>(parts: I) -> Self {
        Parts(List::Several(Box::new(parts.into_iter().collect())))
    }
}

impl<P> IntoIterator for Parts<P> {
    type Item = Part<P>;
    type IntoIter = core::iter::Chain<core::option::IntoIter<Part<P>>, vec::IntoIter<Part<P>>>;

    fn into_iter(self) -> Self::IntoIter {
        let (one, several) = match self.0 {
            List::One(part) => (Some(part), Vec::new()),
            List::Several(parts) => (None, *parts),
        };
        one.into_iter().chain(several)
    }
}

/// A work request with blocks was not posted. It gives back the blocks; `None` after [`PostReason::Device`]: the device
/// may have queued the request, so they return to their pools when it can no longer execute it.
pub type Unposted<P> = ErrorWith<Option<Parts<P>>, PostError>;

/// A batch of work requests with blocks was not posted, or not all of it. It gives back the blocks of each request that was
/// not posted, in order, except those that the device may have ([`Unposted`]).
pub type UnpostedBatch<P> = ErrorWith<Vec<Parts<P>>, BatchError>;
