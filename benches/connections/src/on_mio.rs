//! One side in a mio `Poll`.

use anyhow::Result;
use cmid_mio::{Config, Mio};
use cmid_proto::Limits;
use cmid_proto::datapath::DataPath;
use indicatif::ProgressBar;
use mio::{Events, Poll};

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
    let mut poll = Poll::new()?;
    let mut events = Events::with_capacity(64);
    // A channel for the connections, and the listener's own.
    let mut driver = Mio::new(device, poll.registry(), Config { limits: Limits::default(), tokens: 0..4 })?;
    let mut side = Side::begin(driver.drive(), role, plan, bar)?;
    meet(Point::Ready)?;
    while !side.is_over() && !deadline.is_past() {
        let alone = alone.is_set();
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
        side.keep_in_step(driver.drive(), meet)?;
    }
    Ok(side.conclude(driver.drive()))
}
