//! A candidate for leadership: connects to the replica and writes entries into its lane.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use cmid_blocking::{Connection, Options};
use cmid_proto::datapath::{Access, Completion, CreateError, DataPath, QpParts, Remote, SendWr, prelude::*};

/// The time limit of each step. Emulated machines are slow.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// The longest entry. Behind it is as much memory for what is read.
const ENTRY: usize = 64;

/// A connected candidate. Dropped in this order: the QP first, the connection, which owns the device, last.
pub(crate) struct Candidate<D: DataPath> {
    name: char,
    qp: D::Qp,
    cq: D::Cq,
    entry: D::Mr,
    connection: Connection<D>,
}

impl<D: DataPath> Candidate<D> {
    /// Connects to a replica that accepts meanwhile.
    pub(crate) fn connect(name: char, device: D, replica: SocketAddr) -> Result<Self> {
        let (connection, (QpParts { qp, cq, .. }, entry)) =
            Connection::connect(device, replica, &Options::default(), |device, to| {
                let made = device.qp(to).attach()?;
                let entry = made.pd.register(vec![0; 2 * ENTRY], Access::LOCAL_WRITE)?;
                Ok::<_, CreateError>((made, entry))
            })?;
        Ok(Candidate { name, qp, cq, entry, connection })
    }

    /// Appends an entry at the next free byte of its lane. Returns whether the lane has it.
    /// A read of the entry follows its write. On InfiniBand and RoCE the completion of the write would do; on iWARP that says
    /// only that TCP has taken it, and a refused write ends the connection.
    pub(crate) fn replicate(&mut self, entry: &str, free: &mut Remote) -> Result<bool> {
        let (written, read) = (0..entry.len(), ENTRY..ENTRY + entry.len());
        self.entry.write(0, entry.as_bytes())?;
        self.qp.post_send(SendWr::write(1, self.entry.sge(written), *free))?;
        self.qp.post_send(SendWr::read(2, self.entry.sge(read), *free))?;
        free.addr += entry.len() as u64;
        let mut some = [Completion::default()];
        let status = loop {
            if self.connection.next_completions(&mut self.cq, &mut some, LIMIT)? == 0 {
                break "the connection has ended".to_owned();
            }
            let [done] = &some;
            if !done.is_success() || done.wr_id == 2 {
                break done.status.to_string();
            }
        };
        let mut bytes = vec![0; entry.len()];
        self.entry.read(ENTRY, &mut bytes)?;
        println!("candidate {}  writes \"{entry}\" and reads it: {status}", self.name);
        Ok(bytes == entry.as_bytes())
    }

    /// Disconnects. The replica replies meanwhile.
    pub(crate) fn leave(mut self) -> Result<()> {
        Ok(self.connection.disconnect(LIMIT)?)
    }
}
