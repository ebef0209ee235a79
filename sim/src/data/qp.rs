//! Queue pairs: what is posted to them.

use std::ops::Range;

use cmid_proto::{Errno, Service};

use crate::data::ah::To;
use crate::data::cq::{WcStatus, opcode};
use crate::data::datagram::Datagram;
use crate::data::memory::{MrKey, Place};
use crate::data::mr::Mr;
use crate::data::queues::{Pending, Receive};
use crate::data::transfer::{Operation, Packet, Transfer};
use crate::fabric::Fabric;
use crate::host::HostNo;
use crate::timers::Due;
use crate::world::{LOCAL_WORK, World};

/// Names one queue pair: its number is its host's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QpNo {
    pub(crate) host: HostNo,
    pub(crate) num: u32,
}

/// The states that librdmacm moves a QP through; it creates them in INIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QpState {
    /// May be posted receives.
    Init,
    /// Receives.
    Rtr,
    /// Receives and sends.
    Rts,
    /// Flushes everything that is posted.
    Err,
}

/// How much a QP takes (`struct ibv_qp_cap`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Caps {
    /// Sends, reads and writes that have not completed.
    pub max_send_wr: u32,
    /// Receives that have not completed.
    pub max_recv_wr: u32,
    /// Ranges of memory per send; this interface gives one.
    pub max_send_sge: u32,
    /// Ranges of memory per receive; this interface gives one.
    pub max_recv_sge: u32,
    /// Bytes that may be sent inline; makes no difference here.
    pub max_inline: u32,
}

impl Default for Caps {
    /// 16 of each, one range of memory, nothing inline.
    fn default() -> Self {
        Caps { max_send_wr: 16, max_recv_wr: 16, max_send_sge: 1, max_recv_sge: 1, max_inline: 0 }
    }
}

/// Memory of the peer, as the peer has told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Remote {
    /// Its address: that of the region, plus an offset into it.
    pub addr: u64,
    /// The region's remote key.
    pub rkey: u32,
}

/// A queue pair. It is its id's: [`SimDevice::destroy_qp`](crate::SimDevice::destroy_qp) ends it, and dropping this
/// handle does only once the id is gone.
#[derive(Debug)]
pub struct Qp {
    pub(crate) fabric: Fabric,
    pub(crate) no: QpNo,
}

impl Qp {
    /// Its number.
    #[must_use]
    pub fn num(&self) -> u32 {
        self.no.num
    }

    /// Its state (ibv_query_qp(3)).
    ///
    /// # Errors
    /// `EINVAL` if it was destroyed.
    pub fn state(&self) -> Result<QpState, Errno> {
        self.fabric.with(|world| world.queues.pairs.get(&self.no).map(|pair| pair.state).ok_or(Errno::EINVAL))
    }

    /// Sends a range of a region; takes a receive of the peer.
    ///
    /// # Errors
    /// `EINVAL` beyond the region's end, before the QP is ready to send, after it was destroyed, and on a datagram QP;
    /// `ENOMEM` if its send queue is full.
    pub fn post_send(&self, wr_id: u64, mr: &Mr, range: Range<usize>) -> Result<(), Errno> {
        self.fabric.with(|world| {
            let bytes = world.memory.local(mr.key, range)?.to_vec();
            let pending = Pending { sequence: 0, wr_id, opcode: opcode::SEND, target: None };
            world.post_operation(self.no, mr.key, pending, Operation::Send(bytes))
        })
    }

    /// Sends a range of a region as a datagram, which arrives or is lost without a word: nobody is there, no receive is
    /// posted or it is too short, or the queue key is not the receiver's. To a group it goes with the QP number
    /// 0xFFFFFF, and to every QP that is attached to it, its sender's own too if that one is (`rxe_rcv_mcast_pkt`).
    ///
    /// # Errors
    /// As [`Qp::post_send`], but on a connected QP; `EINVAL` also for more bytes than the port's active MTU
    /// ([`Config::mtu`](crate::Config::mtu)), and for a handle of another domain.
    pub fn post_send_to(&self, wr_id: u64, mr: &Mr, range: Range<usize>, to: To<'_>) -> Result<(), Errno> {
        self.fabric.with(|world| {
            let bytes = world.memory.local(mr.key, range)?.to_vec();
            let pair = world.queues.pairs.get(&self.no).ok_or(Errno::EINVAL)?;
            let foreign = (to.ah.host, to.ah.pd) != (self.no.host, pair.pd);
            let source = world.address_at(self.no.host, to.ah.route.sgid_index).ok_or(Errno::EINVAL)?;
            if foreign || bytes.len() > world.config.mtu as usize {
                return Err(Errno::EINVAL);
            }
            let pending = Pending { sequence: 0, wr_id, opcode: opcode::SEND, target: None };
            let datagram =
                Datagram { from: self.no, source, route: to.ah.route, to_qp: to.qp_num, qkey: to.qkey, bytes };
            world.post(self.no, Service::Datagram, mr.key, pending, |_, _| Transfer::Datagram(datagram))
        })
    }

