//! Posted receives.

use crate::data::space::Ranges;
use crate::index::SrqNo;

/// The position of a receive in a shared receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SrqEntry {
    pub(crate) srq: SrqNo,
    pub(crate) sequence: u64,
}

/// A posted receive.
#[derive(Debug)]
pub(crate) struct Receive {
    pub(crate) wr_id: u64,
    pub(crate) ranges: Ranges,
    /// The entry in a shared receive queue, if it is of one.
    pub(crate) srq_entry: Option<SrqEntry>,
    /// Whether its post was refused: its completion is not for the program.
    pub(crate) is_withdrawn: bool,
}

impl Receive {
    /// Returns its length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.ranges.iter().map(|range| range.len).sum()
    }

    /// Returns the keys that it pins.
    pub(crate) fn pins(&self) -> impl Iterator<Item = u32> {
        self.ranges.iter().map(|range| range.key)
    }
}
