//! What drivers and the virtual loop have in common: a device with a data path inside, and a clock.

use std::time::Duration;

use cmid_datapath::DataPath;
use cmid_proto::{Device, Drive, PolledDevice, Poller, Time};

/// A device of a driver, around one with a data path.
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

/// The present time, by which phases are measured.
pub(crate) fn now<W: Backend>(drive: &Drive<W>) -> Time {
    drive.within(Duration::ZERO)
}
