//! Replicas as processes of this machine, for `replog torture` and `replog bench`.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use clap::ValueEnum as _;
use replog::protocol::ReplicaId;
use rustix::process::{Pid, Signal, kill_process};

use crate::args::{Local, Transport};
use crate::torture::Site;

/// The ports of the replicas: for each other, and for clients.
const PORTS: [u16; 2] = [7500, 7600];

/// The port that tells another such program that those of the replicas are in use.
const CLAIM: u16 = 7599;

/// The number of replicas.
const MEMBERS: usize = 3;

/// Replicas as processes. Dropping it kills them, and so does the end of this process.
#[derive(Debug)]
pub(crate) struct Processes {
    transport: Transport,
    address: IpAddr,
    election_timeout: u64,
    folder: tempfile::TempDir,
    children: [Option<Child>; MEMBERS],
    _claim: TcpListener,
}

impl Processes {
    pub(crate) fn start(local: &Local, transport: Transport) -> Result<Self> {
        let claim = SocketAddr::new(local.address, CLAIM);
        let claim = TcpListener::bind(claim).map_err(|error| match error.kind() == ErrorKind::AddrInUse {
            true => {
                anyhow!("another `replog torture` or `replog bench` is at {claim}: wait, or select another --address")
            }
            false => replog::explain_bind(&error, claim),
        })?;
        let mut processes = Processes {
            transport,
            address: local.address,
            election_timeout: local.election_timeout,
            folder: tempfile::tempdir()?,
            children: Default::default(),
            _claim: claim,
        };
        (0..MEMBERS).try_for_each(|id| processes.start_replica(id))?;
        Ok(processes)
    }

    pub(crate) fn addrs(&self) -> Vec<SocketAddr> {
        (0..MEMBERS).map(|id| SocketAddr::new(self.address, PORTS[1] + id as u16)).collect()
    }

    fn start_replica(&mut self, id: ReplicaId) -> Result<()> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["serve", "--with-parent", "--id", &id.to_string()]);
        for replica in 0..MEMBERS {
            let addr = SocketAddr::new(self.address, PORTS[0] + replica as u16);
            command.args(["--replica", &addr.to_string()]);
        }
        let transport = self.transport.to_possible_value().context("a hidden transport")?;
        command.args(["--transport", transport.get_name(), "--client", &self.addrs()[id].to_string()]);
        command.args(["--election-timeout", &self.election_timeout.to_string()]);
        command.arg("--folder").arg(self.folder.path().join(id.to_string()));
        self.children[id] = Some(command.stdout(Stdio::null()).spawn().context("cannot start a replica")?);
        Ok(())
    }

    /// Kills a replica by SIGKILL.
    fn kill(&mut self, id: ReplicaId) -> Result<()> {
        let Some(mut child) = self.children[id].take() else { return Ok(()) };
        if let Some(status) = child.try_wait()? {
            bail!("replica {id} has ended by itself: {status}");
        }
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    /// Stops a replica at any point of its work (SIGSTOP), or continues it (SIGCONT).
    fn pause(&self, id: ReplicaId, paused: bool) -> Result<()> {
        let child = self.children[id].as_ref().context("the replica does not run")?;
        let pid = Pid::from_child(child);
        Ok(kill_process(pid, if paused { Signal::STOP } else { Signal::CONT })?)
    }
}

impl Site for Processes {
    fn clients(&self) -> Vec<SocketAddr> {
        self.addrs()
    }

    /// Kills or pauses a replica.
    fn disturb(&mut self, victim: ReplicaId, random: &mut fastrand::Rng, span: Duration) -> Result<()> {
        if random.u8(..3) == 0 {
            // A paused leader is deposed, and continues as a leader until it receives a message of the later term.
            self.pause(victim, true)?;
            std::thread::sleep(span);
            self.pause(victim, false)
        } else {
            self.kill(victim)?;
            std::thread::sleep(span);
            self.start_replica(victim)
        }
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for child in self.children.iter_mut().flatten() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
