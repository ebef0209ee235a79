//! One side in a mio `Poll`.

use anyhow::Result;
use cmid_datapath::DataPath;
use cmid_mio::{Config, Mio};
use cmid_proto::Limits;
use indicatif::ProgressBar;
use mio::{Events, Poll};

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
    let mut poll = Poll::new()?;
    let mut events = Events::with_capacity(64);
    // A channel for the connections, and the listener's own.
    let mut driver = Mio::new(device, poll.registry(), Config { limits: Limits::default(), tokens: 0..4 })?;
    let mut side = Side::begin(driver.drive(), role, plan, bar)?;
    ready();
    while !side.is_over() && !deadline.is_past() {
        let alone = alone.is_told();
        match poll.poll(&mut events, driver.timeout(Some(SLICE))) {
            Err(error) if error.kind() != std::io::ErrorKind::Interrupted => return Err(error.into()),
            Ok(()) | Err(_) => {}
        }
        for event in &events {
            driver.handle(event);
        }
        let _look = driver.turn();
        if !side.advance(driver.drive()) && alone {
            break;
        }
    }
    Ok(side.conclude(driver.drive()))
}
