//! A candidate for leadership: connects to the replica and writes entries into its lane.

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use cmid_blocking::{Connection, Options};
use cmid_proto::datapath::{DataPath, WcStatus};

use crate::lane_addr::LaneAddr;
use crate::port::Port;

/// The time limit of each step. Emulated machines are slow.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Maximum number of bytes of an entry, and of a message.
pub(crate) const ENTRY: usize = 64;

const RECV: u64 = 1;
const WRITE: u64 = 2;

/// The thread of a candidate. `scene` sends it entries through a channel; a real candidate acts by itself.
#[derive(Debug)]
pub(crate) struct Candidate {
    name: char,
    entries: Sender<Vec<u8>>,
    ends: Receiver<WcStatus>,
    thread: JoinHandle<Result<()>>,
}

impl Candidate {
    /// Starts the thread, which connects at once.
    pub(crate) fn start<D: DataPath + 'static>(name: char, device: D, replica: SocketAddr) -> Result<Self> {
        let (entries, orders) = channel();
        let (reports, ends) = channel();
        let thread = thread::Builder::new()
            .name(format!("candidate {name}"))
            .spawn(move || serve(name, device, replica, &orders, &reports))?;
        Ok(Candidate { name, entries, ends, thread })
    }

    /// Makes the candidate append an entry. Returns the status of its RDMA write.
    pub(crate) fn replicate(&self, entry: &str) -> Result<WcStatus> {
        let status =
            self.entries.send(entry.as_bytes().to_vec()).ok().and_then(|()| self.ends.recv_timeout(PATIENCE).ok());
        let status = status.with_context(|| format!("candidate {} does not answer", self.name))?;
        println!("candidate {}  writes \"{entry}\": {status}", self.name);
        Ok(status)
    }

    /// Makes the candidate disconnect. The replica must reply before [`joined`] returns.
    pub(crate) fn leave(self) -> JoinHandle<Result<()>> {
        self.thread
    }
}

/// Waits for the end of a candidate's thread.
pub(crate) fn joined(thread: JoinHandle<Result<()>>) -> Result<()> {
    thread.join().map_err(|_| anyhow!("a candidate panicked"))?
}

fn serve<D: DataPath>(
    name: char,
    device: D,
    replica: SocketAddr,
    entries: &Receiver<Vec<u8>>,
    ends: &Sender<WcStatus>,
) -> Result<()> {
    let mut private_data = [0; 4];
    let options = Options { private_data: name.encode_utf8(&mut private_data).as_bytes(), ..Options::default() };
    let (mut connection, mut port) = Connection::connect(device, replica, &options, |device, id| {
        let mut port = Port::open(device, id, ENTRY)?;
        port.post_recv(RECV, 0..LaneAddr::LEN)?;
        Ok(port)
    })?;
    let completion = port.completion(&mut connection, PATIENCE)?;
    ensure!(
        (completion.wr_id, completion.status) == (RECV, WcStatus::SUCCESS),
        "the message with the address of the lane has not arrived: {completion:?}"
    );
    let mut bytes = [0; LaneAddr::LEN];
    port.read(&mut bytes)?;
    let mut free = LaneAddr::decode(bytes);
    while let Ok(entry) = entries.recv() {
        ensure!(entry.len() <= ENTRY && entry.len() <= free.len as usize, "no room for {} bytes", entry.len());
        port.write(&entry)?;
        port.post_write(WRITE, 0..entry.len(), free.remote())?;
        let done = port.completion(&mut connection, PATIENCE)?;
        free.addr += entry.len() as u64;
        free.len -= entry.len() as u32;
        // The receiver of the status may be gone.
        let _ = ends.send(done.status);
    }
    connection.disconnect(PATIENCE)?;
    Ok(())
}
