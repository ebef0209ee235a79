//! Instructions in user space of cmid and C, for each job.

use std::ffi::OsString;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use cmid_bench::results::{Row, Target};
use cmid_verbs::Backend;

use crate::job::Job;
use crate::mark::parts;
use crate::measure::callgrind::{self, Counted, Counts, Origin};
use crate::measure::process::{self, Server, words};
use crate::measure::programs::{ADDRESS, Programs};
use crate::measure::rows;
use crate::work::AT_ONCE;

/// One job, its counted unit, and its figures for each backend.
struct Count {
    job: &'static str,
    /// The job of the C program that it is compared with.
    c: &'static str,
    what: &'static str,
    /// `None` for jobs that are counted on the kernel backend only.
    librdmacm: Option<Bounds>,
    /// `None` for jobs that do not depend on the backend.
    kernel: Option<Bounds>,
}

/// The target of the ratio of cmid's figure to C's, and the maximum of the median ratio.
///
/// The maximum is the observed value, and a few per cent more. Messages need more room: the number of completions at a
/// wake-up depends on timing. So does the data path, where two builds in two folders were observed to differ by 6 %,
/// because the compiler's inlining varies. C's own count of a connection varies by 1.2 % from run to run.
#[derive(Clone, Copy)]
struct Bounds {
    target: f64,
    epoll: f64,
    /// The data path is not counted there.
    mio: f64,
}

/// Bounds of [`Count`]: the target, and the maximum on each driver.
const fn bounds(target: f64, epoll: f64, mio: f64) -> Option<Bounds> {
    Some(Bounds { target, epoll, mio })
}

/// A job about connections.
const fn connection(job: &'static str, what: &'static str, librdmacm: Option<Bounds>, kernel: Option<Bounds>) -> Count {
    Count { job, c: job, what, librdmacm, kernel }
}

/// A job that does not depend on driver and backend, and that of C.
const fn data(job: &'static str, c: &'static str, what: &'static str, target: f64, maximum: f64) -> Count {
    Count { job, c, what, librdmacm: bounds(target, maximum, maximum), kernel: None }
}

/// One line each.
#[rustfmt::skip]
const COUNTS: &[Count] = &[
    connection("qp-1:20", "a connection with a QP", bounds(1.35, 1.70, 1.68), bounds(0.75, 1.20, 1.20)),
    connection("qp-16:32", "a connection with a QP, 16 at once", None, bounds(0.8, 1.45, 1.39)),
    connection("bare-1:20", "a connection without a QP", None, bounds(0.6, 1.19, 1.19)),
    data("messages:50", "messages:50", "a message there and back, awaited by poll(2)", 1.05, 2.0),
    data("write:3", "write:3", "an RDMA write posted and polled", 0.98, 1.06),
    data("write:3", "write-extended:3", "an RDMA write posted and polled, C with ibv_wr_post", 1.06, 1.33),
    data("send:3", "send:3", "a receive and a send posted and both polled", 1.03, 1.15),
    data("send-srq:3", "send-srq:3", "a receive posted to an SRQ and a send, and both polled", 1.1, 1.28),
    data("write-block:3", "write:3", "an RDMA write of a block posted, polled and reclaimed", 1.0, 1.45),
    data("send-block:3", "send:3", "a receive and a send of blocks posted, both polled and reclaimed", 1.03, 1.6),
    data("write-block-batch:3", "write-batch:3", "32 RDMA writes of blocks posted in one call, polled in one and reclaimed, for each", 0.91, 1.95),
    data("write-batch:3", "write-batch:3", "32 RDMA writes posted in one call and polled in one, for each", 0.91, 1.01),
    data("write-batch:3", "write-batch-extended:3", "32 RDMA writes posted in one call and polled in one, for each, C with ibv_wr_post", 1.15, 1.43),
];

/// A connection accepted.
const SERVE: Count =
    connection("serve", "a connection accepted, with a QP", bounds(1.5, 1.92, 2.03), bounds(0.95, 1.52, 1.54));

