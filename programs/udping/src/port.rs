//! A datagram QP with one CQ and its buffers.

use std::ops::Range;

use cmid_proto::Errno;
use cmid_proto::datapath::{
    Access, Caps, Completion, CreateError, GRH_LEN, PostError, SendWr, To, WcOpcode, WcStatus, prelude::*,
};
use cmid_proto::datapath::{AhAttr, Attaching};

/// Number of receive buffers of a port.
pub(crate) const SLOTS: usize = 32;

/// A received datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrived {
    /// The slot of the receive.
    pub(crate) slot: usize,
    /// Bytes, without the GRH.
    pub(crate) len: usize,
    /// The sender's QP number.
    pub(crate) src_qp: u32,
    /// The immediate data.
    pub(crate) imm: Option<u32>,
}

/// The result of a poll of the CQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Polled {
    Nothing,
    Sent,
    Arrived(Arrived),
    /// The status of a failed work request.
    Failed(u32),
}

/// The QP, its resources and its buffers.
pub(crate) struct Port<D: DataPath> {
    // Dropped in this order: the QP first, the PD last.
    qp: D::Qp,
    cq: D::Cq,
    mr: D::Mr,
    pd: D::Pd,
    size: usize,
    /// For each slot, the completion of its last receive, to create an address handle from.
    last: [Completion; SLOTS],
}

impl<D: DataPath> Port<D> {
    /// Creates a QP on an id, for datagrams of at most `size` bytes.
    pub(crate) fn open(device: &mut D, attaching: Attaching<'_>, size: usize) -> Result<Self, CreateError> {
        let id = attaching.id();
        let depth = 2 * SLOTS as u32;
        let pd = device.alloc_pd(id)?;
        let cq = device.create_cq(id, 2 * depth)?;
        let qp = device.create_qp(
            attaching,
            &pd,
            &cq,
            &cq,
            Caps { max_send_wr: depth, max_recv_wr: depth, ..Caps::default() },
        )?;
        let mr = pd.register(vec![0; slot(SLOTS, size).end], Access::LOCAL_WRITE)?;
        Ok(Port { qp, cq, mr, pd, size, last: [Completion::default(); SLOTS] })
    }

    /// The number of bytes of a datagram.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    pub(crate) fn num(&self) -> u32 {
        self.qp.num()
    }

    /// Creates an address handle for a QP or a group.
    pub(crate) fn way(&self, path: &AhAttr) -> Result<D::Ah, CreateError> {
        self.pd.create_ah(path)
    }

    /// Creates an address handle for the sender of the datagram in a slot.
    pub(crate) fn way_back(&self, arrived: Arrived) -> Result<D::Ah, CreateError> {
        let completion = self.last.get(arrived.slot).ok_or(Errno::EINVAL)?;
        self.pd.create_ah_from(completion, &self.mr, slot(arrived.slot, self.size).start)
    }

    pub(crate) fn post_recv(&mut self, number: usize) -> Result<(), PostError> {
        self.qp.post_recv(number as u64, self.mr.sge(slot(number, self.size)))
    }

    /// Posts a send of `bytes`. Only one send may be outstanding.
    pub(crate) fn send(&mut self, bytes: &[u8], way: &D::Ah, qp_num: u32, qkey: u32) -> Result<(), Errno> {
        let start = slot(SLOTS, self.size).start;
        self.mr.write(start, bytes)?;
        let to = To { ah: way, qp_num, qkey };
        Ok(self.qp.post_send(SendWr::send_to(SLOTS as u64, self.mr.sge(start..start + bytes.len()), to))?)
    }

    /// Posts `count` sends of the same bytes, with immediate data and one doorbell. No send may be outstanding.
    pub(crate) fn send_burst(&mut self, count: u32, bytes: &[u8], to: To<'_, D::Ah>, imm: u32) -> Result<(), Errno> {
        let start = slot(SLOTS, self.size).start;
        self.mr.write(start, bytes)?;
        let request = SendWr::send_to_imm(SLOTS as u64, self.mr.sge(start..start + bytes.len()), to, imm);
        self.qp.post_sends((0..count).map(|_| request))?;
        Ok(())
    }

    pub(crate) fn read(&self, arrived: Arrived) -> Result<Vec<u8>, Errno> {
        let mut bytes = vec![0; arrived.len];
        self.mr.read(slot(arrived.slot, self.size).start + GRH_LEN, &mut bytes)?;
        Ok(bytes)
    }

    pub(crate) fn poll(&mut self) -> Result<Polled, Errno> {
        let Some(done) = self.cq.poll_one()? else { return Ok(Polled::Nothing) };
        let WcStatus(status) = done.status;
        if done.status != WcStatus::SUCCESS {
            return Ok(Polled::Failed(status));
        }
        if done.opcode != WcOpcode::RECV {
            return Ok(Polled::Sent);
        }
        let slot = done.wr_id as usize;
        if let Some(last) = self.last.get_mut(slot) {
            *last = done;
        }
        let len = (done.byte_len as usize).saturating_sub(GRH_LEN);
        Ok(Polled::Arrived(Arrived { slot, len, src_qp: done.src_qp, imm: done.imm() }))
    }
}

/// The byte range of a slot: the GRH, then the datagram. The last slot is the send buffer.
fn slot(number: usize, size: usize) -> Range<usize> {
    let width = GRH_LEN + size;
    number * width..(number + 1) * width
}
