//! What a run is on: a driver and a device.

use clap::{Args, ValueEnum};
use cmid_harness::DeviceName;

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct On {
    /// The driver.
    #[arg(long, value_enum, default_value_t = Driver::Epoll)]
    pub(crate) driver: Driver,
    /// The device.
    #[arg(long, value_enum, default_value_t = DeviceName::Sim)]
    pub(crate) device: DeviceName,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Driver {
    Mio,
    Epoll,
}
