//! The poller's copy of the rings of the work queues of a CQ, by index.

use std::sync::Arc;

use crate::accounting::wr_ring::WrRing;

/// The rings by index.
pub(crate) struct Rings {
    /// The rings; `nothing` where there is none. Their number is a power of two and at least 2. Ids with the same place
    /// then differ by more than 1, so the tokens of one do not continue those of another.
    rings: Box<[Arc<WrRing>]>,
    /// The number of rings minus 1.
    mask: usize,
    /// Those of even and of odd places.
    nothing: [Arc<WrRing>; 2],
}

impl Default for Rings {
    fn default() -> Self {
        let nothing = [0, 1].map(WrRing::nothing);
        Rings { rings: nothing.to_vec().into(), mask: 1, nothing }
    }
}

impl Rings {
    /// Makes room for this number of queues.
    pub(crate) fn reserve(&mut self, queues: usize) {
        if queues > self.rings.len() {
            let len = queues.next_power_of_two();
            let more = self.nothing.iter().cycle().take(len - self.rings.len());
            self.rings = self.rings.iter().chain(more).cloned().collect();
            self.mask = self.rings.len() - 1;
        }
    }

    /// Sets the ring with an index.
    pub(crate) fn set(&mut self, index: usize, wr_ring: Option<&Arc<WrRing>>) {
        if let Some(place) = self.rings.get_mut(index) {
            place.clone_from(wr_ring.unwrap_or(&self.nothing[index & 1]));
        }
    }

    /// Returns a copy of the reference. The copy stays in registers while completions are written.
    pub(crate) fn known(&self) -> Known<'_> {
        Known { rings: &self.rings, mask: self.mask }
    }

    /// Returns the number of places.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.rings.len()
    }
}

/// The rings that a poll looks up.
#[derive(Clone, Copy)]
pub(crate) struct Known<'a> {
    rings: &'a [Arc<WrRing>],
    mask: usize,
}

impl<'a> Known<'a> {
    /// Retires the work request of a polled completion, if it is the next one of a known queue, and returns the user's
    /// `wr_id`.
    pub(crate) fn retire_next(self, token: u64) -> Option<u64> {
        self.ring(token).retire_next(token)
    }

    /// Returns the ring of the index in this token, or of another index with the same place.
    pub(crate) fn ring(self, token: u64) -> &'a WrRing {
        // SAFETY: `index & mask` is at most `mask`, which is the number of rings minus 1: `Rings::default` and
        // `Rings::reserve` set both, and neither changes while they are borrowed.
        unsafe { self.rings.get_unchecked((token >> 32) as usize & self.mask) }
    }
}
