//! The common interface of drivers and the virtual loop: a device that contains a data path, and a clock.

use std::time::Duration;

use cmid_proto::datapath::DataPath;
use cmid_proto::{Device, Drive, PolledDevice, Poller, Time};

/// A driver's device that wraps one with a data path.
pub(crate) trait Backend: Device {
    type Path: DataPath;

    fn path(&mut self) -> &mut Self::Path;
}

impl<D: DataPath, P: Poller> Backend for PolledDevice<D, P> {
    type Path = D;

    fn path(&mut self) -> &mut D {
        self
    }
}

/// The present time, used to measure phases.
pub(crate) fn now<W: Backend>(drive: &Drive<W>) -> Time {
    drive.within(Duration::ZERO)
}
