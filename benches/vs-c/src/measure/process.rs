//! The compared programs, and their peers. All are killed on drop, and every wait has a time limit.

use std::ffi::OsString;
use std::io::{self, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

/// The time limit for a server to listen, for a server to end after its client, and for a client.
const PATIENCE: Duration = Duration::from_secs(60);

/// A program that runs beside this one. It is killed on drop.
pub(crate) struct Server(Child);

impl Server {
    /// Starts a server, and waits until it listens at this port.
    pub(crate) fn listening(program: &[OsString], port: u16) -> Result<Self> {
        let mut server = Server::start(program, Stdio::null)?;
        server.wait_for_listener(port)?;
        Ok(server)
    }

    /// The same at a TCP port.
    pub(crate) fn listening_on_tcp(program: &[OsString], port: u16) -> Result<Self> {
        let mut server = Server::start(program, Stdio::null)?;
        let needle = format!(":{port:04X} ");
        // A connection attempt would be taken for the client.
        server.wait_until("listens on TCP", || {
            let sockets = std::fs::read_to_string("/proc/net/tcp")? + &std::fs::read_to_string("/proc/net/tcp6")?;
            // The state, 0A, is the fourth column.
            Ok(sockets.lines().any(|socket| socket.contains(&needle) && socket.split_whitespace().nth(3) == Some("0A")))
        })?;
        Ok(server)
    }

    /// Starts a server with its output shown.
    pub(crate) fn record(program: &[OsString]) -> Result<Self> {
        Server::start(program, Stdio::inherit)
    }

    fn start(program: &[OsString], output: impl Fn() -> Stdio) -> Result<Self> {
        let (name, arguments) = program.split_first().context("no program")?;
        let mut command = Command::new(name);
        command.args(arguments).stdin(Stdio::null()).stdout(output()).stderr(output());
        Ok(Server(command.spawn().with_context(|| format!("{program:?}"))?))
    }

    /// Waits until an id listens at this port.
    pub(crate) fn wait_for_listener(&mut self, port: u16) -> Result<()> {
        let needle = format!(":{port} ");
        self.wait_until("listens", || {
            let ids = Command::new("rdma").args(["resource", "show", "cm_id"]).output().context("rdma")?;
            let ids = String::from_utf8_lossy(&ids.stdout);
            Ok(ids.lines().any(|id| id.contains("LISTEN") && id.contains(&needle)))
        })
    }

    fn wait_until(&mut self, what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
        let begin = Instant::now();
        while !is_so()? {
            if let Some(status) = self.0.try_wait()? {
                bail!("the server has ended before it {what}: {status}");
            }
            ensure!(begin.elapsed() < PATIENCE, "nobody {what}");
            sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Waits until the program has ended by itself, with success.
    pub(crate) fn end(self) -> Result<()> {
        self.end_within(PATIENCE)
    }

    /// The same with a time limit, at which the program is killed.
    pub(crate) fn end_within(mut self, limit: Duration) -> Result<()> {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait()? {
                ensure!(status.success(), "the program: {status}");
                return Ok(());
            }
            ensure!(begin.elapsed() < limit, "the program does not end within {limit:?}");
            sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The program may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a program to its end, within the time limit, and returns its standard output.
pub(crate) fn run(program: &[OsString]) -> Result<String> {
    run_within(program, PATIENCE)
}

fn run_within(program: &[OsString], limit: Duration) -> Result<String> {
    let begin = Instant::now();
    let mut child = Server::start(program, Stdio::piped)?;
    let said = collect(child.0.stdout.take().context("its output")?);
    let complained = collect(child.0.stderr.take().context("its errors")?);
    // Waits for the end of the output instead of polling for the end of the program, because its time is measured.
    let left = || limit.saturating_sub(begin.elapsed());
    let said = wait_for(&said, left()).with_context(|| format!("{program:?}"))?;
    let complained = wait_for(&complained, left()).with_context(|| format!("{program:?}"))?;
    child.end_within(left()).with_context(|| format!("{program:?}\n{said}{complained}"))?;
    Ok(said)
}

/// Reads to the end on a thread, which ends with the program.
fn collect(mut pipe: impl Read + Send + 'static) -> Receiver<io::Result<String>> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let mut text = Vec::new();
        let read = pipe.read_to_end(&mut text).map(|_| String::from_utf8_lossy(&text).into_owned());
        // The receiver may be gone.
        let _ = sender.send(read);
    });
    receiver
}

fn wait_for(receiver: &Receiver<io::Result<String>>, limit: Duration) -> Result<String> {
    match receiver.recv_timeout(limit) {
        Ok(read) => Ok(read?),
        Err(RecvTimeoutError::Timeout) => bail!("it does not end in time"),
        Err(RecvTimeoutError::Disconnected) => bail!("the thread that reads its output has panicked"),
    }
}

/// A command line: a program's path, and arguments split at spaces.
pub(crate) fn words(program: &std::path::Path, arguments: &str) -> Vec<OsString> {
    let arguments = arguments.split_whitespace().map(OsString::from);
    std::iter::once(program.as_os_str().to_owned()).chain(arguments).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn what_a_program_writes_is_returned_and_its_failure_is_one() {
        assert_eq!(run(&words(Path::new("echo"), "a b")).unwrap(), "a b\n");
        assert!(run(&words(Path::new("false"), "")).is_err());
    }

    #[test]
    fn a_program_that_does_not_end_is_killed() {
        let begin = Instant::now();
        let sleeps = words(Path::new("sleep"), "60");
        assert!(run_within(&sleeps, Duration::from_millis(50)).is_err());
        assert!(Server::record(&sleeps).unwrap().end_within(Duration::from_millis(50)).is_err());
        assert!(begin.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn a_server_that_has_died_is_not_waited_for() {
        let mut server = Server::record(&words(Path::new("true"), "")).unwrap();
        let begin = Instant::now();
        assert!(server.wait_until("listens", || Ok(false)).is_err());
        assert!(begin.elapsed() < PATIENCE / 2);
    }
}
