//! How many commands a second, and how long each takes.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use cmid_nvme::initiator::{On, Ticket};
use cmid_nvme::wire;

use crate::args::Bench;
use crate::print;
use crate::session::Session;

/// The processor time of all threads so far (`/proc/self/task/*/schedstat`, in nanoseconds).
fn processor_time() -> Duration {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let times = threads.filter_map(|thread| {
        let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(times.sum())
}

pub(crate) fn run(session: &mut Session, nsid: u32, bench: &Bench) -> Result<()> {
    let id = session.namespace(nsid)?;
    let Bench { write, io_size, queue_depth, seconds, mut commands, table, copy: _ } = *bench;
    let blocks = io_size / id.block();
    ensure!(
        blocks > 0 && io_size % id.block() == 0,
        "--io-size is not a multiple of the block of {} bytes",
        id.block()
    );
    ensure!(
        io_size <= session.initiator.transfer_max(),
        "--io-size is above what the controller and --max-transfer permit"
    );
    let places = id.size / blocks as u64;
    ensure!(places > 0, "the namespace is shorter than --io-size");
    let begun = Instant::now();
    // A command begins when the last one has ended: the clock is read once for both.
    let mut now = begun;
    let until = begun + Duration::from_secs(seconds.into());
    let (processor, mut times) = (processor_time(), Vec::new());
    // In the order of their submission, in which they mostly end.
    let mut pending: VecDeque<(Ticket, Instant)> = VecDeque::new();
    // The buffers come back with the ends.
    let mut buffers: Vec<_> = (0..queue_depth).map(|_| session.initiator.buffer(io_size)).collect();
    loop {
        while commands > 0 && now < until {
            // One for each command that can be outstanding.
            let Some(buffer) = buffers.pop() else { break };
            commands -= 1;
            let (lba, count) = (fastrand::u64(..places) * blocks as u64, blocks as u16);
            let command =
                if write { wire::write(nsid, lba, count, buffer) } else { wire::read(nsid, lba, count, buffer) };
            match session.initiator.submit(On::Io, command) {
                Ok(ticket) => pending.push_back((ticket, now)),
                Err(_) => bail!("too many commands wait"),
            };
        }
        if pending.is_empty() {
            break;
        }
        let ended = session.wait()?;
        now = Instant::now();
        let at = pending.iter().position(|(ticket, _)| *ticket == ended.ticket);
        let (_, since) = at.and_then(|at| pending.remove(at)).context("a command has ended twice")?;
        times.push(now - since);
        buffers.extend(ended.into_data().context("a command of the measurement")?);
    }
    let (span, processor) = (begun.elapsed(), processor_time().saturating_sub(processor));
    let mut at = |per_mille: usize| {
        let place = times.len() * per_mille / 1000;
        if times.is_empty() { Duration::ZERO } else { *times.select_nth_unstable(place).1 }
    };
    let (p50, p99) = (at(500), at(990));
    let (count, kind) = (times.len().max(1) as f64, if write { "writes" } else { "reads" });
    let (rate, each) = (count / span.as_secs_f64(), processor.as_secs_f64() * 1e6 / count);
    if table {
        return print(format_args!("{rate:.0} {} {} {each:.0}", p50.as_micros(), p99.as_micros()));
    }
    print(format_args!(
        "{} random {kind} of {io_size} bytes at depth {queue_depth}: {rate:.0} a second, p50 {p50:?}, p99 {p99:?}, \
         {each:.0} us of processor each",
        times.len(),
    ))
}
