//! The room for completions in a CQ.

use super::CreateReason;

/// The depth of a completion queue (CQ), and the number of work requests of the work queues that use it. Each work
/// request can produce a completion. A completion without room overruns the CQ and is lost (`IBV_EVENT_CQ_ERR`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CqRoom {
    depth: u32,
    reserved: u32,
}

/// A CQ is too small for the work queues that would use it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{wanted} more work requests would overrun the CQ of depth {depth}, which has {reserved} already")]
pub struct Overrun {
    /// The depth of the CQ, in completions.
    pub depth: u32,
    /// The number of work requests of the queues that report to it.
    pub reserved: u32,
    /// The number of work requests of the new queue.
    pub wanted: u32,
}

impl CqRoom {
    /// Creates the room of a CQ with this depth and no work queues.
    #[must_use]
    pub const fn new(depth: u32) -> Self {
        CqRoom { depth, reserved: 0 }
    }

    /// The depth of the CQ, in completions.
    #[must_use]
    pub const fn depth(self) -> u32 {
        self.depth
    }

    /// The number of work requests of the queues that report to it.
    #[must_use]
    pub const fn reserved(self) -> u32 {
        self.reserved
    }

    /// Checks whether another queue of this many work requests fits.
    ///
    /// # Errors
    /// [`Overrun`] if its completions do not fit.
    pub const fn check(self, wanted: u32) -> Result<(), Overrun> {
        let CqRoom { depth, reserved } = self;
        if wanted > depth.saturating_sub(reserved) { Err(Overrun { depth, reserved, wanted }) } else { Ok(()) }
    }

    /// Adds a queue of this many work requests.
    ///
    /// # Errors
    /// [`Overrun`] if its completions do not fit. Nothing has changed then.
    pub const fn reserve(&mut self, wanted: u32) -> Result<(), Overrun> {
        match self.check(wanted) {
            Ok(()) => {
                self.reserved += wanted;
                Ok(())
            }
            Err(overrun) => Err(overrun),
        }
    }

    /// Checks whether the CQ can have another depth.
    ///
    /// # Errors
    /// [`CreateReason::Reserved`] if the completions of its queues would not fit.
    pub const fn check_depth(self, depth: u32) -> Result<(), CreateReason> {
        let reserved = self.reserved;
        if depth < reserved { Err(CreateReason::Reserved { depth, reserved }) } else { Ok(()) }
    }

    /// Returns the room with another depth, as the device has it after a resize.
    #[must_use]
    pub const fn with_depth(self, depth: u32) -> Self {
        CqRoom { depth, ..self }
    }

    /// Removes a queue of this many work requests. Call it after the queue's last completion was polled.
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

    #[test]
    fn a_depth_below_what_is_reserved_is_refused() {
        let mut room = CqRoom::new(16);
        room.reserve(9).unwrap();
        assert_eq!(room.check_depth(8), Err(CreateReason::Reserved { depth: 8, reserved: 9 }));
        assert_eq!((room.check_depth(9), room.with_depth(9).check(0)), (Ok(()), Ok(())));
        assert_eq!(room.with_depth(32).check(23), Ok(()));
    }
}
