//! Replicas on the simulated fabric, each a thread of this process.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use cmid_mio::sim::{Clock, Config, Fabric, Host};

use crate::protocol::ReplicaId;
use crate::rdma::Rdma;
use crate::replica::{Change, Options, Replica};

/// The port of the replicas for each other.
const PORT: u16 = 7500;

/// The time limit to bind the port of a replica that has just ended.
const REBIND: Duration = Duration::from_secs(5);

#[derive(Debug)]
struct Running {
    ends: Arc<AtomicBool>,
    thread: JoinHandle<Result<()>>,
}

/// Replicas on the simulated fabric.
#[derive(Debug)]
pub struct Cluster {
    hosts: Vec<Host>,
    replicas: Vec<SocketAddr>,
    /// The addresses for clients.
    pub clients: Vec<SocketAddr>,
    running: Vec<Option<Running>>,
    folder: tempfile::TempDir,
    election_timeout: Duration,
    reports: Sender<(ReplicaId, Change)>,
}

impl Cluster {
    /// Starts replicas. Returns also the receiver of their changes.
    ///
    /// # Errors
    /// The errors of the first start of each replica.
    pub fn start(members: usize, election_timeout: Duration) -> Result<(Self, Receiver<(ReplicaId, Change)>)> {
        let fabric = Fabric::new(Config { clock: Clock::Real, ..Config::default() });
        let ips: Vec<_> = (1..=members).map(|number| IpAddr::V4(Ipv4Addr::new(10, 0, 0, number as u8))).collect();
        let (reports, changes) = channel();
        let mut cluster = Cluster {
            hosts: ips.iter().map(|ip| fabric.host(&[*ip])).collect(),
            replicas: ips.iter().map(|ip| SocketAddr::new(*ip, PORT)).collect(),
            clients: vec![SocketAddr::from(([127, 0, 0, 1], 0)); members],
            running: (0..members).map(|_| None).collect(),
            folder: tempfile::tempdir()?,
            election_timeout,
            reports,
        };
        (0..members).try_for_each(|id| cluster.start_replica(id))?;
        Ok((cluster, changes))
    }

    /// Starts a replica with its stored log.
    ///
    /// # Errors
    /// Its port for clients is in use.
    pub fn start_replica(&mut self, id: ReplicaId) -> Result<()> {
        let start = Instant::now();
        let listener = loop {
            match std::net::TcpListener::bind(self.clients[id]) {
                Ok(listener) => break listener,
                Err(error) if start.elapsed() > REBIND => return Err(error.into()),
                Err(_) => thread::sleep(Duration::from_millis(20)),
            }
        };
        listener.set_nonblocking(true)?;
        self.clients[id] = listener.local_addr()?;
        let listener = mio::net::TcpListener::from_std(listener);
        let ends = Arc::new(AtomicBool::new(false));
        let (flag, reports, addrs) = (Arc::clone(&ends), self.reports.clone(), self.replicas.clone());
        let (host, folder, election_timeout) = (self.hosts[id].clone(), self.folder_of(id), self.election_timeout);
        let thread = thread::Builder::new().name(format!("replica {id}")).spawn(move || {
            let options = Options { id, members: addrs.len(), election_timeout, folder: &folder };
            let connect = |registry: &_| Rdma::new(host.device(), registry, id, &addrs);
            let mut replica = Replica::open(options, listener, connect)?;
            // The receiver may be gone.
            replica.run(&flag, |change| _ = reports.send((id, change)))
        })?;
        self.running[id] = Some(Running { ends, thread });
        Ok(())
    }

    /// Ends a replica without a message to its peers and clients.
    ///
    /// # Errors
    /// The error with which the replica had ended before.
    pub fn kill(&mut self, id: ReplicaId) -> Result<()> {
        let Some(Running { ends, thread }) = self.running[id].take() else { return Ok(()) };
        ends.store(true, Ordering::Relaxed);
        thread.join().map_err(|_| anyhow!("replica {id} panicked"))?
    }

    /// Returns the simulated host of a replica, to inject faults.
    #[must_use]
    pub fn host(&self, id: ReplicaId) -> &Host {
        &self.hosts[id]
    }

    fn folder_of(&self, id: ReplicaId) -> Box<Path> {
        self.folder.path().join(id.to_string()).into()
    }

    /// Ends all replicas.
    ///
    /// # Errors
    /// The first error with which a replica has ended.
    pub fn end(mut self) -> Result<()> {
        (0..self.running.len()).try_for_each(|id| self.kill(id))
    }
}
