//! Posting work requests: the checks before a request is in a queue.

use std::ops::Range;

use cmid_proto::Errno;
use cmid_proto::datapath::{
    Access, Caps, PostError, QpState, QueuePair, Remote, SendFlags, SendOp, SendWr, Sge, WcOpcode,
};

use crate::data::action::{Action, Local};
use crate::data::ah::Ah;
use crate::data::mr::Mr;
use crate::data::mw::Mw;
use crate::data::packet::Extra;
use crate::data::qp::Qp;
use crate::data::receive::Receive;
use crate::data::space::KeyedRange;
use crate::data::work::{Peer, Work};
use crate::fabric::Fabric;
use crate::index::PdNo;

impl QueuePair for Qp {
    type Mr = Mr;
    type Mw = Mw;
    type Ah = Ah;

    fn num(&self) -> u32 {
        self.no.num
    }

    /// # Errors
    /// `EINVAL` if it is destroyed.
    fn state(&self) -> Result<QpState, Errno> {
        self.fabric.with(|world| world.queues.pairs.get(&self.no).map(|pair| pair.state.into()).ok_or(Errno::EINVAL))
    }

    fn caps(&self) -> Caps {
        self.fabric.with(|world| world.queues.pairs.get(&self.no).map(|pair| pair.caps).unwrap_or_default())
    }

