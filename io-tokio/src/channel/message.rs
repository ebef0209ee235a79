//! A received message.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

use cmid_proto::datapath::{Block, Piece};

use super::wakers::Wakers;

/// A received message, in the registered memory that the device has written it to, a large one in its own. It derefs to its
/// bytes.
///
/// Its drop lets the peer send another message: a program that keeps more than [`window`] - 4 of them may receive no more.
/// It may be dropped on another thread, and after its channel.
///
/// [`window`]: cmid_proto::messages::MessagesConfig::window
pub struct Message<P: Piece> {
    /// `None` only in `drop`.
    block: Option<Block<P>>,
    range: Range<usize>,
    /// The bytes of a large message; the block is that of its offer.
    large: Option<Vec<u8>>,
    wakers: Arc<Wakers>,
}

impl<P: Piece> Message<P> {
    pub(super) fn new(block: Block<P>, range: Range<usize>, wakers: Arc<Wakers>) -> Self {
        Message { block: Some(block), range, large: None, wakers }
    }

    pub(super) fn large(block: Block<P>, bytes: Vec<u8>, wakers: Arc<Wakers>) -> Self {
        Message { block: Some(block), range: 0..bytes.len(), large: Some(bytes), wakers }
    }

    /// Removes bytes at the beginning.
    pub(super) fn advance(&mut self, count: usize) {
        self.range.start = self.range.end.min(self.range.start + count);
    }
}

impl<P: Piece> Deref for Message<P> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let bytes = self.large.as_deref().or(self.block.as_deref());
        bytes.and_then(|bytes| bytes.get(self.range.clone())).unwrap_or_default()
    }
}

impl<P: Piece> AsRef<[u8]> for Message<P> {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl<P: Piece> Drop for Message<P> {
    fn drop(&mut self) {
        // The channel posts its receive again when it is polled.
        drop(self.block.take());
        self.wakers.dropped();
    }
}

impl<P: Piece> fmt::Debug for Message<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message").field("len", &self.len()).finish_non_exhaustive()
    }
}
