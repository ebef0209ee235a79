//! How many completions a CQ has room for.

/// The depth of a completion queue (CQ), and how many work requests the work queues may have that report to it. Each work request
/// can leave a completion; one that does not fit overruns the CQ, and is lost (`IBV_EVENT_CQ_ERR`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CqRoom {
    depth: u32,
    reserved: u32,
}

/// A CQ is too small for the work queues that are to report to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("a CQ of depth {depth} has {reserved} work requests that report to it: {wanted} more overrun it")]
pub struct Overrun {
    /// How many completions the CQ holds.
    pub depth: u32,
    /// How many work requests the queues hold that report to it.
    pub reserved: u32,
    /// How many work requests the new queue holds.
    pub wanted: u32,
}

impl CqRoom {
    /// Of a CQ for so many completions, to which no queue reports.
    #[must_use]
    pub const fn new(depth: u32) -> Self {
        CqRoom { depth, reserved: 0 }
    }

    /// How many completions the CQ holds.
    #[must_use]
    pub const fn depth(self) -> u32 {
        self.depth
    }

    /// How many work requests the queues hold that report to it.
    #[must_use]
    pub const fn reserved(self) -> u32 {
        self.reserved
    }

    /// Whether a queue of so many work requests can report to it as well.
    ///
    /// # Errors
    /// [`Overrun`] if not.
    pub const fn check(self, wanted: u32) -> Result<(), Overrun> {
        let CqRoom { depth, reserved } = self;
        if wanted > depth.saturating_sub(reserved) { Err(Overrun { depth, reserved, wanted }) } else { Ok(()) }
    }

    /// A queue of so many work requests reports to it from now on.
    ///
    /// # Errors
    /// [`Overrun`] if its completions do not fit; nothing has changed then.
    pub const fn reserve(&mut self, wanted: u32) -> Result<(), Overrun> {
        match self.check(wanted) {
            Ok(()) => {
                self.reserved += wanted;
                Ok(())
            }
            Err(overrun) => Err(overrun),
        }
    }

    /// A queue of so many work requests is destroyed and none of its completions is left.
    pub const fn release(&mut self, reserved: u32) {
        self.reserved = self.reserved.saturating_sub(reserved);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queues_of_a_cq_count_together() {
        let mut room = CqRoom::new(16);
        assert_eq!(room.depth(), 16);
        assert_eq!(room.reserve(8), Ok(()));
        assert_eq!(room.reserve(8), Ok(()));
        assert_eq!(room.reserve(0), Ok(()));
        let overrun = Overrun { depth: 16, reserved: 16, wanted: 1 };
        assert_eq!((room.reserve(1), room.reserved()), (Err(overrun), 16));
        room.release(8);
        assert_eq!((room.reserve(9).map_err(|overrun| overrun.wanted), room.reserve(8)), (Err(9), Ok(())));
        assert_eq!(CqRoom::new(u32::MAX).check(u32::MAX), Ok(()));
    }
}
