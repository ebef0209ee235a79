//! One end of a connection: its QP and the resources of the QP.

use std::ops::Range;
use std::time::Duration;

use anyhow::{Result, bail};
use cmid_blocking::{Connection, Ready};
use cmid_proto::Errno;
use cmid_proto::datapath::Attaching;
use cmid_proto::datapath::{
    Access, Caps, CompletionQueue, CreateError, DataPath, MemoryRegion, PostError, ProtectionDomain, QueuePair, Remote,
    SendWr, WcStatus,
};

/// The completion of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) wr_id: u64,
    pub(crate) status: WcStatus,
}

/// A QP with its own PD, a CQ, and memory for messages.
pub(crate) struct Port<D: DataPath> {
    // Dropped in this order: the QP first, the PD last.
    qp: D::Qp,
    cq: D::Cq,
    messages: D::Mr,
    pd: D::Pd,
}

impl<D: DataPath> Port<D> {
    /// Creates a QP and its resources on an id, with `len` bytes for messages.
    pub(crate) fn open(device: &mut D, attaching: Attaching<'_>, len: usize) -> Result<Self, CreateError> {
        let id = attaching.id();
        let pd = device.alloc_pd(id)?;
        let cq = device.create_cq(id, 32)?;
        let qp = device.create_qp(attaching, &pd, &cq, &cq, Caps::default())?;
        let messages = pd.register(vec![0; len], Access::LOCAL_WRITE).map_err(|(_, error)| error.errno())?;
        Ok(Port { qp, cq, messages, pd })
    }

    /// Registers memory in the PD of the QP, writable by the peer: the log of one candidate at a replica.
    pub(crate) fn open_lane(&self, len: usize) -> Result<D::Mr, Errno> {
        self.pd.register(vec![0; len], Access::LOCAL_WRITE | Access::REMOTE_WRITE).map_err(|(_, error)| error.errno())
    }

    pub(crate) fn read(&self, into: &mut [u8]) -> Result<(), Errno> {
        self.messages.read(0, into)
    }

    pub(crate) fn write(&mut self, from: &[u8]) -> Result<(), Errno> {
        self.messages.write(0, from)
    }

    pub(crate) fn post_recv(&mut self, wr_id: u64, range: Range<usize>) -> Result<(), PostError> {
        self.qp.post_recv(wr_id, self.messages.sge(range))
    }

    pub(crate) fn post_send(&mut self, wr_id: u64, range: Range<usize>) -> Result<(), PostError> {
        self.qp.post_send(SendWr::send(wr_id, self.messages.sge(range)))
    }

    pub(crate) fn post_write(&mut self, wr_id: u64, range: Range<usize>, to: Remote) -> Result<(), PostError> {
        self.qp.post_send(SendWr::write(wr_id, self.messages.sge(range), to))
    }

    /// Waits for the next completion.
    pub(crate) fn completion(&mut self, connection: &mut Connection<D>, patience: Duration) -> Result<Done> {
        loop {
            // The CQ is armed before the poll, so that a completion after the poll makes the descriptor readable.
            self.cq.take_notifications()?;
            self.cq.arm()?;
            if let Some(done) = self.cq.poll_one()? {
                return Ok(Done { wr_id: done.wr_id, status: done.status });
            }
            match connection.wait_for(Some(self.cq.fd()), patience)? {
                Ready::Descriptor => {}
                Ready::Event(event) => bail!("{} while a work request was awaited", event.kind),
            }
        }
    }
}
