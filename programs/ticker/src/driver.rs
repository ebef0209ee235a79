//! A poller for a loop that never waits.

use cmid_epoll::proto::{ChannelKey, Errno, Poller, Time};
use rustix::time::{ClockId, clock_gettime};

/// All channels are read in each run of the slow path. The time is that of `CLOCK_MONOTONIC`, which all programs of a
/// machine share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeverWaits;

impl<D> Poller<D> for NeverWaits {
    fn add(&mut self, _: ChannelKey, _: &D) -> Result<(), Errno> {
        Ok(())
    }

    fn remove(&mut self, _: ChannelKey, _: &D) {}

    fn clock(&self) -> Option<Time> {
        Some(now())
    }
}

/// Reads `CLOCK_MONOTONIC`.
#[must_use]
pub fn now() -> Time {
    let now = clock_gettime(ClockId::Monotonic);
    Time(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}
