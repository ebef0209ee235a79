//! Runs programs on the host, each with a time limit.

use crate::error::{Error, WithPath};
use crate::interrupt;
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Limit of programs that only read or unpack files.
pub(crate) const SHORT: Duration = Duration::from_secs(120);
/// Limit of downloads and installations.
pub(crate) const LONG: Duration = Duration::from_secs(1800);

/// A program's exit status and its standard error.
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) stderr: String,
}

impl Ended {
    fn success(&self, command: &Command) -> Result<(), Error> {
        if self.status.success() {
            return Ok(());
        }
        let detail = format!("{}\n{}", self.status, self.stderr.trim_end());
        Err(Error::Tool { what: describe(command), detail })
    }
}

/// A command. Its program is also searched in the directories of root's PATH.
pub(crate) fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env("PATH", search_path()).env("LC_ALL", "C").stdin(Stdio::null());
    command
}

/// This process's PATH with the system's directories added.
pub(crate) fn search_path() -> OsString {
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    for directory in ["/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"] {
        if !std::env::split_paths(&path).any(|known| known == Path::new(directory)) {
            if !path.is_empty() {
                path.push(":");
            }
            path.push(directory);
        }
    }
    path
}

/// The path of a program, if it exists.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    std::env::split_paths(&search_path()).map(|directory| directory.join(program)).find(|path| path.is_file())
}

/// Runs a program to its end and collects its standard error.
pub(crate) fn run(command: &mut Command, limit: Duration) -> Result<Ended, Error> {
    let what = describe(command);
    let mut messages = tempfile::tempfile().about("a temporary file")?;
    command.stderr(messages.try_clone().about("a temporary file")?);
    let child = command.spawn().map_err(|error| Error::Tool { what: what.clone(), detail: error.to_string() })?;
    let status = wait(child, limit, &what)?;
    let stderr = String::from_utf8_lossy(&contents(&mut messages)?).into_owned();
    Ok(Ended { status, stderr })
}

/// Like [`run`], but a status other than 0 is an error.
pub(crate) fn succeed(command: &mut Command, limit: Duration) -> Result<(), Error> {
    run(command, limit)?.success(command)
}

/// Runs a program and returns its standard output, its status and its standard error.
pub(crate) fn capture(command: &mut Command, limit: Duration) -> Result<(Vec<u8>, Ended), Error> {
    let mut file = tempfile::tempfile().about("a temporary file")?;
    command.stdout(file.try_clone().about("a temporary file")?);
    let ended = run(command, limit)?;
    Ok((contents(&mut file)?, ended))
}

/// Like [`capture`], but a status other than 0 is an error.
pub(crate) fn output(command: &mut Command, limit: Duration) -> Result<Vec<u8>, Error> {
    let (bytes, ended) = capture(command, limit)?;
    ended.success(command)?;
    Ok(bytes)
}

fn wait(mut child: Child, limit: Duration, what: &str) -> Result<ExitStatus, Error> {
    let deadline = Instant::now() + limit;
    let verdict = loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status),
            Ok(None) => {}
            Err(error) => break Error::Tool { what: what.to_owned(), detail: error.to_string() },
        }
        if let Err(interrupted) = interrupt::check() {
            break interrupted;
        }
        if Instant::now() > deadline {
            break Error::Tool { what: what.to_owned(), detail: format!("did not end within {} s", limit.as_secs()) };
        }
        thread::sleep(Duration::from_millis(5));
    };
    // The program may have ended meanwhile; either way it is gone afterwards.
    let _ = child.kill();
    let _ = child.wait();
    Err(verdict)
}

fn contents(file: &mut File) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    file.rewind().about("a temporary file")?;
    file.read_to_end(&mut bytes).about("a temporary file")?;
    Ok(bytes)
}

fn describe(command: &Command) -> String {
    let words: Vec<_> =
        [command.get_program()].into_iter().chain(command.get_args()).map(|word| word.to_string_lossy()).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_and_status_are_told_apart() {
        assert_eq!(output(command("sh").args(["-c", "echo out; echo err >&2"]), SHORT).unwrap(), b"out\n");
        let error = output(command("sh").args(["-c", "echo why >&2; exit 3"]), SHORT).unwrap_err();
        assert!(error.to_string().contains("why"), "{error}");
    }

    #[test]
    fn a_slow_program_is_stopped() {
        let begin = Instant::now();
        let error = succeed(command("sleep").arg("60"), Duration::from_millis(50)).unwrap_err();
        assert!(begin.elapsed() < Duration::from_secs(10));
        assert!(error.to_string().contains("did not end"), "{error}");
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = succeed(&mut command("no-such-program-here"), SHORT).unwrap_err();
        assert!(error.to_string().contains("no-such-program-here"), "{error}");
    }
}
