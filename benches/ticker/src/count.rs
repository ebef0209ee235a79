//! Counts the instructions from a tick to its order with callgrind: of the round of the fast path that finds the tick,
//! in user space.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use cmid_epoll::proto::Time;
use cmid_epoll::proto::datapath::DataPath;
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

/// The time that a tick and an answer are given to arrive.
const PAUSE: Duration = Duration::from_millis(20);

/// The counted function. Its own few instructions are included.
#[inline(never)]
fn measured<D: DataPath>(trader: &mut RdmaTrader<D>, now: Time) -> Result<(), ticker::Error> {
    trader.poll(now)
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
        let end = now().after(Duration::from_secs(120));
        while !(venue.is_ready() && trader.is_live()) {
            venue.poll()?;
            reactor.round(&mut trader)?;
            ensure!(now() < end, "not connected");
        }
        for tick in 0..WARM_UP + COUNTED {
            let before = trader.orders().sent;
            venue.publish()?;
            std::thread::sleep(PAUSE);
            let time = reactor.drive().now();
            if tick < WARM_UP {
                trader.poll(time)?
            } else {
                measured(&mut trader, time)?
            }
            // Also the first one causes an order, although it begins the session: the heartbeat was before.
            ensure!(trader.orders().sent == before + 1, "tick {tick} caused no order: {:?}", trader.counts());
            std::thread::sleep(PAUSE);
            venue.poll()?;
            std::thread::sleep(PAUSE);
            // Takes the answer.
            trader.poll(time)?;
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
