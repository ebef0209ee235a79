//! Counts the instructions from a tick to its order with callgrind: of the round of the fast path that finds the tick,
//! in user space.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use cmid_epoll::proto::Time;
use cmid_epoll::proto::datapath::DataPath;
use rustix::event::{self, PollFd, PollFlags};
use rustix::time::Timespec;
use ticker::driver::now;
use ticker::reactor::{Reactor, Role};

use crate::devices::{On, OnDevices};
use crate::on_rdma::{RdmaTrader, RdmaVenue, start_trader};
use crate::venue::Venue as _;

/// The first port.
const FIRST: u16 = 7700;

/// Ticks that are not counted.
const WARM_UP: u64 = 20;

/// Ticks that are counted.
const COUNTED: u64 = 200;

/// The limit of each wait.
const LIMIT: Duration = Duration::from_secs(60);

/// The counted function. Its own few instructions are included.
#[inline(never)]
fn measured<D: DataPath>(trader: &mut RdmaTrader<D>, now: Time) -> Result<(), ticker::Error> {
    trader.poll(now)
}

/// Waits until a datagram has arrived, and leaves it in the queue. The trader must be armed.
fn await_datagram<D: DataPath>(trader: &mut RdmaTrader<D>) -> Result<()> {
    let fd = trader.fds().next().context("the group has no descriptor")?;
    let limit = Timespec { tv_sec: LIMIT.as_secs() as i64, tv_nsec: 0 };
    let ready = event::poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&limit))?;
    ensure!(ready == 1, "no datagram within {LIMIT:?}");
    Ok(())
}

/// Calls `holds` until it returns true.
fn await_that(what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let end = now().after(LIMIT);
    while !holds()? {
        ensure!(now() < end, "{what} did not come within {LIMIT:?}");
    }
    Ok(())
}

/// Sends ticks to a trader on the same thread.
pub(crate) struct Run;

impl OnDevices for Run {
    type Output = ();

    fn run<D: DataPath + 'static>(
        self,
        on: &On,
        venue: &(dyn Fn() -> Result<D> + Sync),
        local: &(dyn Fn() -> Result<D> + Sync),
    ) -> Result<()> {
        let mut venue = RdmaVenue::start(on, FIRST, venue)?;
        let mut reactor = Reactor::new(local()?);
        let mut trader = start_trader(on, FIRST, &mut reactor)?;
        let end = now().after(LIMIT);
        while !(venue.is_ready() && trader.is_live()) {
            venue.poll()?;
            reactor.round(&mut trader)?;
            ensure!(now() < end, "not connected");
        }
        for tick in 0..WARM_UP + COUNTED {
            let before = trader.orders().sent;
            // From here on only the exchange is polled, so the feed sends nothing but ticks.
            trader.arm()?;
            venue.publish()?;
            await_datagram(&mut trader)?;
            let time = reactor.drive().now();
            if tick < WARM_UP {
                trader.poll(time)?;
                // The feed may have sent a heartbeat before the first tick.
                await_that("an order", || Ok(trader.poll(time).map(|()| trader.orders().sent > before)?))?;
            } else {
                measured(&mut trader, time)?
            }
            ensure!(trader.orders().sent == before + 1, "tick {tick} caused no order: {:?}", trader.counts());
            await_that("an answer", || {
                venue.take_orders()?;
                trader.poll(time)?;
                Ok(trader.open_orders() == 0)
            })?;
        }
        Ok(())
    }
}

/// Returns the mean number of instructions, by running this program under callgrind.
pub(crate) fn count(on: &On) -> Result<f64> {
    let folder = tempfile::tempdir().context("a temporary folder")?;
    let out = folder.path().join("out");
    let status = Command::new("valgrind")
        .args(["--tool=callgrind", "--quiet", "--error-exitcode=9"])
        .arg(format!("--toggle-collect={}::measured*", module_path!()))
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(std::env::current_exe()?)
        .args(["run", "--device", on.device.name()])
        .args(["--venue", &on.venue.to_string(), "--local", &on.local.to_string()])
        .status()
        .context("valgrind, of the package valgrind")?;
    ensure!(status.success(), "valgrind: {status}");
    let text = std::fs::read_to_string(&out).context("callgrind's file")?;
    let total = text.lines().find_map(|line| line.strip_prefix("totals:")).context("no totals")?;
    let total: u64 = total.trim().parse().context("totals")?;
    ensure!(total > 0, "nothing was counted");
    Ok(total as f64 / COUNTED as f64)
}
