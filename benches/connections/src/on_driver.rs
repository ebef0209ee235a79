//! One side on the driver that the arguments name.

use anyhow::Result;
use cmid_harness::{DriverName, Make, OnBlocking, OnEpoll, OnMio, OnTokio};
use cmid_proto::datapath::DataPath;

use crate::args::{Plan, Role};
use crate::point::Point;
use crate::side::{Deadline, Outcome, SLICE, Side};

/// Runs one side on a driver. `meet` is called with [`Point::Ready`] when a server listens or a client has begun, and
/// then at each further point, if the plan is to synchronize with the other side. Its failure ends the side.
pub(crate) fn run_on<D: DataPath>(
    driver: DriverName,
    device: D,
    role: Role,
    plan: Plan,
    meet: &mut dyn FnMut(Point) -> Result<()>,
) -> Result<Outcome> {
    match driver {
        DriverName::Mio => run(OnMio::make(device)?, role, plan, meet),
        DriverName::Epoll => run(OnEpoll::make(device)?, role, plan, meet),
        DriverName::Blocking => run(OnBlocking::make(device)?, role, plan, meet),
        DriverName::Tokio => run(OnTokio::make(device)?, role, plan, meet),
    }
}

fn run<D: DataPath, S: Make<D>>(
    mut driver: S,
    role: Role,
    plan: Plan,
    meet: &mut dyn FnMut(Point) -> Result<()>,
) -> Result<Outcome> {
    let deadline = Deadline::of(&plan);
    let mut side = Side::begin(driver.drive(), role, plan)?;
    meet(Point::Ready)?;
    while !side.is_over() && !deadline.is_past() {
        driver.wait(Some(SLICE))?;
        side.advance(driver.drive());
        side.keep_in_step(driver.drive(), meet)?;
    }
    Ok(side.conclude(driver.drive()))
}
