//! Programs such as ip(8), tc(8) and rdma(8). They change the machine that they run on.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use crate::{Check, Failure};

/// Runs a program, and returns its output.
///
/// # Errors
/// The program cannot be started, or fails; the error contains its status and its standard error.
pub fn run(program: &str, arguments: &[&str]) -> Check<String> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output()?;
    said(&format!("{program} {}", arguments.join(" ")), &output)
}

/// Runs these lines of ip(8).
///
/// # Errors
/// One of the lines fails.
pub fn ip(lines: &str) -> Check {
    feed("ip", &["-batch", "-"], lines).map(drop)
}

/// Runs a program that reads these lines, and returns its output.
///
/// # Errors
/// As [`run`].
pub fn feed(program: &str, arguments: &[&str], lines: &str) -> Check<String> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    // Taken out of `child`, so that its drop closes the pipe and the program ends.
    if let Some(mut input) = child.stdin.take() {
        input.write_all(lines.as_bytes())?;
    }
    said(&format!("{program}: {}", lines.trim_end().replace('\n', "; ")), &child.wait_with_output()?)
}

fn said(what: &str, output: &Output) -> Check<String> {
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let (status, complaint) = (output.status, String::from_utf8_lossy(&output.stderr).trim().to_owned());
    Err(Failure(format!("{what}: {status}: {complaint}")))
}
