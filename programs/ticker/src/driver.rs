//! The driver of cmid for a loop that never waits.

use cmid_epoll::proto::datapath::DataPath;
use cmid_epoll::proto::{ChannelKey, Drive, Errno, Limits, Poller, Time};
use rustix::time::{ClockId, clock_gettime};

/// A driver: requests, events and the core, on a device with a poller.
pub type Driver<D, P> = Drive<D, P>;

/// A poller that waits for nothing. All channels are read in each run of the slow path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeverWaits {
    /// The time is that of `CLOCK_MONOTONIC`, which all programs of a machine share.
    Monotonic,
    /// The time is set by [`Drive::set_now`], for tests in virtual time.
    Virtual,
}

impl<D> Poller<D> for NeverWaits {
    fn add(&mut self, _: ChannelKey, _: &D) -> Result<(), Errno> {
        Ok(())
    }

    fn remove(&mut self, _: ChannelKey, _: &D) {}

    fn clock(&self) -> Option<Time> {
        match self {
            NeverWaits::Monotonic => Some(now()),
            NeverWaits::Virtual => None,
        }
    }
}

/// Creates a driver that never waits.
#[must_use]
pub fn driver<D: DataPath>(device: D, poller: NeverWaits) -> Driver<D, NeverWaits> {
    Drive::with(device, poller, (), Limits::default().numbered())
}

/// Reads `CLOCK_MONOTONIC`.
#[must_use]
pub fn now() -> Time {
    let now = clock_gettime(ClockId::Monotonic);
    Time(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}
