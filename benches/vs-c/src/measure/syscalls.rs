//! System calls of a connection, as strace(1) counts them: of cmid with each driver, and of C.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use cmid_bench::results::Row;
use cmid_verbs::Backend;

use crate::mark::PARTS;
use crate::measure::counts::Variant;
use crate::measure::process::{self, Server, words};
use crate::measure::programs::{ADDRESS, Programs};

pub(crate) const TITLE: &str = "System calls of a connection";

pub(crate) const ABOUT: &str = "Under `strace -f -c` (`cargo xtask versus --parts syscalls`): the calls of 40 connections less \
    those of 20, divided by 20. A wait per event is needed, a command per request, and a read per event; with the \
    edge-triggered io-mio also a read that finds none.";

/// The numbers of connections of the two runs.
const CONNECTIONS: [u32; 2] = [20, 40];

/// The number of each system call, by its name.
type Calls = BTreeMap<String, u64>;

/// Counts the active and the passive side.
pub(crate) fn rows(programs: &Programs, drivers: &[&'static str], port: &mut u16) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (side, count) in [("made", active as Counting), ("accepted", passive)] {
        let theirs = of_connection(|connections| count(programs, None, connections, port))?;
        for &driver in drivers {
            for backend in [Backend::Kernel, Backend::Librdmacm] {
                let variant = Variant { driver, backend };
                let ours = of_connection(|connections| count(programs, Some(variant), connections, port))?;
                rows.push(row(&format!("a connection {side}, with a QP{}", variant.name()), &ours, &theirs));
            }
        }
    }
    Ok(rows)
}

/// Counts the calls of a run with this number of connections, by a variant of cmid or by C.
type Counting = fn(&Programs, Option<Variant>, u32, &mut u16) -> Result<Calls>;

fn active(programs: &Programs, by: Option<Variant>, connections: u32, port: &mut u16) -> Result<Calls> {
    *port += 1;
    let _server = Server::listening(&words(&programs.c, &format!("{ADDRESS} {port} serve:0")), *port)?;
    let (client, counts) = counted(&command(programs, by, *port, &format!("qp-1:{connections}")))?;
    process::run(&client)?;
    read(&counts)
}

fn passive(programs: &Programs, by: Option<Variant>, connections: u32, port: &mut u16) -> Result<Calls> {
    *port += 1;
    let (server, counts) = counted(&command(programs, by, *port, &format!("serve:{connections}")))?;
    let server = Server::listening(&server, *port)?;
    process::run(&one_part("", &command(programs, None, *port, &format!("qp-1:{connections}"))))?;
    server.end()?;
    read(&counts)
}

fn command(programs: &Programs, by: Option<Variant>, port: u16, job: &str) -> Vec<OsString> {
    match by {
        Some(variant) => words(&programs.ours, &format!("{} {ADDRESS}:{port} {job}", variant.arguments())),
        None => words(&programs.c, &format!("{ADDRESS} {port} {job}")),
    }
}

/// The command that runs a program in one part under strace, and the file for the counts.
fn counted(program: &[OsString]) -> Result<(Vec<OsString>, tempfile::NamedTempFile)> {
    let file = tempfile::NamedTempFile::new().context("a file for the counts")?;
    let strace = format!("strace -f -c -U name,calls -o {}", file.path().display());
    let command = one_part(&strace, program);
    Ok((command, file))
}

/// The command that runs a program in one part, by another program.
fn one_part(by: &str, program: &[OsString]) -> Vec<OsString> {
    let mut command = words(Path::new("env"), &format!("{PARTS}=1 {by}"));
    command.extend_from_slice(program);
    command
}

fn read(counts: &tempfile::NamedTempFile) -> Result<Calls> {
    let said = fs::read_to_string(counts.path()).context("what strace has counted")?;
    let calls: Calls = said.lines().filter_map(line).collect();
    ensure!(!calls.is_empty(), "strace has counted nothing:\n{said}");
    Ok(calls)
}

/// A line with the name of a system call and a number.
fn line(text: &str) -> Option<(String, u64)> {
    let (name, calls) = text.trim().split_once(char::is_whitespace)?;
    (name != "total").then_some((name.to_owned(), calls.trim().parse().ok()?))
}

/// The calls of one connection: the difference of two runs.
fn of_connection(mut count: impl FnMut(u32) -> Result<Calls>) -> Result<BTreeMap<String, f64>> {
    let [few, many] = [count(CONNECTIONS[0])?, count(CONNECTIONS[1])?];
    let more = f64::from(CONNECTIONS[1] - CONNECTIONS[0]);
    let calls = many.into_iter().map(|(name, calls)| {
        let before = few.get(&name).copied().unwrap_or_default();
        (name, (calls as f64 - before as f64) / more)
    });
    // What is left of one-off calls is less than this.
    Ok(calls.filter(|(_, calls)| *calls >= 0.1).collect())
}

fn row(what: &str, ours: &BTreeMap<String, f64>, theirs: &BTreeMap<String, f64>) -> Row {
    let total = |calls: &BTreeMap<String, f64>| calls.values().sum();
    let shares = format!("ours: {}; C: {}", list(ours), list(theirs));
    Row {
        what: format!("system calls: {what}"),
        unit: "system calls".to_owned(),
        pairs: vec![[total(ours), total(theirs)]],
        shares: Some(shares),
        ..Row::default()
    }
}

fn list(calls: &BTreeMap<String, f64>) -> String {
    calls.iter().map(|(name, calls)| format!("{name} {calls:.1}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_strace_are_names_and_numbers() {
        let said = "syscall               calls\n---------------- ---------\nwrite                   120\nread   4\n\
                    ---------------- ---------\ntotal                   124\n";
        let calls: Calls = said.lines().filter_map(line).collect();
        assert_eq!(calls, [("read".to_owned(), 4), ("write".to_owned(), 120)].into());
    }

    #[test]
    fn a_connection_has_the_difference_of_two_runs() {
        let runs = |connections: u32| {
            let [write, once] = [12 * u64::from(connections) + 3, u64::from(connections / 20)];
            Ok([("write".to_owned(), write), ("brk".to_owned(), once)].into())
        };
        assert_eq!(of_connection(runs).unwrap(), [("write".to_owned(), 12.0)].into());
    }
}
