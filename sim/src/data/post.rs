//! Posting work requests: the checks before a request is in a queue.

use std::borrow::Borrow;
use std::ops::Range;

use cmid_proto::datapath::{
    Access, BatchError, Caps, Completion, Length, MESSAGE_MAX, ModifyError, OfPd, Part, Parts, PostCall, PostError,
    PostReason, QpAttrs, QpState, QueuePair, Remote, SendFlags, SendOp, SendWr, Sge, Unpolled, Unposted, UnpostedBatch,
    WcOpcode,
};
use cmid_proto::{Errno, ErrorWith, Service, Transport};

use crate::data::action::{Action, Local};
use crate::data::ah::Ah;
use crate::data::blocks::{self, Piece};
use crate::data::mr::Mr;
use crate::data::mw::Mw;
use crate::data::packet::Extra;
use crate::data::pending::{Order, Pending, is_read};
use crate::data::qp::{PairState, Qp};
use crate::data::queues::Pair;
use crate::data::receive::{self, RecvOf};
use crate::data::space::{KeyedRange, Ranges};
use crate::data::work::{Batch, Peer, Stopped};
use crate::fabric::Fabric;
use crate::fabric::world::World;
use crate::index::PdNo;

impl QueuePair for Qp {
    type Mr = Mr;
    type Mw = Mw;
    type Ah = Ah;
    type Piece = Piece;

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

    fn modify(&mut self, attrs: QpAttrs) -> Result<(), ModifyError> {
        let modified = self.fabric.with(|world| world.modify_attrs(self.no, attrs));
        modified.map_err(|reason| ModifyError { num: self.no.num, reason })
    }

    /// # Errors
    /// `EINVAL` if it is destroyed.
    fn attrs(&self) -> Result<QpAttrs, Errno> {
        self.fabric.with(|world| world.attrs_of(self.no))
    }

    fn unpolled(&self) -> Unpolled {
        self.fabric.with(|world| world.queues.pairs.get(&self.no).map(|pair| pair.unpolled()).unwrap_or_default())
    }

