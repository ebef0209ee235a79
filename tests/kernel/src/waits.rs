//! `kernel-waits TRACE`: reads the output of `strace -f -T` and reports every system call that blocked outside of the
//! event loop. Fails if there is one, or if the trace contains no event loop.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a command-line program talks to people")]

use std::{env, fs, path::PathBuf};

use anyhow::{Context as _, Result, bail, ensure};

/// The calls in which a loop may block.
const LOOPS_OWN: &[&str] = &["epoll_wait", "epoll_pwait", "epoll_pwait2", "poll", "ppoll"];

/// Calls that never block: if one takes long, the machine was busy.
const NEVER_WAIT: &[&str] = &["mmap", "munmap", "mprotect", "brk"];

/// Seconds. A call that takes longer has blocked. The emulated machine needs a few milliseconds for the slowest other
/// call.
const LIMIT: f64 = 0.1;

fn main() -> Result<()> {
    let trace = PathBuf::from(env::args_os().nth(1).context("which trace?")?);
    let text = fs::read_to_string(&trace).with_context(|| trace.display().to_string())?;
    let calls: Vec<_> = text.lines().filter_map(parse).collect();
    let culprits: Vec<_> = calls.iter().filter(|call| has_waited(call)).collect();
    for call in &culprits {
        println!("waited {:.3} s: {}", call.seconds, call.line);
    }
    if !culprits.is_empty() {
        bail!("{} of {} system calls waited outside of the loop", culprits.len(), calls.len());
    }
    let own = calls.iter().filter(|call| LOOPS_OWN.contains(&call.name)).count();
    ensure!(own > 0, "none of {} system calls was the loop's own: this is no trace of a driver", calls.len());
    println!("{} system calls, {own} of them the loop's own; no other has waited", calls.len());
    Ok(())
}

/// A finished system call.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Call<'a> {
    name: &'a str,
    seconds: f64,
    line: &'a str,
}

fn has_waited(call: &Call<'_>) -> bool {
    call.seconds > LIMIT && !LOOPS_OWN.contains(&call.name) && !NEVER_WAIT.contains(&call.name)
}

/// `PID name(...) = result <seconds>`, or `PID <... name resumed>...) = result <seconds>`.
fn parse(line: &str) -> Option<Call<'_>> {
    let seconds = line.trim_end().strip_suffix('>')?.rsplit_once('<')?.1.parse().ok()?;
    let after_pid = line.trim_start().trim_start_matches(|c: char| c.is_ascii_digit()).trim_start();
    let name = match after_pid.strip_prefix("<... ") {
        Some(resumed) => resumed.split_whitespace().next()?,
        None => after_pid.split_once('(')?.0,
    };
    Some(Call { name, seconds, line })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_read_whole_or_resumed() {
        let whole = parse("17 write(3, \"x\"..., 8) = 8 <0.000123>").unwrap();
        assert_eq!((whole.name, whole.seconds), ("write", 0.000_123));
        let resumed = parse("18 <... futex resumed>) = 0 <2.5>").unwrap();
        assert_eq!((resumed.name, resumed.seconds), ("futex", 2.5));
        assert_eq!(parse("18 futex(0x1, FUTEX_WAIT, 2, NULL <unfinished ...>"), None);
        assert_eq!(parse("+++ exited with 0 +++"), None);
    }

    #[test]
    fn only_the_loop_may_wait() {
        let waited = |line| has_waited(&parse(line).unwrap());
        assert!(waited("1 futex(0x1, FUTEX_WAIT, 2, NULL) = 0 <0.2>"));
        assert!(waited("1 clock_nanosleep(0, 0, {}) = 0 <0.3>"));
        assert!(!waited("1 epoll_wait(4, [], 64, 1000) = 0 <1.0>"));
        assert!(!waited("1 mmap(NULL, 266240, PROT_READ, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = 0x7f88fbfa0000 <0.2>"));
        assert!(!waited("1 write(3, \"\", 24) = 24 <0.01>"));
    }
}
