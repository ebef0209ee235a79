//! One side on cmid's epoll driver.

use anyhow::Result;
use cmid_epoll::{Config, Epoll};
use cmid_proto::datapath::DataPath;
use indicatif::ProgressBar;

use crate::args::{Plan, Role};
use crate::point::Point;
use crate::side::{Alone, Deadline, Outcome, SLICE, Side};

/// `meet` is called with [`Point::Ready`] when a server listens or a client has begun, and then at each further
/// point, if the plan is to synchronize with the other side. Its failure ends the side.
pub(crate) fn run<D: DataPath>(
    device: D,
    role: Role,
    plan: Plan,
    bar: ProgressBar,
    alone: &Alone,
    meet: &mut dyn FnMut(Point) -> Result<()>,
) -> Result<Outcome> {
    let deadline = Deadline::of(&plan);
    let mut driver = Epoll::new(device, Config::default())?;
    let mut side = Side::begin(driver.drive(), role, plan, bar)?;
    meet(Point::Ready)?;
    while !side.is_over() && !deadline.is_past() {
        let alone = alone.is_set();
        driver.wait(Some(SLICE))?;
        if !side.advance(driver.drive()) && alone {
            break;
        }
        side.keep_in_step(driver.drive(), meet)?;
    }
    Ok(side.conclude(driver.drive()))
}
