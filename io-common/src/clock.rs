//! The clock.

use cmid_proto::Time;
use rustix::time::{ClockId, clock_gettime};

/// Reads `CLOCK_MONOTONIC`, in nanoseconds. All drivers of a machine share it, so an id keeps its deadline when it moves to
/// another driver.
#[must_use]
pub fn now() -> Time {
    let now = clock_gettime(ClockId::Monotonic);
    // The clock starts at 0 when the machine boots, so the nanoseconds overflow after 584 years.
    Time(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}
