//! What drivers and the virtual loop have in common: a device with a data path inside, and a clock.

use cmid_datapath::DataPath;
use cmid_proto::{Device, Drive, Poller, Time, Watched};
use rustix::time::{ClockId, clock_gettime};

/// A device of a driver, around one with a data path.
pub(crate) trait Carrier: Device {
    type Path: DataPath;

    /// The clock by which phases are measured.
    const CLOCK: Clock;

    fn path(&mut self) -> &mut Self::Path;
}

impl<D: DataPath, P: Poller> Carrier for Watched<D, P> {
    type Path = D;

    const CLOCK: Clock = Clock::Monotonic;

    fn path(&mut self) -> &mut D {
        self
    }
}

/// Where the time of a measurement comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Clock {
    /// The system; the drivers' own clock.
    Monotonic,
    /// Whoever drives the core tells it.
    Told,
}

/// The time; the core is told of it.
pub(crate) fn now<W: Carrier>(drive: &mut Drive<W>) -> Time {
    if let Clock::Monotonic = W::CLOCK {
        let now = clock_gettime(ClockId::Monotonic);
        drive.set_now(Time((now.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(now.tv_nsec as u64)));
    }
    drive.now()
}
