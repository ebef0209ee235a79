//! One side on cmid's epoll driver.

use anyhow::Result;
use cmid_datapath::DataPath;
use cmid_epoll::{Config, Epoll};
use indicatif::ProgressBar;

use crate::args::{Plan, Role};
use crate::side::{Alone, Deadline, Outcome, SLICE, Side};

/// `ready` is called when a server listens, and a client has begun.
pub(crate) fn run<D: DataPath>(
    device: D,
    role: Role,
    plan: Plan,
    bar: ProgressBar,
    alone: &Alone,
    ready: impl FnOnce(),
) -> Result<Outcome> {
    let deadline = Deadline::of(&plan);
    let mut driver = Epoll::new(device, Config::default())?;
    let mut side = Side::begin(driver.drive(), role, plan, bar)?;
    ready();
    while !side.is_over() && !deadline.is_past() {
        let alone = alone.is_told();
        driver.wait(Some(SLICE))?;
        if !side.advance(driver.drive()) && alone {
            break;
        }
    }
    Ok(side.conclude(driver.drive()))
}