    /// A datagram is lost without an error if no QP has the number, if no receive is posted or it is too short, or if
    /// the Q_Key differs. The QP number 0xFFFFFF sends to every QP that is attached to a group, including the sender's
    /// own QP if attached (`rxe_rcv_mcast_pkt`).
    ///
    /// # Errors
    /// `EINVAL` also for a datagram of more bytes than the active MTU of the port
    /// ([`Config::mtu`](crate::Config::mtu)), and after the QP is destroyed.
    fn post_send<'a, L>(&mut self, request: SendWr<'a, L, Ah>) -> Result<(), Errno>
    where
        L: AsRef<[Sge<'a, Mr>]>,
    {
        let work = self.work(request.wr_id, request.op, request.sges.as_ref(), request.flags)?;
        self.fabric.with(|world| world.post(self.no, work))
    }

    fn post_sends<'a, L, I>(&mut self, requests: I) -> Result<usize, PostError>
    where
        I: IntoIterator<Item = SendWr<'a, L, Ah>>,
        L: AsRef<[Sge<'a, Mr>]>,
        Ah: 'a,
    {
        let batch =
            requests.into_iter().map(|SendWr { wr_id, op, sges, flags }| self.work(wr_id, op, sges.as_ref(), flags));
        let batch = batch.collect::<Result<Vec<Work>, Errno>>()?;
        self.fabric.with(|world| {
            let room = world.queues.pairs.get(&self.no).map_or(0, |pair| pair.send_room());
            world.post_all(self.no, fitting(room, batch)?)
        })
    }

    fn post_recv<'a, L>(&mut self, wr_id: u64, sges: L) -> Result<(), Errno>
    where
        L: AsRef<[Sge<'a, Mr>]>,
    {
        let receive = self.receive(wr_id, sges.as_ref())?;
        self.fabric.with(|world| world.post_receives(self.no, vec![receive])).map(drop).map_err(|error| error.errno)
    }

    fn post_recvs<'a, L, I>(&mut self, requests: I) -> Result<usize, PostError>
    where
        I: IntoIterator<Item = (u64, L)>,
        L: AsRef<[Sge<'a, Mr>]>,
    {
        let batch = requests.into_iter().map(|(wr_id, sges)| self.receive(wr_id, sges.as_ref()));
        let batch = batch.collect::<Result<Vec<Receive>, Errno>>()?;
        self.fabric.with(|world| {
            let room = world.queues.pairs.get(&self.no).ok_or(Errno::EINVAL)?.receive_room()?;
            world.post_receives(self.no, fitting(room, batch)?)
        })
    }

    /// If the device rejects the bind, the QP enters its error state. The status of the completion is
    /// [`MW_BIND_ERR`](cmid_proto::datapath::WcStatus::MW_BIND_ERR), or
    /// [`WR_FLUSH_ERR`](cmid_proto::datapath::WcStatus::WR_FLUSH_ERR) as on Linux 6.12. It rejects an empty range, and
    /// a window that is bound.
    fn post_bind(
        &mut self,
        wr_id: u64,
        window: &mut Mw,
        mr: &Mr,
        range: Range<usize>,
        access: Access,
    ) -> Result<(), Errno> {
        self.bind_window(wr_id, window, mr, range, access)
    }

    fn post_invalidate(&mut self, wr_id: u64, window: &mut Mw) -> Result<(), Errno> {
        self.invalidate_window(wr_id, window)
    }
}

/// Returns a batch, if it is not empty and the queue has room for all of it.
pub(super) fn fitting<T>(room: u32, batch: Vec<T>) -> Result<Vec<T>, Errno> {
    match batch.len() {
        0 => Err(Errno::EINVAL),
        count if count > room as usize => Err(Errno::ENOMEM),
        _ => Ok(batch),
    }
}

impl Qp {
    /// Makes the checks of a request that do not need its send queue.
    fn work(&self, wr_id: u64, op: SendOp<'_, Ah>, sges: &[Sge<'_, Mr>], flags: SendFlags) -> Result<Work, Errno> {
        let caps = self.caps();
        self.check_transport(&op)?;
        let needs = if op.writes_locally() { Access::LOCAL_WRITE } else { Access::empty() };
        let ranges = self.ranges(sges, needs, caps.max_send_sge)?;
        let len = ranges.iter().map(|range| range.len).sum();
        let local = if op.writes_locally() { Local::Into(ranges) } else { Local::From(ranges) };
        let solicited = flags.contains(SendFlags::SOLICITED);
        let extra = |imm| Extra { imm, invalidate: None, solicited };
        let peer = |remote: Remote, len| KeyedRange { addr: remote.addr, key: remote.rkey, len };
        let (opcode, action) = match op {
            SendOp::Send => (WcOpcode::SEND, Action::Send(extra(None))),
            SendOp::SendImm(imm) => (WcOpcode::SEND, Action::Send(extra(Some(imm)))),
            SendOp::SendInvalidate(rkey) => {
                (WcOpcode::SEND, Action::Send(Extra { imm: None, invalidate: Some(rkey), solicited }))
            }
            SendOp::SendTo(to) => (WcOpcode::SEND, self.datagram(to, extra(None), len)?),
            SendOp::SendToImm(to, imm) => (WcOpcode::SEND, self.datagram(to, extra(Some(imm)), len)?),
            SendOp::Write(remote) => (WcOpcode::RDMA_WRITE, Action::Write(peer(remote, len), None)),
            SendOp::WriteImm(remote, imm) => {
                (WcOpcode::RDMA_WRITE, Action::Write(peer(remote, len), Some(extra(Some(imm)))))
            }
            SendOp::Read(remote) => (WcOpcode::RDMA_READ, Action::Read(peer(remote, len))),
            SendOp::CompareSwap { remote, compare, swap } => {
                check_atomic(remote, len)?;
                (WcOpcode::COMP_SWAP, Action::CompareSwap(peer(remote, ATOMIC_LEN), compare, swap))
            }
            SendOp::FetchAdd { remote, add } => {
                check_atomic(remote, len)?;
                (WcOpcode::FETCH_ADD, Action::FetchAdd(peer(remote, ATOMIC_LEN), add))
            }
        };
        let (signaled, is_fenced) = (flags.contains(SendFlags::SIGNALED), flags.contains(SendFlags::FENCE));
        Ok(Work { wr_id, opcode, local, signaled, is_fenced, action })
    }

    /// Refuses what iWARP does not have: immediate data and atomic operations.
    fn check_transport(&self, op: &SendOp<'_, Ah>) -> Result<(), Errno> {
        let is_of_iwarp = match op {
            SendOp::Send | SendOp::SendInvalidate(_) | SendOp::SendTo(_) | SendOp::Write(_) | SendOp::Read(_) => true,
            SendOp::SendImm(_)
            | SendOp::SendToImm(..)
            | SendOp::WriteImm(..)
            | SendOp::CompareSwap { .. }
            | SendOp::FetchAdd { .. } => false,
        };
        let is_iwarp = || self.fabric.with(|world| world.is_iwarp(self.no.host));
        if is_of_iwarp || !is_iwarp() { Ok(()) } else { Err(Errno::EOPNOTSUPP) }
    }

    /// Returns the action of a datagram. Checks its destination and length.
    fn datagram(&self, to: Peer<'_>, extra: Extra, len: usize) -> Result<Action, Errno> {
        self.fabric.with(|world| {
            let pair = world.queues.pairs.get(&self.no).ok_or(Errno::EINVAL)?;
            let foreign = (to.ah.pd.device.host, to.ah.pd.no) != (self.no.host, pair.pd);
            let source = world.address_at(self.no.host, to.ah.route.sgid_index).ok_or(Errno::EINVAL)?;
            if foreign || len > world.config.mtu as usize {
                return Err(Errno::EINVAL);
            }
            Ok(Action::Datagram { source, route: to.ah.route, to_qp: to.qp_num, qkey: to.qkey, extra })
        })
    }

    fn receive(&self, wr_id: u64, sges: &[Sge<'_, Mr>]) -> Result<Receive, Errno> {
        receive(&self.fabric, self.pd()?, self.caps().max_recv_sge, wr_id, sges)
    }

    fn ranges(&self, sges: &[Sge<'_, Mr>], needs: Access, max: u32) -> Result<Vec<KeyedRange>, Errno> {
        ranges(&self.fabric, self.pd()?, sges, needs, max)
    }
}

/// Creates a receive for a queue of this domain.
pub(super) fn receive(fabric: &Fabric, pd: PdNo, max: u32, wr_id: u64, sges: &[Sge<'_, Mr>]) -> Result<Receive, Errno> {
    Ok(Receive {
        wr_id,
        ranges: ranges(fabric, pd, sges, Access::LOCAL_WRITE, max)?,
        srq_entry: None,
        is_withdrawn: false,
    })
}

/// Returns the non-empty ranges of a work request.
fn ranges(fabric: &Fabric, pd: PdNo, sges: &[Sge<'_, Mr>], needs: Access, max: u32) -> Result<Vec<KeyedRange>, Errno> {
    let ranges = sges.iter().map(|sge| sge.mr.keyed_range(fabric, pd, sge, needs)).collect::<Result<Vec<_>, _>>()?;
    let ranges: Vec<_> = ranges.into_iter().filter(|range| range.len != 0).collect();
    if ranges.len() > max as usize { Err(Errno::EINVAL) } else { Ok(ranges) }
}

/// The length of an atomic operation, in bytes.
const ATOMIC_LEN: usize = 8;

/// The check of `validate_send_wr` of librxe.
fn check_atomic(remote: Remote, len: usize) -> Result<(), Errno> {
    let legal = len >= ATOMIC_LEN && remote.addr % ATOMIC_LEN as u64 == 0;
    if legal { Ok(()) } else { Err(Errno::EINVAL) }
}
