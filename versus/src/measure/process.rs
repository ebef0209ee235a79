//! The programs that are compared, and their peers.

use std::ffi::OsString;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

/// How long a server may take to listen, and one to end after its client.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server beside what is measured. It ends with this.
pub(crate) struct Server(Child);

impl Server {
    /// Starts it, and waits until somebody listens at this port.
    pub(crate) fn listening(program: &[OsString], port: u16) -> Result<Self> {
        let server = Server(
            command(program)?
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .with_context(|| format!("{program:?}"))?,
        );
        wait_for_listener(port)?;
        Ok(server)
    }

    /// The same at a TCP port.
    pub(crate) fn listening_on_tcp(program: &[OsString], port: u16) -> Result<Self> {
        let server = Server(
            command(program)?
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .with_context(|| format!("{program:?}"))?,
        );
        let needle = format!(":{port:04X} ");
        // Connecting would be taken for the client.
        wait_until("listens on TCP", || {
            let sockets = std::fs::read_to_string("/proc/net/tcp")? + &std::fs::read_to_string("/proc/net/tcp6")?;
            // Its state, 0A, is the fourth column.
            Ok(sockets.lines().any(|socket| socket.contains(&needle) && socket.split_whitespace().nth(3) == Some("0A")))
        })?;
        Ok(server)
    }

    /// Waits until it has ended by itself, with success.
    pub(crate) fn end(mut self) -> Result<()> {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait()? {
                ensure!(status.success(), "the server: {status}");
                return Ok(());
            }
            ensure!(begin.elapsed() < PATIENCE, "the server does not end");
            sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until somebody listens at this port.
pub(crate) fn wait_for_listener(port: u16) -> Result<()> {
    let needle = format!(":{port} ");
    wait_until("listens", || {
        let ids = Command::new("rdma").args(["resource", "show", "cm_id"]).output().context("rdma")?;
        let ids = String::from_utf8_lossy(&ids.stdout);
        Ok(ids.lines().any(|id| id.contains("LISTEN") && id.contains(&needle)))
    })
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let begin = Instant::now();
    while !is_so()? {
        ensure!(begin.elapsed() < PATIENCE, "nobody {what}");
        sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Runs a program to its end and returns what it wrote.
pub(crate) fn run(program: &[OsString]) -> Result<String> {
    let output = command(program)?.output().with_context(|| format!("{program:?}"))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(
        output.status.success(),
        "{program:?}: {}\n{said}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(said)
}

fn command(program: &[OsString]) -> Result<Command> {
    let (name, arguments) = program.split_first().context("no program")?;
    let mut command = Command::new(name);
    command.args(arguments).stdin(Stdio::null());
    Ok(command)
}

/// A command line, taken apart at its spaces, after a program's path.
pub(crate) fn words(program: &std::path::Path, arguments: &str) -> Vec<OsString> {
    let arguments = arguments.split_whitespace().map(OsString::from);
    std::iter::once(program.as_os_str().to_owned()).chain(arguments).collect()
}
