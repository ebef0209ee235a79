//! The memory of the programs: the buffers in the fabric, by address.

use std::ops::Range;

use cmid_proto::memory::Buffer;
use smallvec::SmallVec;

use crate::data::buffer::SharedBuffer;

/// The first simulated address, and the alignment.
const BASE: u64 = 0x7f00_0000_0000;
pub(crate) const PAGE: u64 = 4096;

/// A range of memory, and its key: the local one in a work request, the remote one in a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyedRange {
    pub(crate) addr: u64,
    pub(crate) key: u32,
    pub(crate) len: usize,
}

/// Bytes of a message or a block: small ones need no allocation.
pub(crate) type Bytes = SmallVec<[u8; 64]>;

/// The ranges of a work request.
pub(crate) type Ranges = SmallVec<[KeyedRange; 1]>;

/// The local keys of the regions that a work request pins.
pub(crate) type Pins = SmallVec<[u32; 2]>;

/// Returns the keys of ranges.
pub(crate) fn pins(ranges: &[KeyedRange]) -> Pins {
    match ranges {
        [one] => Pins::from_buf_and_len([one.key, 0], 1),
        ranges => ranges.iter().map(|range| range.key).collect(),
    }
}

/// A stretch of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stretch {
    pub(crate) addr: u64,
    pub(crate) len: usize,
}

impl Stretch {
    /// A part of it, at an offset.
    pub(crate) fn part(self, offset: usize, len: usize) -> Option<Stretch> {
        offset.checked_add(len).filter(|&end| end <= self.len)?;
        Some(Stretch { addr: self.addr + offset as u64, len })
    }

    /// Whether `other` is inside this stretch.
    pub(crate) fn contains(self, other: Stretch) -> bool {
        let offset = other.addr.checked_sub(self.addr).and_then(|offset| usize::try_from(offset).ok());
        let end = offset.and_then(|offset| offset.checked_add(other.len));
        end.is_some_and(|end| end <= self.len)
    }

    /// Returns the numbers of its pages.
    pub(crate) fn pages(self) -> Range<u64> {
        let end = self.addr.saturating_add(self.len as u64);
        self.addr / PAGE..end.div_ceil(PAGE)
    }
}

impl KeyedRange {
    pub(crate) fn stretch(self) -> Stretch {
        Stretch { addr: self.addr, len: self.len }
    }
}

/// Bytes to copy to an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Scatter {
    pub(crate) addr: u64,
    pub(crate) bytes: Vec<u8>,
}

/// The token of a buffer in the fabric. It is exchanged for the buffer once.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Lent {
    pub(super) stretch: Stretch,
    /// The memory and the range of it, if other registrations may use it too.
    pub(super) shared: Option<(SharedBuffer, Range<usize>)>,
}

impl Lent {
    pub(crate) fn stretch(&self) -> Stretch {
        self.stretch
    }

    /// Whether another registration, or a handle, has the memory too.
    pub(crate) fn is_shared(&self) -> bool {
        self.shared.as_ref().is_some_and(|(shared, _)| !shared.is_alone())
    }
}

impl Buffer for Lent {
    fn len(&self) -> usize {
        self.stretch.len
    }
}

/// All buffers in the fabric.
#[derive(Debug, Default)]
pub(crate) struct Space {
    /// By address, which grows. What was unmapped has no bytes, until there are as many of those as of the others.
    mapped: Vec<(u64, Option<Vec<u8>>)>,
    unmapped: usize,
    used: u64,
}

impl Space {
    /// Maps bytes at an address of their own.
    pub(crate) fn map(&mut self, bytes: Vec<u8>) -> Stretch {
        let stretch = Stretch { addr: BASE + self.used, len: bytes.len() };
        // Leaves a gap of at least a page, so that an access beyond the end cannot reach another buffer.
        self.used += (bytes.len() as u64).next_multiple_of(PAGE) + PAGE;
        self.mapped.push((stretch.addr, Some(bytes)));
        stretch
    }

    /// Unmaps bytes and returns them.
    pub(crate) fn unmap(&mut self, stretch: Stretch) -> Vec<u8> {
        let at = self.mapped.binary_search_by_key(&stretch.addr, |&(addr, _)| addr).ok();
        let Some(bytes) = at.and_then(|at| self.mapped.get_mut(at)?.1.take()) else { return Vec::new() };
        self.unmapped += 1;
        if self.unmapped > self.mapped.len() / 2 {
            self.mapped.retain(|(_, bytes)| bytes.is_some());
            self.unmapped = 0;
        }
        bytes
    }

    /// Where the buffer is that begins at an address or before it.
    fn at(&self, addr: u64) -> Option<usize> {
        self.mapped.partition_point(|&(base, _)| base <= addr).checked_sub(1)
    }

    pub(crate) fn bytes(&self, stretch: Stretch) -> Option<&[u8]> {
        let (base, bytes) = self.mapped.get(self.at(stretch.addr)?)?;
        let start = usize::try_from(stretch.addr - base).ok()?;
        bytes.as_ref()?.get(start..start.checked_add(stretch.len)?)
    }

    /// Returns a copy of the bytes of several ranges.
    pub(crate) fn all_bytes(&self, ranges: &[KeyedRange]) -> Option<Vec<u8>> {
        Some(ranges.iter().map(|range| self.bytes(range.stretch())).collect::<Option<Vec<_>>>()?.concat())
    }

    pub(crate) fn bytes_mut(&mut self, stretch: Stretch) -> Option<&mut [u8]> {
        let at = self.at(stretch.addr)?;
        let (base, bytes) = self.mapped.get_mut(at)?;
        let start = usize::try_from(stretch.addr - *base).ok()?;
        bytes.as_mut()?.get_mut(start..start.checked_add(stretch.len)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_there_until_it_is_given_back_and_nothing_is_beside_it() {
        let mut space = Space::default();
        let (first, second) = (space.map(vec![1; 10]), space.map(vec![2; 10]));
        let Stretch { addr, .. } = first;
        assert_eq!(space.bytes(Stretch { addr: addr + 8, len: 2 }), Some(&[1, 1][..]));
        assert_eq!(space.bytes(Stretch { addr: addr + 8, len: 3 }), None);
        assert_eq!(space.bytes(Stretch { addr: addr - 1, len: 1 }), None);
        assert_eq!(space.bytes(Stretch { addr, len: usize::MAX }), None);
        space.bytes_mut(Stretch { addr, len: 1 }).unwrap()[0] = 7;
        assert_eq!(space.unmap(first)[..2], [7, 1]);
        assert_eq!(space.bytes(first), None);
        assert_eq!(space.bytes(second), Some(&[2; 10][..]));
        // Nothing is left of what is given back.
        assert_eq!((space.unmap(first), space.unmap(second)), (Vec::new(), vec![2; 10]));
        assert!(space.mapped.is_empty() && space.bytes(second).is_none());
    }

    #[test]
    fn a_stretch_within_another() {
        let whole = Stretch { addr: 4096, len: 100 };
        for (addr, len, within) in
            [(4096, 100, true), (4196, 0, true), (4097, 100, false), (4095, 1, false), (4100, usize::MAX, false)]
        {
            assert_eq!(whole.contains(Stretch { addr, len }), within, "{addr} {len}");
        }
        assert_eq!(Stretch { addr: 4095, len: 2 }.pages(), 0..2);
        assert_eq!(Stretch { addr: 4096, len: 4096 }.pages(), 1..2);
    }
}
