//! Time per echoed message: `Messages`, another crate's stream and TCP over one wire, in turns in the same VM.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use cmid_bench::results::{Row, Target};

use crate::mark::parts;
use crate::measure::process::{self, Server, words};
use crate::measure::programs::Programs;

/// The end of the wire at rxe2. A client there is on rxe1.
const SERVER: &str = "10.98.0.2";
/// The index of their GIDs that are these addresses. The one before is link-local.
const GID: &str = "1";
/// The numbers of messages in a short and a long run. The time of the short run is subtracted, and with it what only the
/// first messages cost.
const SHORT: u32 = 100;
const LONG: u32 = 1600;

pub(crate) const TITLE: &str = "An echo: messages, another crate, TCP";

/// How it was measured, and what may be compared with what.
pub(crate) const ABOUT: &str = "`cargo xtask versus --parts echo`: client and server on one wire of the VM, soft-RoCE on both ends of a pair of veth, TCP over the same pair. \
    The clock of the VM counts instructions, 1000 for a microsecond: of both programs and of the kernel, on one CPU, nearly the same in each run. A figure is the time of 1600 messages less that of 100, for each of the 1500; all programs run in turns. `ibv_rc_pingpong -e` and \
    `CompletionQueue::wait` block in a read of one CQ and see no end of the connection; poll(2) waits for the CQ and for events, and so does epoll_wait(2) in the \
    server of the C program. `Messages` copies each message in and \
    out, counts credits and notices a peer that is gone; one send in 16 is signaled; rdma-io's stream, which holds eight receives, has no flow control of its own.";

const PINGPONG: &str = "ibv_rc_pingpong -e";
const POLLED: &str = "cmid's data path, poll(2)";

/// What waits, and how.
struct Program {
    name: &'static str,
    form: Form,
    arguments: &'static str,
    listens_on_tcp: bool,
    /// Whether it can have several messages under way.
    has_window: bool,
}

/// The form of its commands.
enum Form {
    /// Of `ibv_rc_pingpong`.
    Pingpong,
    /// Of the C program of this name.
    C(PathBuf),
    /// Of the programs in this repository.
    Ours(PathBuf),
}

/// What is echoed.
struct Load {
    size: u32,
    window: u32,
    what: &'static str,
}

const LOADS: [Load; 2] = [
    Load { size: 64, window: 1, what: "a message of 64 bytes there and back" },
    Load { size: 4096, window: 8, what: "a message of 4096 bytes there and back, eight under way" },
];

fn programs(programs: &Programs, peers: &Path) -> [Program; 9] {
    let ours = |name, arguments, listens_on_tcp, has_window| {
        let form = Form::Ours(programs.ours.clone());
        Program { name, form, arguments, listens_on_tcp, has_window }
    };
    let of_c = |name, form, listens_on_tcp| Program { name, form, arguments: "", listens_on_tcp, has_window: false };
    let rdma_io = Form::Ours(peers.join("peer-rdma-io-echo"));
    [
        of_c(PINGPONG, Form::Pingpong, true),
        ours("cmid's data path, blocking", "echo --on path-blocking", false, false),
        of_c("C, poll(2)", Form::C(programs.c.clone()), false),
        ours(POLLED, "echo --on path", false, false),
        ours("Messages on io-epoll, poll(2)", "echo --on epoll", false, true),
        ours("TCP, poll(2)", "echo --on tcp-poll", true, true),
        ours("a channel of io-tokio", "echo --on tokio", false, true),
        Program {
            name: "rdma-io 0.0.2 on tokio",
            form: rdma_io,
            arguments: "",
            listens_on_tcp: false,
            has_window: true,
        },
        ours("TCP on tokio", "echo --on tcp-tokio", true, true),
    ]
}

/// Measures all programs with both loads.
pub(crate) fn rows(all: &Programs, peers: &Path, port: &mut u16) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for load in &LOADS {
        let mut measured: Vec<_> = programs(all, peers).map(|program| (program, Vec::new())).into();
        measured.retain(|(program, _)| load.window == 1 || program.has_window);
        // The first runs read the programs from the disk.
        for (program, _) in &measured {
            timed(program, load, SHORT, port).context(program.name)?;
        }
        for _ in 1..parts() {
            for (program, figures) in &mut measured {
                let figure = per_message(program, load, port).context(program.name)?;
                println!("{}: {figure:.1} µs", program.name);
                figures.push(figure);
            }
        }
        rows.extend(over_pingpong(&measured));
        rows.extend(
            measured.into_iter().map(|(program, figures)| row(format!("{}: {}", load.what, program.name), figures)),
        );
    }
    Ok(rows)
}

