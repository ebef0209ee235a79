//! Measures the time from a tick to its order.
//!
//! One thread is the venue: it sends a tick, and takes the time until the order arrives. The trader is another thread.
//! The next tick follows a pause after the order.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use cmid_epoll::proto::Time;
use cmid_epoll::proto::datapath::DataPath;
use hdrhistogram::Histogram;
use rustix::thread::{CpuSet, sched_setaffinity};
use ticker::driver::now;

use crate::devices::{On, OnDevices};
use crate::results::Times;
use crate::venue::Venue;
use crate::{on_rdma, on_sockets};

/// Rounds of all traders in turn, so that a change of the machine's load concerns all of them.
const ROUNDS: u32 = 5;

/// Ticks before the first one that is measured.
const WARM_UP: u64 = 50;

/// The pause between an order and the next tick.
const PAUSE: Duration = Duration::from_micros(200);

/// The limit of an order, and of connecting.
const LIMIT: Duration = Duration::from_secs(60);

/// Runs a venue until it has measured all ticks.
pub(crate) fn run_venue(venue: &mut impl Venue, on: &On, histogram: &mut Histogram<u64>) -> Result<()> {
    let end = now().after(LIMIT);
    while !venue.is_ready() {
        poll(venue, on)?;
        ensure!(now() < end, "no trader within {LIMIT:?}");
    }
    // The trader may not be ready: it has no orders for the first ticks.
    let mut measured = 0;
    let end = now().after(LIMIT);
    while measured < WARM_UP + on.ticks {
        let (sent, begin) = (venue.publish()?, now());
        let mut passed = Duration::ZERO;
        while poll(venue, on)? < sent && passed < Duration::from_millis(200) {
            passed = since(begin);
        }
        if passed >= Duration::from_millis(200) {
            ensure!(now() < end.after(LIMIT), "no orders within {LIMIT:?}");
            continue;
        }
        measured += 1;
        if measured > WARM_UP {
            histogram.record(since(begin).as_nanos() as u64)?;
        }
        let pause = now();
        while since(pause) < PAUSE {
            poll(venue, on)?;
        }
    }
    Ok(())
}

/// Polls once. Returns the tick of the last order.
fn poll(venue: &mut impl Venue, on: &On) -> Result<u64> {
    on.after_poll();
    venue.poll()
}

/// Moves the thread to a CPU, if that is selected.
fn pin(on: &On, cpu: usize) -> Result<()> {
    if on.pin {
        let mut cpus = CpuSet::new();
        cpus.set(cpu);
        sched_setaffinity(None, &cpus).with_context(|| format!("CPU {cpu}"))?;
    }
    Ok(())
}

fn since(begin: Time) -> Duration {
    now().since(begin)
}

/// Runs a venue and a trader, each on a thread, until the venue ends.
fn pair(
    on: &On,
    venue: impl FnOnce() -> Result<()>,
    trader: impl FnOnce(&AtomicBool) -> Result<()> + Send,
) -> Result<()> {
    pin(on, 0)?;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| pin(on, 1).and_then(|()| trader(&stop)));
        let result = venue();
        stop.store(true, Ordering::Relaxed);
        let traded = thread.join().map_err(|_| anyhow!("the trader panicked"))?;
        result.and(traded)
    })
}

pub(crate) struct Measure;

impl OnDevices for Measure {
    type Output = Vec<Times>;

    fn run<D: DataPath + 'static>(
        self,
        on: &On,
        venue: &(dyn Fn() -> Result<D> + Sync),
        local: &(dyn Fn() -> Result<D> + Sync),
    ) -> Result<Vec<Times>> {
        let device = on.device.name();
        let names = [format!("{device}, polling"), format!("{device}, sleeping in epoll"), "UDP and TCP".to_owned()];
        let mut histograms = [(); 3].map(|()| Histogram::<u64>::new(3));
        for round in 0..ROUNDS {
            for (trader, histogram) in histograms.iter_mut().enumerate() {
                let histogram = histogram.as_mut().map_err(|error| anyhow!("{error}"))?;
                let sleeps = trader == 1;
                if trader < 2 {
                    // Each round has ports of its own.
                    let first = 7500 + 4 * round as u16 + 2 * trader as u16;
                    pair(
                        on,
                        || run_venue(&mut on_rdma::RdmaVenue::start(on, first, venue)?, on, histogram),
                        |stop| on_rdma::trade(on, first, local()?, sleeps, stop),
                    )?;
                } else {
                    let first = 7600 + 3 * round as u16;
                    pair(
                        on,
                        || run_venue(&mut on_sockets::SocketVenue::start(on, first)?, on, histogram),
                        |stop| on_sockets::trade(on, first, stop),
                    )?;
                }
            }
        }
        let histograms = names.iter().zip(&histograms);
        Ok(histograms.filter_map(|(name, it)| Some(Times::of(name, it.as_ref().ok()?))).collect())
    }
}
