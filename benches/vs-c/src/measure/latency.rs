//! Round-trip time per message of cmid and rdma-core, one after the other in the same VM.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use cmid_bench::results::{Row, Target};

use crate::measure::process::{self, Server, words};
use crate::measure::programs::{ADDRESS, Programs};

/// The number of runs of each program.
const PAIRS: u16 = 15;
/// Bytes in each message.
const SIZE: u32 = 64;
/// Messages of a ping-pong.
const ITERS: u32 = 400;

/// cmid's ping-pong against `ibv_rc_pingpong`. Both sleep for completions.
pub(crate) fn pingpong(programs: &Programs, port: &mut u16) -> Result<Row> {
    let pairs = pairs(
        port,
        |port| {
            *port += 1;
            let common = format!("pingpong {ADDRESS}:{port} -n {ITERS} -z {SIZE}");
            let server = Server::listening(&words(&programs.ours, &format!("{common} -s")), *port)?;
            let said = process::run(&words(&programs.ours, &common))?;
            server.end()?;
            per_iteration(&said)
        },
        |port| {
            *port += 1;
            let program = PathBuf::from("ibv_rc_pingpong");
            let common = format!("-d rxe0 -g 1 -p {port} -n {ITERS} -s {SIZE} -e");
            let server = Server::listening_on_tcp(&words(&program, &common), *port)?;
            let said = process::run(&words(&program, &format!("{common} 127.0.0.1")))?;
            server.end()?;
            per_iteration(&said)
        },
    )?;
    Ok(Row {
        what: format!("{SIZE} bytes there and back, sleeping for completions, over ibv_rc_pingpong"),
        unit: "µs".to_owned(),
        target: Some(Target::AtMost(1.02)),
        pairs,
        note: Some(SLEEPS.to_owned()),
        ..Row::default()
    })
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
    (0..PAIRS).map(pair).collect()
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
        let taken = pairs(&mut 0, |_| note('o', 2.0), |_| note('t', 1.0)).unwrap();
        assert!(taken.iter().all(|pair| *pair == [2.0, 1.0]));
        assert_eq!(order.borrow()[2..6], ['o', 't', 't', 'o']);
    }
}