/// A driver and a backend.
#[derive(Clone, Copy)]
pub(crate) struct Variant {
    pub(crate) driver: &'static str,
    pub(crate) backend: Backend,
}

impl Variant {
    pub(crate) fn arguments(self) -> String {
        format!("jobs --driver {} --backend {}", self.driver, self.backend)
    }

    /// The end of a row's name.
    pub(crate) fn name(self) -> String {
        let on = if self.backend == Backend::Kernel { ", kernel backend" } else { "" };
        format!(", cmid-{}{on}", self.driver)
    }

    fn bounds(self, count: &Count) -> Option<Bounds> {
        if self.backend == Backend::Kernel { count.kernel } else { count.librdmacm }
    }
}

/// From this glibc on, as in Debian 13, C needs 7 % fewer instructions for a connection than in Debian 12, and cmid 1
/// % fewer. cmid does not cost more there, but the ratio is 7 % higher.
const CHEAPER_C: [u32; 2] = [2, 41];
const CHEAPER_BY: f64 = 1.07;

/// The limit of the ratio on this driver with this glibc.
fn limit(bounds: Bounds, job: Job, driver: &str, glibc: [u32; 2]) -> f64 {
    let limit = if driver == "mio" { bounds.mio } else { bounds.epoll };
    match job {
        Job::Serve { .. } | Job::Connections { .. } if glibc >= CHEAPER_C => limit * CHEAPER_BY,
        Job::Serve { .. } | Job::Connections { .. } | Job::Messages { .. } | Job::Work { .. } => limit,
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
pub(crate) fn active(programs: &Programs, variants: &[Variant], port: &mut u16) -> Result<Vec<Row>> {
    *port += 1;
    let port = *port;
    let _server = Server::listening(&words(&programs.c, &format!("{ADDRESS} {port} serve:0")), port)?;
    let of_c = COUNTS.iter().map(|count| count.c);
    let theirs = Jobs::run(of_c, |jobs| words(&programs.c, &format!("{ADDRESS} {port} {jobs}")))?;
    let (mut rows, glibc) = (Vec::new(), glibc()?);
    for (first, variant) in variants.iter().enumerate().map(|(number, variant)| (number == 0, *variant)) {
        let of_driver = |count: &&Count| variant.bounds(count).is_some() && (first || is_connection(count));
        let counted: Vec<_> = COUNTS.iter().filter(of_driver).collect();
        let ours = Jobs::run(counted.iter().map(|count| count.job), |jobs| {
            words(&programs.ours, &format!("{} {ADDRESS}:{port} {jobs}", variant.arguments()))
        })?;
        for count in counted {
            if let Some(bounds) = variant.bounds(count) {
                let counts = [ours.parts(count.job), theirs.parts(count.c)];
                rows.push(row(count, variant, bounds, glibc, count.job.parse()?, counts));
            }
        }
    }
    Ok(rows)
}

/// Jobs that one program has run one after the other.
struct Jobs<'a> {
    names: Vec<&'a str>,
    counts: Vec<Counts>,
}

impl<'a> Jobs<'a> {
    /// Runs each job once, by the command that is made for their names.
    fn run(names: impl Iterator<Item = &'a str>, command: impl FnOnce(&str) -> Vec<OsString>) -> Result<Self> {
        let mut each: Vec<&str> = Vec::new();
        for name in names {
            if !each.contains(&name) {
                each.push(name);
            }
        }
        let counts = callgrind::run(&command(&each.join(" ")), each.len() * parts() as usize)?;
        Ok(Jobs { names: each, counts })
    }

    /// The parts of a job without the first.
    fn parts(&self, name: &str) -> Vec<Counts> {
        let at = self.names.iter().position(|job| *job == name);
        at.map(|at| part_counts(&self.counts, at)).unwrap_or_default()
    }
}

/// Whether the job is about connections. The others do not depend on driver and backend.
fn is_connection(count: &Count) -> bool {
    count.kernel.is_some()
}

/// Counts the passive side: the server.
pub(crate) fn passive(programs: &Programs, variants: &[Variant], port: &mut u16) -> Result<Vec<Row>> {
    *port += 1;
    let job = Job::Serve { count: ACCEPTED };
    let theirs = words(&programs.c, &format!("{ADDRESS} {port} serve:{ACCEPTED}"));
    let theirs = serve(programs, &theirs, *port)?;
    let (mut rows, glibc) = (Vec::new(), glibc()?);
    for &variant in variants {
        *port += 1;
        let arguments = format!("{} {ADDRESS}:{port} serve:{ACCEPTED}", variant.arguments());
        let ours = serve(programs, &words(&programs.ours, &arguments), *port)?;
        if let Some(bounds) = variant.bounds(&SERVE) {
            let counts = [part_counts(&ours, 0), part_counts(&theirs, 0)];
            rows.push(row(&SERVE, variant, bounds, glibc, job, counts));
        }
    }
    Ok(rows)
}

/// Runs a server under callgrind, with the C program as its client.
fn serve(programs: &Programs, server: &[OsString], port: u16) -> Result<Vec<Counts>> {
    let client = words(&programs.c, &format!("{ADDRESS} {port} qp-1:{ACCEPTED}"));
    let mut server = Counted::start(server)?;
    server.process.wait_for_listener(port)?;
    process::run(&client)?;
    server.end(parts() as usize)
}

/// The parts of one job without the first.
fn part_counts(counts: &[Counts], job: usize) -> Vec<Counts> {
    counts.iter().skip(job * parts() as usize).take(parts() as usize).skip(1).cloned().collect()
}

fn row(
    count: &Count,
    variant: Variant,
    bounds: Bounds,
    glibc: [u32; 2],
    job: Job,
    [ours, theirs]: [Vec<Counts>; 2],
) -> Row {
    let suffix = if matches!(job, Job::Work { .. }) { String::new() } else { variant.name() };
    let what = format!("{}{suffix}", count.what);
    let times = f64::from(job.times());
    let pairs = ours.iter().zip(&theirs);
    let pairs = pairs.map(|(ours, theirs)| [ours.total() as f64 / times, theirs.total() as f64 / times]).collect();
    let shares = format!("ours: {}; C: {}", shares(&ours, times), shares(&theirs, times));
    Row {
        what,
        unit: "instructions".to_owned(),
        target: Some(Target::AtMost(bounds.target)),
        // Not equal for all parts: the number of events at a wake-up depends on timing.
        exact: false,
        pairs,
        shares: Some(shares),
        limit: Some(limit(bounds, job, variant.driver, glibc)),
        ..Row::default()
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
            Job::Work { rounds, .. } => rounds * AT_ONCE as u32,
        }
    }
}

/// # Errors
/// One of them exceeds its limit.
pub(crate) fn hold(rows: &[Row]) -> Result<()> {
    let broken: Vec<_> = rows.iter().filter_map(|row| rows::hold(row).err()).map(|error| error.to_string()).collect();
    ensure!(broken.is_empty(), "{}", broken.join("\n"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_connections_are_those_of_the_glibc() {
        let (old, new) = (version("glibc 2.36\n").unwrap(), version("glibc 2.41\n").unwrap());
        let bounds = bounds(1.0, 1.5, 2.0).unwrap();
        let limits = |count: &Count| {
            let job = count.job.parse().unwrap();
            [old, new].map(|glibc| ["epoll", "mio"].map(|driver| limit(bounds, job, driver, glibc)))
        };
        assert_eq!(limits(&COUNTS[0]), [[1.5, 2.0], [1.5 * CHEAPER_BY, 2.0 * CHEAPER_BY]]);
        assert_eq!(limits(&COUNTS[4]), [[1.5, 2.0]; 2]);
        assert!(version("musl 1.2").is_none() && version("").is_none());
    }
}