    /// Posts a range of a region for a message of the peer, or for a datagram and the [`GRH_LEN`](crate::GRH_LEN) bytes
    /// before it.
    ///
    /// # Errors
    /// `EINVAL` beyond the region's end and after the QP was destroyed; `ENOMEM` if its receive queue is full.
    pub fn post_recv(&self, wr_id: u64, mr: &Mr, range: Range<usize>) -> Result<(), Errno> {
        self.fabric.with(|world| {
            world.memory.local(mr.key, range.clone())?;
            world.post_receive(self.no, Receive { wr_id, mr: mr.key, range })
        })
    }

    /// Reads memory of the peer into a range of a region.
    ///
    /// # Errors
    /// As [`Qp::post_send`].
    pub fn post_read(&self, wr_id: u64, mr: &Mr, range: Range<usize>, remote: Remote) -> Result<(), Errno> {
        self.fabric.with(|world| {
            let len = world.memory.local(mr.key, range.clone())?.len();
            let pending = Pending { sequence: 0, wr_id, opcode: opcode::RDMA_READ, target: Some((mr.key, range)) };
            let place = Place { addr: remote.addr, rkey: remote.rkey, len };
            world.post_operation(self.no, mr.key, pending, Operation::Read(place))
        })
    }

    /// Writes a range of a region into memory of the peer, which does not notice.
    ///
    /// # Errors
    /// As [`Qp::post_send`].
    pub fn post_write(&self, wr_id: u64, mr: &Mr, range: Range<usize>, remote: Remote) -> Result<(), Errno> {
        self.fabric.with(|world| {
            let bytes = world.memory.local(mr.key, range)?.to_vec();
            let pending = Pending { sequence: 0, wr_id, opcode: opcode::RDMA_WRITE, target: None };
            let place = Place { addr: remote.addr, rkey: remote.rkey, len: bytes.len() };
            world.post_operation(self.no, mr.key, pending, Operation::Write(place, bytes))
        })
    }
}

impl Drop for Qp {
    fn drop(&mut self) {
        self.fabric.with(|world| {
            if let Some(pair) = world.queues.pairs.get_mut(&self.no) {
                pair.held = false;
                if !pair.attached {
                    world.destroy_qp(self.no);
                }
            }
        });
    }
}

impl World {
    fn post_operation(&mut self, qp: QpNo, mr: MrKey, pending: Pending, operation: Operation) -> Result<(), Errno> {
        self.post(qp, Service::Connected, mr, pending, |to, sequence| {
            Transfer::Packet(Packet { from: qp, to, sequence, operation })
        })
    }

    /// Queues a work request and sends it, to the peer of a connected QP. A datagram has left, and is complete, at once.
    fn post(
        &mut self,
        qp: QpNo,
        service: Service,
        mr: MrKey,
        mut pending: Pending,
        transfer: impl FnOnce(Option<QpNo>, u64) -> Transfer,
    ) -> Result<(), Errno> {
        let due = self.now.after(self.config.latency);
        let allowed = self.memory.pd_of(mr);
        let pair = self.queues.pairs.get_mut(&qp).filter(|pair| pair.service == service).ok_or(Errno::EINVAL)?;
        match pair.state {
            QpState::Init | QpState::Rtr => return Err(Errno::EINVAL),
            QpState::Err => {
                self.finish_send(qp, &pending, WcStatus::WR_FLUSH_ERR, 0);
                return Ok(());
            }
            QpState::Rts => {}
        }
        if pair.sends.len() >= pair.caps.max_send_wr as usize {
            return Err(Errno::ENOMEM);
        }
        if allowed != Some(pair.pd) {
            self.finish_send(qp, &pending, WcStatus::LOC_PROT_ERR, 0);
            self.qp_to_error(qp);
            return Ok(());
        }
        pair.sequence += 1;
        pending.sequence = pair.sequence;
        let (sequence, transfer) = (pair.sequence, transfer(pair.peer, pair.sequence));
        pair.sends.push_back(pending);
        if service == Service::Datagram {
            let sent = Transfer::Answer { to: qp, sequence, result: Ok(Vec::new()) };
            self.timers.arm(self.now.after(LOCAL_WORK), Due::Data(sent));
        }
        self.timers.arm(due, Due::Data(transfer));
        Ok(())
    }

    fn post_receive(&mut self, qp: QpNo, receive: Receive) -> Result<(), Errno> {
        let pair = self.queues.pairs.get_mut(&qp).ok_or(Errno::EINVAL)?;
        if pair.state == QpState::Err {
            self.flush_receive(qp, &receive);
            return Ok(());
        }
        if pair.receives.len() >= pair.caps.max_recv_wr as usize {
            return Err(Errno::ENOMEM);
        }
        pair.receives.push_back(receive);
        self.run_inbound(qp);
        Ok(())
    }
}