    /// A datagram is lost without an error if no QP has the number, if no receive is posted or it is too short, or if
    /// the Q_Key differs. One that is too short ends if it is of an SRQ, and ends its QP on Linux 6.1. The QP number
    /// 0xFFFFFF sends to every QP that is attached to a group, including the sender's own QP if attached
    /// (`rxe_rcv_mcast_pkt`).
    ///
    /// # Errors
    /// [`PostReason::DatagramTooLong`] for a datagram of more bytes than the active MTU of the port
    /// ([`Config::mtu`](crate::Config::mtu)); [`PostReason::Gone`] after the QP is destroyed.
    fn post_send<'a, L>(&mut self, request: SendWr<'a, L, Ah>) -> Result<(), PostError>
    where
        L: AsRef<[Sge<'a, Mr>]>,
    {
        self.post_sends([request]).map(drop).map_err(|batch| batch.error)
    }

    fn post_sends<'a, L, I>(&mut self, requests: I) -> Result<usize, BatchError>
    where
        I: IntoIterator<Item = SendWr<'a, L, Ah>>,
        L: AsRef<[Sge<'a, Mr>]>,
        Ah: 'a,
    {
        let posted = self.queue(|_| {}).map_err(Stopped::from).and_then(|queue| {
            let work = |wr: SendWr<'a, L, Ah>| self.work(queue, wr.wr_id, wr.op, wr.sges.as_ref(), wr.flags);
            let batch = fitting(queue, requests.into_iter().map(work))?;
            self.fabric.with(|world| world.post_all(self.no, batch))
        });
        posted.map_err(|stopped| self.stopped(stopped))
    }

    fn post_recv<'a, L>(&mut self, wr_id: u64, sges: L) -> Result<(), PostError>
    where
        L: AsRef<[Sge<'a, Mr>]>,
    {
        self.post_recvs([(wr_id, sges)]).map(drop).map_err(|batch| batch.error)
    }

    fn post_recvs<'a, L, I>(&mut self, requests: I) -> Result<usize, BatchError>
    where
        I: IntoIterator<Item = (u64, L)>,
        L: AsRef<[Sge<'a, Mr>]>,
    {
        receive::post(&self.fabric, self.receives(), requests)
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
    ) -> Result<(), PostError> {
        let posted = self.bind_window(wr_id, window, mr, range, access);
        posted.map_err(|reason| self.error(PostCall::Bind, reason))
    }

    fn post_invalidate(&mut self, wr_id: u64, window: &mut Mw) -> Result<(), PostError> {
        self.invalidate_window(wr_id, window).map_err(|reason| self.error(PostCall::Invalidate, reason))
    }

    fn post_send_blocks<L: Into<Parts<Piece>>>(&mut self, request: SendWr<'_, L, Ah>) -> Result<(), Unposted<Piece>> {
        let SendWr { wr_id, op, sges, flags } = request;
        let mut one = Batch::from([SendWr { wr_id, op, sges: sges.into(), flags }]);
        let posted = self.send_all_blocks(&mut one);
        let blocks = one.pop().map(|request| request.sges);
        posted.map(drop).map_err(|BatchError { error, .. }| Unposted { error, given: blocks })
    }

    fn post_sends_blocks<'a, L, I>(&mut self, requests: I) -> Result<usize, UnpostedBatch<Piece>>
    where
        I: IntoIterator<Item = SendWr<'a, L, Ah>>,
        L: Into<Parts<Piece>>,
        Ah: 'a,
    {
        let owned = |SendWr { wr_id, op, sges, flags }| SendWr { wr_id, op, sges: L::into(sges), flags };
        let mut requests: Batch<_> = requests.into_iter().map(owned).collect();
        let posted = self.send_all_blocks(&mut requests);
        posted.map_err(|error| ErrorWith::new(requests.into_iter().map(|wr| wr.sges).collect(), error))
    }

    fn post_recv_blocks<L: Into<Parts<Piece>>>(&mut self, wr_id: u64, blocks: L) -> Result<(), Unposted<Piece>> {
        let one = Batch::from([(wr_id, blocks.into())]);
        receive::post_blocks(&self.fabric, self.receives(), &mut self.blocks[1], one).map(drop).map_err(receive::only)
    }

    fn post_recvs_blocks<L, I>(&mut self, requests: I) -> Result<usize, UnpostedBatch<Piece>>
    where
        I: IntoIterator<Item = (u64, L)>,
        L: Into<Parts<Piece>>,
    {
        receive::post_blocks(&self.fabric, self.receives(), &mut self.blocks[1], receive::batch(requests))
    }

    fn post_bind_block<L: Into<Part<Piece>>>(
        &mut self,
        wr_id: u64,
        window: &mut Mw,
        part: L,
        access: Access,
    ) -> Result<(), Unposted<Piece>> {
        self.bind_block(wr_id, window, part.into(), access)
    }

    fn reclaim(&mut self, completion: &Completion) -> Option<Parts<Piece>> {
        let (fabric, no, [sends, recvs]) = (&self.fabric, self.no, &mut self.blocks);
        if completion.opcode.is_recv() {
            return receive::reclaim(fabric, RecvOf::Qp(no), recvs, completion);
        }
        let is_over = |number| fabric.with(|world| world.queues.is_send_over(no, number));
        let parts = sends.reclaim(completion, is_over);
        if is_read(completion.opcode) { parts.map(blocks::loaded) } else { parts }
    }
}

impl Qp {
    fn receives(&self) -> (RecvOf, Result<Queue, PostReason>) {
        (RecvOf::Qp(self.no), Err(PostReason::Gone))
    }

    /// Takes the requests that are posted, or that the device may execute, out of the batch.
    fn send_all_blocks(&mut self, requests: &mut Batch<SendWr<'_, Parts<Piece>, Ah>>) -> Result<usize, BatchError> {
        let [lent, _] = &mut self.blocks;
        let (fabric, no) = (&self.fabric, self.no);
        let is_over = |number| fabric.with(|world| world.queues.is_send_over(no, number));
        let checked = lent.check_room(requests.len(), is_over).and_then(|()| {
            requests.iter().try_for_each(|request| blocks::check(&request.sges, request.op.writes_locally()))
        });
        checked.map_err(|reason| self.stopped(reason.into()))?;
        let flush = |world: &mut World| requests.iter().for_each(|it| blocks::flush(&it.sges, fabric, world));
        let queue = self.queue(flush).map_err(|gone| self.stopped(gone.into()))?;
        let work = |wr: &SendWr<'_, Parts<Piece>, Ah>| {
            self.work(queue, wr.wr_id, wr.op, blocks::sges(&wr.sges, queue.pd), wr.flags)
        };
        let batch = fitting(queue, requests.iter().map(work));
        let posted = batch.and_then(|batch| fabric.with(|world| world.post_all(no, batch)));
        let lent = requests.drain(..Stopped::filed(posted));
        let lent = lent.map(|request| (request.wr_id, blocks::returns(request.flags), request.sges));
        blocks::lend(&mut self.blocks[0], posted, queue.last, lent);
        posted.map_err(|stopped| self.stopped(stopped))
    }
}

/// What the requests of a queue are checked by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queue {
    pub(crate) pd: PdNo,
    /// The maximum number of ranges of a request.
    pub(crate) max_sge: u32,
    /// The number of requests that it holds, and that it has room for.
    pub(crate) max: u32,
    pub(crate) room: u32,
    /// The number of its last request.
    pub(crate) last: u64,
    /// Whether the peer answers no reads and atomic operations.
    pub(crate) is_unanswered: bool,
    /// Whether libsiw rings no more, because the doorbell of a request was refused.
    pub(crate) is_stuck: bool,
}

impl Pair {
    /// What a post of sends checks them by.
    fn send_queue(&self) -> Queue {
        let Caps { max_send_sge: max_sge, max_send_wr: max, .. } = self.caps;
        // `max_rd_atomic` is 0 until RTS.
        let never = self.order == Order::OfPosts && self.state == PairState::Err && self.reads_at_once.is_none();
        let is_unanswered = self.reads_at_once == Some(0) || never;
        let is_stuck = self.order == Order::OfTransport && self.sends.iter().any(|pending| pending.is_withdrawn);
        Queue { pd: self.pd, max_sge, max, room: self.send_room(), last: self.sequence, is_unanswered, is_stuck }
    }
}

/// Returns a batch, if each of its requests passes, and it is not empty and the queue has room for all of it.
pub(super) fn fitting<T>(
    queue: Queue,
    requests: impl Iterator<Item = Result<T, PostReason>>,
) -> Result<Batch<T>, Stopped> {
    // A batch need not end: what is beyond the room is not looked at.
    let batch: Batch<T> = requests.take(queue.room as usize + 1).collect::<Result<_, _>>()?;
    match batch.len() {
        0 => Err(PostReason::EmptyBatch.into()),
        count if count > queue.room as usize => Err(PostReason::QueueFull { max: queue.max }.into()),
        _ => Ok(batch),
    }
}

impl Qp {
    /// Returns its send queue, after `first`.
    fn queue(&self, first: impl FnOnce(&mut World)) -> Result<Queue, PostReason> {
        self.fabric.with(|world| {
            first(world);
            Ok(world.queues.pairs.get(&self.no).ok_or(PostReason::Gone)?.send_queue())
        })
    }

    pub(super) fn error(&self, call: PostCall, reason: PostReason) -> PostError {
        PostError::new(call, self.no.num, reason)
    }

    fn stopped(&self, Stopped { posted, reason, .. }: Stopped) -> BatchError {
        BatchError { posted, error: self.error(PostCall::Send, reason) }
    }

    /// Makes the checks of a request that do not need its send queue.
    fn work<'a>(
        &self,
        queue: Queue,
        wr_id: u64,
        op: SendOp<'_, Ah>,
        sges: impl IntoIterator<Item = impl Borrow<Sge<'a, Mr>>>,
        flags: SendFlags,
    ) -> Result<Box<Pending>, PostReason> {
        self.check_transport(&op, queue)?;
        let needs = if op.writes_locally() { Access::LOCAL_WRITE } else { Access::empty() };
        let ranges = ranges(&self.fabric, queue, sges, needs)?;
        // rxe would wait for an answer forever.
        if queue.is_unanswered && op.writes_locally() {
            return Err(PostReason::NoReads);
        }
        // A read has one target there (RFC 5040, 4.3). siw reads and writes other memory for an empty one.
        let is_iwarp_read = op.writes_locally() && self.is_iwarp();
        if ranges.len() > 1 && (is_iwarp_read || op.is_atomic()) {
            return Err(PostReason::TooManyRanges { ranges: ranges.len() as u32, max: 1 });
        }
        if ranges.is_empty() && is_iwarp_read {
            return Err(PostReason::NotOfTransport(Transport::Iwarp));
        }
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
        Ok(Pending::new(wr_id, opcode, flags, local, action))
    }

    /// Refuses what iWARP does not have, immediate data and atomic operations, and what would not be executed.
    fn check_transport(&self, op: &SendOp<'_, Ah>, queue: Queue) -> Result<(), PostReason> {
        let is_of_iwarp = match op {
            SendOp::Send | SendOp::SendInvalidate(_) | SendOp::SendTo(_) | SendOp::Write(_) | SendOp::Read(_) => true,
            SendOp::SendImm(_)
            | SendOp::SendToImm(..)
            | SendOp::WriteImm(..)
            | SendOp::CompareSwap { .. }
            | SendOp::FetchAdd { .. } => false,
        };
        match (is_of_iwarp, queue.is_stuck) {
            (false, _) if self.is_iwarp() => Err(PostReason::NotOfTransport(Transport::Iwarp)),
            (_, true) => Err(PostReason::Stuck),
            _ => Ok(()),
        }
    }

    fn is_iwarp(&self) -> bool {
        self.fabric.with(|world| world.is_iwarp(self.no.host))
    }

    /// Returns the action of a datagram. Checks its destination and length.
    fn datagram(&self, to: Peer<'_>, extra: Extra, len: usize) -> Result<Action, PostReason> {
        self.fabric.with(|world| {
            let pair = world.queues.pairs.get(&self.no).ok_or(PostReason::Gone)?;
            if pair.service == Service::Connected {
                return Err(PostReason::IsConnected);
            }
            if !self.fabric.is(&to.ah.fabric) || to.ah.pd.no != pair.pd {
                return Err(PostReason::OtherPd(OfPd::Ah));
            }
            let source = world.address_at(self.no.host, to.ah.route.sgid_index);
            let source = source.ok_or(PostReason::Device(Errno::EINVAL))?;
            if len > world.config.mtu as usize {
                let len = u32::try_from(len).unwrap_or(u32::MAX);
                return Err(PostReason::DatagramTooLong { len, mtu: world.config.mtu });
            }
            Ok(Action::Datagram { source, route: to.ah.route, to_qp: to.qp_num, qkey: to.qkey, extra })
        })
    }
}