/// The pairs of the row that has a target, where both of its programs were measured.
fn over_pingpong(measured: &[(Program, Vec<f64>)]) -> Option<Row> {
    let figures = |name| measured.iter().find(|(program, _)| program.name == name).map(|(_, figures)| figures);
    let each = figures(POLLED)?.iter().zip(figures(PINGPONG)?);
    Some(Row {
        what: "64 bytes there and back, sleeping for completions, over ibv_rc_pingpong".to_owned(),
        unit: "µs".to_owned(),
        target: Some(Target::AtMost(1.02)),
        pairs: each.map(|(ours, theirs)| [*ours, *theirs]).collect(),
        ..Row::default()
    })
}

/// Microseconds for one message.
fn per_message(program: &Program, load: &Load, port: &mut u16) -> Result<f64> {
    let (short, long) = (timed(program, load, SHORT, port)?, timed(program, load, LONG, port)?);
    ensure!(long > short, "{LONG} messages took {long} µs, no longer than {SHORT}, which took {short} µs");
    Ok((long - short) / f64::from(LONG - SHORT))
}

/// Microseconds for all messages of a run.
fn timed(program: &Program, load: &Load, iters: u32, port: &mut u16) -> Result<f64> {
    *port += 1;
    let server = program.command(load, iters, *port, true);
    let server = if program.listens_on_tcp {
        Server::listening_on_tcp(&server, *port)?
    } else {
        Server::listening(&server, *port)?
    };
    let said = process::run(&program.command(load, iters, *port, false))?;
    server.end()?;
    Ok(per_iteration(&said)? * f64::from(iters))
}

/// Parses text such as "1000 iters in 0.06 seconds = 63.51 usec/iter".
fn per_iteration(said: &str) -> Result<f64> {
    let figure = said.lines().find_map(|line| line.split_once(" seconds = ")?.1.strip_suffix(" usec/iter"));
    Ok(figure.with_context(|| format!("no time per iteration in {said}"))?.parse()?)
}

impl Program {
    fn command(&self, load: &Load, iters: u32, port: u16, is_server: bool) -> Vec<OsString> {
        let Load { size, window, .. } = load;
        let path = match &self.form {
            Form::Pingpong => {
                // The client connects over TCP first.
                let (device, peer) = if is_server { ("rxe2", "") } else { ("rxe1", SERVER) };
                let arguments = format!("-d {device} -g {GID} -p {port} -n {iters} -s {size} -e {peer}");
                return words(Path::new("ibv_rc_pingpong"), &arguments);
            }
            Form::C(path) => {
                let job = if is_server { "serve:1".to_owned() } else { format!("messages:{iters}") };
                let arguments = format!("VERSUS_PARTS=1 {} {SERVER} {port} {job}", path.display());
                return words(Path::new("env"), &arguments);
            }
            Form::Ours(path) => path,
        };
        let window = if self.has_window { format!("-w {window}") } else { String::new() };
        let side = if is_server { "-s" } else { "" };
        words(path, &format!("{} {SERVER}:{port} -n {iters} -z {size} {window} {side}", self.arguments))
    }
}

fn row(what: String, figures: Vec<f64>) -> Row {
    Row { what, unit: "µs".to_owned(), figures, ..Row::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figure_is_found() {
        let said = "8192000 bytes in 0.01 seconds = 9384.52 Mbit/sec\n1000 iters in 0.01 seconds = 6.98 usec/iter\n";
        assert_eq!(per_iteration(said).unwrap(), 6.98);
        assert!(per_iteration("").is_err());
    }

    #[test]
    fn both_sides_of_each_program_have_the_same_load() {
        let found = Programs { ours: "versus".into(), c: "c".into() };
        let said = |number: usize, is_server| {
            let [small, _] = &LOADS;
            programs(&found, Path::new("peers"))[number].command(small, 5, 7, is_server).join(" ".as_ref())
        };
        assert_eq!(said(0, true), "ibv_rc_pingpong -d rxe2 -g 1 -p 7 -n 5 -s 64 -e");
        assert_eq!(said(0, false), "ibv_rc_pingpong -d rxe1 -g 1 -p 7 -n 5 -s 64 -e 10.98.0.2");
        assert_eq!(said(2, true), "env VERSUS_PARTS=1 c 10.98.0.2 7 serve:1");
        assert_eq!(said(2, false), "env VERSUS_PARTS=1 c 10.98.0.2 7 messages:5");
        assert_eq!(said(1, false), "versus echo --on path-blocking 10.98.0.2:7 -n 5 -z 64");
        assert_eq!(said(6, true), "versus echo --on tokio 10.98.0.2:7 -n 5 -z 64 -w 1 -s");
        assert_eq!(said(7, true), "peers/peer-rdma-io-echo 10.98.0.2:7 -n 5 -z 64 -w 1 -s");
    }
}
