//! One side on the driver that the arguments name.

use anyhow::Result;
use cmid_proto::datapath::DataPath;
use indicatif::ProgressBar;

use crate::args::{DriverName, Plan, Role};
use crate::point::Point;
use crate::side::{Alone, Outcome};
use crate::{on_epoll, on_mio};

/// Runs one side on a driver. The driver's `run` documents `meet`.
pub(crate) fn run_on<D: DataPath>(
    driver: DriverName,
    device: D,
    role: Role,
    plan: Plan,
    bar: ProgressBar,
    alone: &Alone,
    meet: &mut dyn FnMut(Point) -> Result<()>,
) -> Result<Outcome> {
    match driver {
        DriverName::Mio => on_mio::run(device, role, plan, bar, alone, meet),
        DriverName::Epoll => on_epoll::run(device, role, plan, bar, alone, meet),
    }
}
