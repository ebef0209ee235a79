//! Instructions of the data path of other crates, beside those of cmid and C.

use std::path::Path;

use anyhow::{Context as _, Result};
use cmid_bench::results::Row;

use crate::mark::parts;
use crate::measure::callgrind;
use crate::measure::process::{Server, words};
use crate::measure::programs::{ADDRESS, Programs};
use crate::work::AT_ONCE;

/// The jobs, and what is counted of each.
const JOBS: &[(&str, &str)] = &[
    ("write", "an RDMA write posted and polled"),
    ("send", "a receive and a send posted and both polled"),
    ("write-batch", "32 RDMA writes posted in one call and polled in one, for each"),
];

/// A crate, and the jobs that it can do.
struct Peer {
    /// Its name and version, as in `benches/peers/`.
    name: &'static str,
    version: &'static str,
    jobs: &'static [&'static str],
    /// Also with `-extended` after each job's name.
    extended: bool,
}

const PEERS: &[Peer] = &[
    Peer { name: "ibverbs", version: "0.9.2", jobs: &["send"], extended: false },
    Peer { name: "rdma-io", version: "0.0.2", jobs: &["write", "send"], extended: false },
    Peer { name: "sideway", version: "0.4.3", jobs: &["write", "send", "write-batch"], extended: true },
];

/// What is not in the table, and why; how the programs differ from those of cmid and C.
pub(crate) const ABOUT: &str = "Jobs of the data path of the table above on other crates (`benches/peers/`), in the same VM; their QP is \
    connected to itself, so a receive and a send are of one QP. ibverbs 0.9.2 offers neither RDMA writes nor \
    batches, rdma-io 0.0.2 no batches; both have only the classic calls. With none does an MR wait for what is in \
    flight. sideway's classic CQ polls one completion at a time without batches. Instructions in user space, for \
    each request or pair.";

pub(crate) const TITLE: &str = "Against other crates";

/// Counts C, cmid, and the programs of the folder.
pub(crate) fn rows(programs: &Programs, folder: &Path, port: &mut u16) -> Result<Vec<Row>> {
    *port += 1;
    let port = *port;
    let server = Server::listening(&words(&programs.c, &format!("{ADDRESS} {port} serve:0")), port)?;
    let jobs: Vec<_> = JOBS.iter().map(|(job, _)| *job).collect();
    let mut found = Vec::new();
    for extended in [false, true] {
        let name = if extended { "C, ibv_wr_post(3)" } else { "C, classic calls" };
        let program = |jobs: &str| words(&programs.c, &format!("{ADDRESS} {port} {jobs}"));
        found.extend(count(name, &jobs, extended_or_not(extended), program)?);
    }
    let ours = |jobs: &str| words(&programs.ours, &format!("jobs {ADDRESS}:{port} {jobs}"));
    found.extend(count("cmid", &jobs, str::to_owned, ours)?);
    found.extend(count("cmid, blocks that are reclaimed", &jobs, of_blocks, ours)?);
    drop(server);
    for peer in PEERS {
        let program = folder.join(format!("peer-{}", peer.name));
        let variants: &[bool] = if peer.extended { &[false, true] } else { &[false] };
        for &extended in variants {
            let calls = if extended { ", ibv_wr_post(3)" } else { ", classic calls" };
            let name = format!("{} {}{calls}", peer.name, peer.version);
            let program = |jobs: &str| words(&program, &format!("{ADDRESS} {jobs}"));
            found.extend(count(&name, peer.jobs, extended_or_not(extended), program).with_context(|| name.clone())?);
        }
    }
    // In the order of the jobs.
    found.sort_by_key(|(job, _)| jobs.iter().position(|name| name == job));
    Ok(found.into_iter().map(|(_, row)| row).collect())
}

/// The name of a job with the extended calls, or with the classic ones.
fn extended_or_not(extended: bool) -> impl Fn(&str) -> String {
    move |job| if extended { format!("{job}-extended") } else { job.to_owned() }
}

/// The name of a job on blocks.
fn of_blocks(job: &str) -> String {
    let (kind, batch) = job.split_once('-').map_or((job, String::new()), |(kind, rest)| (kind, format!("-{rest}")));
    format!("{kind}-block{batch}")
}

/// Runs the jobs of one program by their names there, one after the other, and counts each.
fn count<'a>(
    name: &str,
    jobs: &[&'a str],
    named: impl Fn(&str) -> String,
    command: impl Fn(&str) -> Vec<std::ffi::OsString>,
) -> Result<Vec<(&'a str, Row)>> {
    let arguments: Vec<_> = jobs.iter().map(|job| format!("{}:1", named(job))).collect();
    let parts = parts() as usize;
    let counts = callgrind::run(&command(&arguments.join(" ")), jobs.len() * parts)?;
    let each = jobs.iter().zip(counts.chunks(parts));
    Ok(each
        .map(|(job, counts)| {
            // The first part is for warming up.
            let figures = counts.iter().skip(1).map(|count| count.total() as f64 / AT_ONCE as f64).collect();
            (*job, row(job, name, figures))
        })
        .collect())
}

fn row(job: &str, name: &str, figures: Vec<f64>) -> Row {
    let what = JOBS.iter().find(|(known, _)| *known == job).map_or(job, |(_, what)| what);
    Row { what: format!("{what}: {name}"), unit: "instructions".to_owned(), figures, ..Row::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_job_has_a_form_on_blocks() {
        for (job, _) in JOBS {
            assert!(crate::work::Work::named(&of_blocks(job)).is_some_and(|work| work.blocks), "{job}");
        }
    }

    #[test]
    fn the_named_versions_are_those_of_the_programs() {
        let lock = include_str!("../../../peers/Cargo.lock");
        for Peer { name, version, jobs, .. } in PEERS {
            assert!(lock.contains(&format!("name = \"{name}\"\nversion = \"{version}\"\n")), "{name} {version}");
            assert!(jobs.iter().all(|job| JOBS.iter().any(|(known, _)| known == job)), "{name}");
        }
    }
}
