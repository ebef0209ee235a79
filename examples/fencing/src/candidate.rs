//! A candidate for leadership: connects to the replica and writes entries into its lane.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, bail};
use cmid_blocking::{Connection, Options, Ready};
use cmid_proto::datapath::{Access, CreateError, DataPath, QpParts, Remote, SendWr, WcStatus, prelude::*};

/// The time limit of each step. Emulated machines are slow.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

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
                let entry = made.pd.register(vec![0; 64], Access::LOCAL_WRITE)?;
                Ok::<_, CreateError>((made, entry))
            })?;
        Ok(Candidate { name, qp, cq, entry, connection })
    }

    /// Appends an entry at the next free byte of its lane. Returns the status of the RDMA write.
    pub(crate) fn replicate(&mut self, entry: &str, free: &mut Remote) -> Result<WcStatus> {
        self.entry.write(0, entry.as_bytes())?;
        self.qp.post_send(SendWr::write(1, self.entry.sge(0..entry.len()), *free))?;
        free.addr += entry.len() as u64;
        let status = loop {
            // The CQ is armed before the poll, so that a completion after the poll makes the descriptor readable.
            self.cq.take_notifications()?;
            self.cq.arm()?;
            if let Some(done) = self.cq.poll_one()? {
                break done.status;
            }
            if let Ready::Event(event) = self.connection.wait_for(Some(self.cq.fd()), LIMIT)? {
                bail!("{} while the write was awaited", event.kind);
            }
        };
        println!("candidate {}  writes \"{entry}\": {status}", self.name);
        Ok(status)
    }

    /// Disconnects. The replica replies meanwhile.
    pub(crate) fn leave(mut self) -> Result<()> {
        Ok(self.connection.disconnect(LIMIT)?)
    }
}
