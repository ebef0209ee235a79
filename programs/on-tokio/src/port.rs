//! A QP with slots of memory, each for one message.

use std::io;

use cmid_tokio::proto::datapath::{Access, Attaching, Caps, CreateError, DataPath, SendWr, prelude::*};

/// Messages that may be on their way in each direction.
pub(crate) const SLOTS: u32 = 8;

/// The maximum size of a message, in bytes.
pub(crate) const SIZE: usize = 64;

/// What the data path of a connection consists of, but for its CQ. A work request has the number of its slot.
pub(crate) struct Port<D: DataPath> {
    qp: D::Qp,
    mr: D::Mr,
}

impl<D: DataPath> Port<D> {
    /// Creates a QP with a posted receive for each slot, and its CQ.
    pub(crate) fn attach(device: &mut D, to: Attaching<'_>) -> Result<(D::Cq, Self), CreateError> {
        let (pd, cq) = (device.alloc_pd(to.id())?, device.create_cq(to.id(), 2 * SLOTS)?);
        let mr = pd.register(vec![0; 2 * SIZE * SLOTS as usize], Access::LOCAL_WRITE)?;
        let caps = Caps { max_send_wr: SLOTS, max_recv_wr: SLOTS, ..Caps::default() };
        let mut port = Port { qp: device.create_qp(to, &pd, &cq, &cq, caps)?, mr };
        for slot in 0..u64::from(SLOTS) {
            port.receive(slot)?;
        }
        Ok((cq, port))
    }

    /// Posts the receive of a slot.
    pub(crate) fn receive(&mut self, slot: u64) -> Result<(), cmid_tokio::proto::datapath::PostError> {
        let start = slot as usize * SIZE;
        self.qp.post_recv(slot, self.mr.sge(start..start + SIZE))
    }

    /// Sends what a slot has received back to the peer.
    pub(crate) fn echo(&mut self, slot: u64, len: u32) -> io::Result<()> {
        let start = slot as usize * SIZE;
        Ok(self.qp.post_send(SendWr::send(slot, self.mr.sge(start..start + len as usize)))?)
    }

    /// Sends a message of at most [`SIZE`] bytes from the second half of the memory.
    pub(crate) fn send(&mut self, slot: u64, message: &[u8]) -> io::Result<()> {
        let start = (u64::from(SLOTS) + slot) as usize * SIZE;
        self.mr.write(start, message)?;
        Ok(self.qp.post_send(SendWr::send(slot, self.mr.sge(start..start + message.len())))?)
    }

    /// Returns what a slot has received.
    pub(crate) fn message(&self, slot: u64, len: u32) -> io::Result<Vec<u8>> {
        let mut message = vec![0; len as usize];
        self.mr.read(slot as usize * SIZE, &mut message)?;
        Ok(message)
    }
}