/// Returns the non-empty ranges of a work request.
pub(super) fn ranges<'a>(
    fabric: &Fabric,
    Queue { pd, max_sge: max, .. }: Queue,
    sges: impl IntoIterator<Item = impl Borrow<Sge<'a, Mr>>>,
    needs: Access,
) -> Result<Ranges, PostReason> {
    let mut ranges = Ranges::new();
    for sge in sges {
        let sge = sge.borrow();
        let range = sge.mr.keyed_range(fabric, pd, sge, needs)?;
        if range.len != 0 {
            ranges.push(range);
        }
    }
    let len = ranges.iter().fold(0_usize, |len, range| len.saturating_add(range.len));
    if len > MESSAGE_MAX {
        return Err(PostReason::RangesTooLong { len: Length::new(len) });
    }
    match u32::try_from(ranges.len()).unwrap_or(u32::MAX) {
        ranges if ranges > max => Err(PostReason::TooManyRanges { ranges, max }),
        _ => Ok(ranges),
    }
}

/// The length of an atomic operation, in bytes.
const ATOMIC_LEN: usize = 8;

/// The check of cmid-verbs; `validate_send_wr` of librxe has no maximum.
fn check_atomic(remote: Remote, len: usize) -> Result<(), PostReason> {
    let legal = len == ATOMIC_LEN && remote.addr % ATOMIC_LEN as u64 == 0;
    if legal { Ok(()) } else { Err(PostReason::BadAtomic) }
}
