//! Instructions in user space of cmid and C, for each job.

use std::ffi::OsString;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use crate::job::Job;
use crate::mark::PARTS;
use crate::measure::callgrind::{self, Counted, Counts, Origin};
use crate::measure::process::{self, Server, words};
use crate::measure::rows::{Figures, Row};
use crate::measure::{ADDRESS, Programs};
use crate::work::AT_ONCE;

/// One job, its counted unit, and the target of the ratio of cmid's figure to C's.
struct Count {
    job: &'static str,
    what: &'static str,
    /// The ratio of the first version, on io-epoll.
    before: Option<&'static str>,
    target: f64,
    /// The maximum of the median ratio: the observed value, and a few per cent more. Messages need more room: the
    /// number of completions at a wake-up depends on timing. So does the data path, where two builds in two folders
    /// were observed to differ by 6 %, because the compiler's inlining varies. C's own count of a connection varies
    /// by 1.2 % from run to run.
    limit: f64,
    /// The same on io-mio, which is edge-triggered: after it has emptied a channel, one more read finds nothing. The
    /// data path is not counted there.
    mio_limit: f64,
}

const COUNTS: &[Count] = &[
    Count {
        job: "qp-1:20",
        what: "a connection with a QP, one at a time",
        before: Some("2.61"),
        target: 1.35,
        limit: 1.43,
        mio_limit: 1.62,
    },
    Count {
        job: "qp-16:32",
        what: "a connection with a QP, 16 at once",
        before: Some("2.70"),
        target: 1.5,
        limit: 1.72,
        mio_limit: 1.97,
    },
    Count {
        job: "bare-1:20",
        what: "a connection without a QP, one at a time",
        before: Some("3.44"),
        target: 1.6,
        limit: 1.67,
        mio_limit: 1.99,
    },
    Count {
        job: "messages:50",
        what: "a message there and back, awaited by poll(2)",
        before: None,
        target: 1.05,
        limit: 2.0,
        mio_limit: 2.0,
    },
    Count {
        job: "write:3",
        what: "an RDMA write posted and polled",
        before: None,
        target: 1.02,
        limit: 1.42,
        mio_limit: 1.42,
    },
    Count {
        job: "send:3",
        what: "a receive and a send posted and both polled",
        before: None,
        target: 1.02,
        limit: 1.6,
        mio_limit: 1.6,
    },
];

/// From this glibc on, as in Debian 13, C needs 7 % fewer instructions for a connection than in Debian 12, and cmid 1
/// % fewer. cmid does not cost more there, but the ratio is 7 % higher.
const CHEAPER_C: [u32; 2] = [2, 41];
const CHEAPER_BY: f64 = 1.07;

/// The limit of the ratio on this driver with this glibc.
fn limit(count: &Count, job: Job, driver: &str, glibc: [u32; 2]) -> f64 {
    let limit = if driver == "mio" { count.mio_limit } else { count.limit };
    match job {
        Job::Serve { .. } | Job::Connections { .. } if glibc >= CHEAPER_C => limit * CHEAPER_BY,
        Job::Serve { .. } | Job::Connections { .. } | Job::Messages { .. } | Job::Writes { .. } | Job::Sends { .. } => {
            limit
        }
    }
}

/// The version of the system's glibc.
fn glibc() -> Result<[u32; 2]> {
    let said = process::run(&words(Path::new("getconf"), "GNU_LIBC_VERSION"))?;
    version(&said).with_context(|| format!("getconf says {said:?}"))
}

/// Parses text such as "glibc 2.41".
fn version(said: &str) -> Option<[u32; 2]> {
    let (major, minor) = said.trim().strip_prefix("glibc ")?.split_once('.')?;
    Some([major.parse().ok()?, minor.parse().ok()?])
}

/// Connections accepted in each part.
const ACCEPTED: u32 = 20;

/// Counts the active side and the data path.
pub(crate) fn active(programs: &Programs, drivers: &[&str], port: &mut u16) -> Result<Vec<Row>> {
    *port += 1;
    let port = *port;
    let _server = Server::listening(&words(&programs.c, &format!("{ADDRESS} {port} serve:0")), port)?;
    let jobs: Vec<_> = COUNTS.iter().map(|count| count.job).collect();
    let (jobs, marks) = (jobs.join(" "), COUNTS.len() * PARTS as usize);
    let theirs = callgrind::run(&words(&programs.c, &format!("{ADDRESS} {port} {jobs}")), marks)?;
    let (mut rows, glibc) = (Vec::new(), glibc()?);
    for driver in drivers {
        let ours = words(&programs.ours, &format!("jobs --driver {driver} {ADDRESS}:{port} {jobs}"));
        let ours = callgrind::run(&ours, marks)?;
        for (number, count) in COUNTS.iter().enumerate() {
            let job: Job = count.job.parse()?;
            let is_data_path = matches!(job, Job::Writes { .. } | Job::Sends { .. });
            if is_data_path && *driver != drivers[0] {
                // The data path does not depend on the driver.
                continue;
            }
            let parts = |counts: &[Counts]| part_counts(counts, number);
            let on = if is_data_path { String::new() } else { format!(", cmid-{driver}") };
            rows.push(row(
                count,
                format!("instructions over C: {}{on}", count.what),
                job,
                limit(count, job, driver, glibc),
                [parts(&ours), parts(&theirs)],
            ));
        }
    }
    Ok(rows)
}

