//! Allocation of space for frames in the memory of a replica.

use std::collections::VecDeque;

/// The free space of a region that a leader writes frames into, one after the other. A frame is not split: if it does
/// not fit before the end of the region, it goes to the beginning.
#[derive(Clone, Debug)]
pub struct Room {
    len: u64,
    /// The number of bytes used since the grant, including bytes skipped at the end of the region.
    head: u64,
    /// The number of bytes of the frames that the replica has read.
    tail: u64,
    /// The ends of the frames that the replica has not read.
    ends: VecDeque<u64>,
    /// The number of frames that it has read.
    read: u64,
}

impl Room {
    /// Returns an empty region of `len` bytes.
    #[must_use]
    pub fn new(len: u32) -> Self {
        Room { len: len.into(), head: 0, tail: 0, ends: VecDeque::new(), read: 0 }
    }

    /// Reserves `len` bytes. Returns their offset; `None` if there is no room.
    pub fn reserve(&mut self, len: usize) -> Option<u32> {
        let len = len as u64;
        let at = self.head % self.len;
        let skipped = if at + len > self.len { self.len - at } else { 0 };
        if self.head + skipped + len > self.tail + self.len {
            return None;
        }
        let offset = (self.head + skipped) % self.len;
        self.head += skipped + len;
        self.ends.push_back(self.head);
        u32::try_from(offset).ok()
    }

    /// Frees the frames that the replica has read, by their number since the grant.
    pub fn release(&mut self, read: u64) {
        while self.read < read {
            let Some(end) = self.ends.pop_front() else { break };
            self.tail = end;
            self.read += 1;
        }
    }

    /// Returns the number of frames that are not read.
    #[must_use]
    pub fn frames(&self) -> usize {
        self.ends.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_not_split_and_overwrites_none_that_is_unread() {
        let mut room = Room::new(100);
        assert_eq!([room.reserve(40), room.reserve(40), room.reserve(40)], [Some(0), Some(40), None]);
        room.release(1);
        // 20 bytes are left at the end, 40 at the beginning.
        assert_eq!([room.reserve(41), room.reserve(40), room.reserve(1)], [None, Some(0), None]);
        room.release(3);
        assert_eq!((room.frames(), room.reserve(60), room.reserve(101)), (0, Some(40), None));
    }
}
