//! Round-trip time per message of cmid and rdma-core, one after the other in the same VM.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use crate::measure::process::{self, Server, words};
use crate::measure::programs::{ADDRESS, Programs};
use crate::measure::rows::{Figures, Row};

/// The number of runs of each program: ping-pongs, and rping, which takes long.
const PAIRS: u16 = 15;
const RPING_PAIRS: u16 = 9;
/// The numbers of pings in a short and a long run. rping prints no time, so the time of the short run is subtracted
/// from that of the long one. The difference is several times the variation of a program's start and end.
const SHORT: u32 = 50;
const LONG: u32 = 850;
/// Bytes in each message.
const SIZE: u32 = 64;
/// Messages of a ping-pong.
const ITERS: u32 = 400;

/// cmid's rping against rdma-core's, on both sides.
pub(crate) fn rping(programs: &Programs, driver: &str, port: &mut u16) -> Result<Row> {
    let (ours, theirs) = (format!("--device verbs --backend librdmacm --driver {driver} "), String::new());
    let pairs = pairs(
        RPING_PAIRS,
        port,
        |port| per_ping(&programs.rping, &ours, port),
        |port| per_ping(Path::new("rping"), &theirs, port),
    )?;
    let what = format!("a ping of {SIZE} bytes: cmid's rping on cmid-{driver} over rdma-core's");
    Ok(Row { figures: Figures::Pairs(pairs), ..row(what) })
}

/// Microseconds for one ping.
fn per_ping(program: &Path, options: &str, port: &mut u16) -> Result<f64> {
    let mut timed = |count: u32| {
        *port += 1;
        let common = format!("{options}-a {ADDRESS} -p {port} -S {SIZE} -C {count}");
        let server = Server::listening(&words(program, &format!("-s {common}")), *port)?;
        let begin = Instant::now();
        process::run(&words(program, &format!("-c {common}")))?;
        let span = begin.elapsed();
        server.end()?;
        Ok::<_, anyhow::Error>(span.as_secs_f64())
    };
    let (short, long) = (timed(SHORT)?, timed(LONG)?);
    ensure!(long > short, "{LONG} pings took {long} s, no longer than {SHORT}, which took {short} s");
    Ok((long - short) * 1e6 / f64::from(LONG - SHORT))
}

/// cmid's ping-pong against `ibv_rc_pingpong`, sleeping for completions or polling for them.
pub(crate) fn pingpong(programs: &Programs, events: bool, port: &mut u16) -> Result<Row> {
    let mode = if events { "-e" } else { "" };
    let pairs = pairs(
        PAIRS,
        port,
        |port| {
            *port += 1;
            let common = format!("pingpong {ADDRESS}:{port} -n {ITERS} -z {SIZE} {mode}");
            let server = Server::listening(&words(&programs.ours, &format!("{common} -s")), *port)?;
            let said = process::run(&words(&programs.ours, &common))?;
            server.end()?;
            per_iteration(&said)
        },
        |port| {
            *port += 1;
            let program = PathBuf::from("ibv_rc_pingpong");
            let common = format!("-d rxe0 -g 1 -p {port} -n {ITERS} -s {SIZE} {mode}");
            let server = Server::listening_on_tcp(&words(&program, &common), *port)?;
            let said = process::run(&words(&program, &format!("{common} 127.0.0.1")))?;
            server.end()?;
            per_iteration(&said)
        },
    )?;
    let how = if events { "sleeping for completions" } else { "polling for completions" };
    let what = format!("a message of {SIZE} bytes there and back, {how}: cmid's data path over ibv_rc_pingpong");
    Ok(Row { figures: Figures::Pairs(pairs), note: events.then(|| SLEEPS.to_owned()), ..row(what) })
}

/// The reason why sleeping takes longer.
const SLEEPS: &str = "one poll(2) more per wake-up than the blocking read of ibv_rc_pingpong, which sees no end of the \
    connection";

/// Parses text such as "1000 iters in 0.06 seconds = 63.51 usec/iter".
pub(super) fn per_iteration(said: &str) -> Result<f64> {
    let figure = said.lines().find_map(|line| line.split_once(" seconds = ")?.1.strip_suffix(" usec/iter"));
    Ok(figure.with_context(|| format!("no time per iteration in {said}"))?.parse()?)
}

/// Measures cmid and the other program in turn, alternating the order.
fn pairs(
    count: u16,
    port: &mut u16,
    mut ours: impl FnMut(&mut u16) -> Result<f64>,
    mut theirs: impl FnMut(&mut u16) -> Result<f64>,
) -> Result<Vec<[f64; 2]>> {
    // Discards the first runs, which read the programs from the disk.
    ours(port)?;
    theirs(port)?;
    let pair = |number| {
        if number % 2 == 0 {
            let ours = ours(port)?;
            Ok([ours, theirs(port)?])
        } else {
            let theirs = theirs(port)?;
            Ok([ours(port)?, theirs])
        }
    };
    (0..count).map(pair).collect()
}

fn row(what: String) -> Row {
    let figures = Figures::Pairs(Vec::new());
    Row { what, unit: "µs", target: Some(1.02), exact: false, figures, note: None, shares: None, limit: None }
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
    fn who_is_first_alternates() {
        let order = std::cell::RefCell::new(Vec::new());
        let note = |name, value| {
            order.borrow_mut().push(name);
            Ok(value)
        };
        let taken = pairs(PAIRS, &mut 0, |_| note('o', 2.0), |_| note('t', 1.0)).unwrap();
        assert!(taken.iter().all(|pair| *pair == [2.0, 1.0]));
        assert_eq!(order.borrow()[2..6], ['o', 't', 't', 'o']);
    }
}