/// Counts the passive side: the server.
pub(crate) fn passive(programs: &Programs, drivers: &[&str], port: &mut u16) -> Result<Vec<Row>> {
    *port += 1;
    let job = Job::Serve { count: ACCEPTED };
    let theirs = words(&programs.c, &format!("{ADDRESS} {port} serve:{ACCEPTED}"));
    let theirs = serve(programs, &theirs, *port)?;
    let (mut rows, glibc) = (Vec::new(), glibc()?);
    for driver in drivers {
        *port += 1;
        let arguments = format!("jobs --driver {driver} {ADDRESS}:{port} serve:{ACCEPTED}");
        let ours = serve(programs, &words(&programs.ours, &arguments), *port)?;
        let what = format!("instructions over C: a connection accepted, with a QP, one at a time, cmid-{driver}");
        let count = Count { job: "serve", what: "", before: Some("2.88"), target: 1.5, limit: 1.76, mio_limit: 2.03 };
        let limit = limit(&count, job, driver, glibc);
        rows.push(row(&count, what, job, limit, [part_counts(&ours, 0), part_counts(&theirs, 0)]));
    }
    Ok(rows)
}

/// Runs a server under callgrind, with the C program as its client.
fn serve(programs: &Programs, server: &[OsString], port: u16) -> Result<Vec<Counts>> {
    let client = words(&programs.c, &format!("{ADDRESS} {port} qp-1:{ACCEPTED}"));
    let mut server = Counted::start(server)?;
    server.process.wait_for_listener(port)?;
    process::run(&client)?;
    server.end(PARTS as usize)
}

/// The parts of one job without the first.
fn part_counts(counts: &[Counts], job: usize) -> Vec<Counts> {
    counts.iter().skip(job * PARTS as usize).take(PARTS as usize).skip(1).cloned().collect()
}

fn row(count: &Count, what: String, job: Job, limit: f64, [ours, theirs]: [Vec<Counts>; 2]) -> Row {
    let before = if what.ends_with("cmid-epoll") { count.before } else { None };
    let times = f64::from(job.times());
    let pairs = ours.iter().zip(&theirs);
    let pairs = pairs.map(|(ours, theirs)| [ours.total() as f64 / times, theirs.total() as f64 / times]).collect();
    let mut note = format!("ours: {}; C: {}", shares(&ours, times), shares(&theirs, times));
    if let Some(reason) = reason(job) {
        note = format!("{note}. {reason}");
    }
    let (figures, limit) = (Figures::Pairs(pairs), Some(limit));
    Row {
        what,
        unit: "instructions",
        before,
        target: Some(count.target),
        // Not equal for all parts: the number of events at a wake-up depends on timing.
        exact: false,
        figures,
        note: Some(note),
        limit,
    }
}

/// The reason for the excess.
fn reason(job: Job) -> Option<&'static str> {
    match job {
        Job::Writes { .. } | Job::Sends { .. } => Some(
            "Part of the excess is the measuring program's own (program); verbs is the accounting of work requests in \
             flight, which is what pins an MR.",
        ),
        Job::Serve { .. } | Job::Connections { .. } => Some(
            "What C's program does not have is the core, with two lists, a deadline and a key for each id, and in verbs \
             the copy of each event. librdmacm's share is above C's where one event comes at a wake-up, and nearly C's \
             where many do: the excess goes with wake-ups, not with calls for a connection.",
        ),
        Job::Messages { .. } => None,
    }
}

/// The mean numbers of instructions by origin.
fn shares(parts: &[Counts], times: f64) -> String {
    let mean =
        |origin| parts.iter().filter_map(|part| part.0.get(&origin)).sum::<u64>() as f64 / times / parts.len() as f64;
    let shares = Origin::ALL.iter().map(|(origin, name)| (name, mean(*origin))).filter(|(_, mean)| *mean >= 0.5);
    shares.map(|(name, mean)| format!("{name} {mean:.0}")).collect::<Vec<_>>().join(", ")
}

impl Job {
    /// The number of repetitions in a part.
    fn times(self) -> u32 {
        match self {
            Job::Serve { count } | Job::Connections { count, .. } | Job::Messages { count } => count,
            Job::Writes { batches } | Job::Sends { batches } => batches * AT_ONCE as u32,
        }
    }
}

/// # Errors
/// One of them exceeds its limit.
pub(crate) fn hold(rows: &[Row]) -> Result<()> {
    let broken: Vec<_> = rows.iter().filter_map(|row| row.hold().err()).map(|error| error.to_string()).collect();
    ensure!(broken.is_empty(), "{}", broken.join("\n"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_connections_are_those_of_the_glibc() {
        let (old, new) = (version("glibc 2.36\n").unwrap(), version("glibc 2.41\n").unwrap());
        let limits = |count: &Count| {
            let job = count.job.parse().unwrap();
            [old, new].map(|glibc| ["epoll", "mio"].map(|driver| limit(count, job, driver, glibc)))
        };
        let both = [COUNTS[0].limit, COUNTS[0].mio_limit];
        assert_eq!(limits(&COUNTS[0]), [both, both.map(|limit| limit * CHEAPER_BY)]);
        assert_eq!(limits(&COUNTS[4]), [[COUNTS[4].limit; 2]; 2]);
        assert!(version("musl 1.2").is_none() && version("").is_none());
    }
}
