//! Posting work requests: to the send queue through ibv_wr_post(3) if the provider has it, otherwise through
//! ibv_post_send(3); to the receive queue through ibv_post_recv(3).
//!
//! # SAFETY OF POSTING
//!
//! The QP is alive and of the kind that the request needs (`check_op`). The provider copies the request, its ranges and
//! inline data before the posting call returns. The memory that the request names belongs to the PD of the QP
//! (`Named`). It is borrowed during the call, and after it, if the device or the provider still accesses it, an MR is
//! pinned (see `Mr`), and a block belongs to the request (see `Piece`). If the request writes to it, it is writable. An address handle is borrowed during the call. It is of the same
//! PD, and so of the same device (`check_op`).

use core::ops::Range;
use core::{ptr, slice};

use cmid_proto::Errno;
use cmid_proto::datapath::{
    BatchError, Caps, Completion, ModifyError, Part, Parts, PostCall, PostError, PostReason, QpAttrs, QpState,
    QueuePair, SendFlags, SendOp, SendWr, Sge, Unpolled, Unposted, UnpostedBatch,
};
use cmid_proto::memory::Access;

use crate::accounting::wr_ring::Filing;
use crate::data::poster::Poster;
use crate::data::ranges::{Borrowed, Keeper, Named, Sges, count, pinned_key, pinned_keys, ranges};
use crate::data::request::{destination, kind_of, send_request};
use crate::data::staging::{Stopped, answer};
use crate::data::wr_api::{Payload, WrApi};
use crate::data::{Ah, Mr, Mw, Piece, Qp};
use crate::ffi::{ibv_recv_wr, ibv_send_wr, ibv_sge};

/// A request of the send queue that has a slot in the ring and is not posted yet.
pub(super) struct Filed {
    pub(super) token: u64,
    pub(super) sges: Sges,
    pub(super) is_inline: bool,
}

impl QueuePair for Qp {
    type Mr = Mr;
    type Mw = Mw;
    type Ah = Ah;
    type Piece = Piece;

    fn num(&self) -> u32 {
        self.poster.inner.qp_num()
    }

    fn state(&self) -> Result<QpState, Errno> {
        self.poster.inner.query_state()
    }

    fn caps(&self) -> Caps {
        self.poster.inner.caps
    }

    fn modify(&mut self, attrs: QpAttrs) -> Result<(), ModifyError> {
        self.poster.inner.modify_attrs(attrs).map_err(|reason| ModifyError { num: self.poster.inner.qp_num(), reason })
    }

    fn attrs(&self) -> Result<QpAttrs, Errno> {
        self.poster.inner.query_attrs()
    }

    fn unpolled(&self) -> Unpolled {
        self.poster.inner.queues.unpolled()
    }

    /// A datagram must fit into one packet. The MTU is that of the port when a datagram was last found to be too long for it,
    /// so one is lost that became too long since.
    #[inline(always)]
    fn post_send<'a, L>(&mut self, request: SendWr<'a, L, Ah>) -> Result<(), PostError>
    where
        L: AsRef<[Sge<'a, Mr>]>,
    {
        let SendWr { wr_id, op, sges, flags } = request;
        match self.poster.post_named(wr_id, op, sges.as_ref(), flags) {
            Ok(()) => Ok(()),
            Err(reason) => Err(self.poster.error(PostCall::Send, reason)),
        }
    }

    fn post_sends<'a, L, I>(&mut self, requests: I) -> Result<usize, BatchError>
    where
        I: IntoIterator<Item = SendWr<'a, L, Ah>>,
        L: AsRef<[Sge<'a, Mr>]>,
        Ah: 'a,
    {
        let posted = self.poster.post_all_named(requests.into_iter(), &mut Borrowed(None));
        posted.map_err(|stopped| self.poster.stopped(PostCall::Send, stopped))
    }

    #[inline(always)]
    fn post_recv<'a, L>(&mut self, wr_id: u64, sges: L) -> Result<(), PostError>
    where
        L: AsRef<[Sge<'a, Mr>]>,
    {
        match self.poster.post_receive(wr_id, sges.as_ref()) {
            Ok(()) => Ok(()),
            Err(reason) => Err(self.poster.error(PostCall::Recv, reason)),
        }
    }

    fn post_recvs<'a, L, I>(&mut self, requests: I) -> Result<usize, BatchError>
    where
        I: IntoIterator<Item = (u64, L)>,
        L: AsRef<[Sge<'a, Mr>]>,
    {
        let posted = self.poster.post_recv_list(requests.into_iter(), &mut Borrowed(None));
        posted.map_err(|stopped| self.poster.stopped(PostCall::Recv, stopped))
    }

    fn post_bind(
        &mut self,
        wr_id: u64,
        window: &mut Mw,
        mr: &Mr,
        range: Range<usize>,
        access: Access,
    ) -> Result<(), PostError> {
        let posted = self.poster.bind_window(wr_id, window, mr, range, access);
        posted.map_err(|reason| self.poster.error(PostCall::Bind, reason))
    }

    /// A window that is not bound is refused, because rxe would follow null pointers (`rxe_do_invalidate_mw`).
    fn post_invalidate(&mut self, wr_id: u64, window: &mut Mw) -> Result<(), PostError> {
        self.poster.invalidate_window(wr_id, window).map_err(|reason| self.poster.error(PostCall::Invalidate, reason))
    }

    #[inline(always)]
    fn post_send_blocks<L: Into<Parts<Piece>>>(&mut self, request: SendWr<'_, L, Ah>) -> Result<(), Unposted<Piece>> {
        self.send_blocks(request)
    }

    fn post_sends_blocks<'a, L, I>(&mut self, requests: I) -> Result<usize, UnpostedBatch<Piece>>
    where
        I: IntoIterator<Item = SendWr<'a, L, Ah>>,
        L: Into<Parts<Piece>>,
        Ah: 'a,
    {
        self.send_all_blocks(requests.into_iter())
    }

    fn post_recv_blocks<L: Into<Parts<Piece>>>(&mut self, wr_id: u64, blocks: L) -> Result<(), Unposted<Piece>> {
        self.recv_blocks(wr_id, blocks)
    }

    fn post_recvs_blocks<L, I>(&mut self, requests: I) -> Result<usize, UnpostedBatch<Piece>>
    where
        I: IntoIterator<Item = (u64, L)>,
        L: Into<Parts<Piece>>,
    {
        self.recv_all_blocks(requests.into_iter())
    }

    fn post_bind_block<L: Into<Part<Piece>>>(
        &mut self,
        wr_id: u64,
        window: &mut Mw,
        part: L,
        access: Access,
    ) -> Result<(), Unposted<Piece>> {
        self.poster.bind_block(wr_id, window, part.into(), access)
    }

    #[inline(always)]
    fn reclaim(&mut self, completion: &Completion) -> Option<Parts<Piece>> {
        let (blocks, poster) = (self.blocks.as_mut()?, &self.poster);
        let is_recv = completion.opcode.is_recv();
        let (lent, cursor) =
            if is_recv { (&mut blocks.recvs, &poster.recv) } else { (&mut blocks.sends, &poster.send) };
        lent.reclaim(completion, |number| cursor.is_over(number as u32))
    }
}

impl Poster {
    #[inline(always)]
    pub(super) fn post_receive<N: Named>(&mut self, wr_id: u64, named: &[N]) -> Result<(), PostReason> {
        let mut one;
        let mut list;
        let (token, sg_list, num_sge) = match named {
            [one_named] => {
                let sge = self.recv_range(one_named)?;
                let token = self.file_recv_one(wr_id, pinned_key::<N>(&sge, false))?;
                one = sge;
                (token, &raw mut one, count(slice::from_ref(&sge), self.is_iwarp))
            }
            named => {
                list = self.recv_ranges(named)?;
                let token = self.file_recv(wr_id, &pinned_keys::<N>(&list, false))?;
                (token, list.as_mut_ptr(), count(&list, self.is_iwarp))
            }
        };
        let mut request = ibv_recv_wr { wr_id: token, next: ptr::null_mut(), sg_list, num_sge };
        let mut bad = ptr::null_mut();
        // SAFETY: the QP is alive. The function is its provider's, and copies the request and its ranges before it
        // returns. The memory that the request names is writable, of the same PD, and from here on pinned (see `Mr`) or
        // the request's (see `Piece`).
        let returned = unsafe { (self.inner.post_recv)(self.inner.as_ptr(), &raw mut request, &raw mut bad) };
        match answer(returned, bad) {
            Ok(()) => Ok(()),
            Err(errno) => self.end_recv(errno),
        }
    }

    /// Posts a request of the send queue that names this memory.
    #[inline(always)]
    pub(super) fn post_named(
        &mut self,
        wr_id: u64,
        op: SendOp<'_, Ah>,
        named: &[impl Named],
        flags: SendFlags,
    ) -> Result<(), PostReason> {
        match named {
            // The usual case, without a loop.
            [one] => self.post_one(wr_id, op, one, flags),
            several => self.post_ranges(wr_id, op, several, flags),
        }
    }

    #[inline(always)]
    fn post_one<N: Named>(
        &mut self,
        wr_id: u64,
        op: SendOp<'_, Ah>,
        one: &N,
        flags: SendFlags,
    ) -> Result<(), PostReason> {
        // See `check_op`.
        let api = match destination(&op) {
            Some(_) => self.wr_api.filter(|_| self.check_op(&op).is_ok()),
            None => self.connected_api,
        };
        let (Some(api), Ok(sge)) = (api, one.range(self.pd, op.writes_locally())) else {
            // Not the values above: a pointer to them would keep them out of registers.
            let sges = one.range(self.pd, op.writes_locally());
            return self.post_one_classic::<N>(SendWr { wr_id, op, sges, flags });
        };
        // SAFETY: the QP is alive, and posting takes it by `&mut`.
        let mut batch = unsafe { api.start() };
        self.check_reads(&op)?;
        let is_inline = self.check_one(&op, &sge)?;
        let token = self.file_send_one(wr_id, pinned_key::<N>(&sge, is_inline), kind_of(&op))?;
        // SAFETY: see `SAFETY OF POSTING`.
        unsafe { batch.push(token, op, flags, Payload::of(sge, is_inline)) };
        let answer = batch.complete();
        self.settle(answer)
    }

    /// As `post_one`, by ibv_post_send(3). What is wrong with the operation is said before what is wrong with the range.
    fn post_one_classic<N: Named>(
        &mut self,
        request: SendWr<'_, Result<ibv_sge, PostReason>, Ah>,
    ) -> Result<(), PostReason> {
        let SendWr { wr_id, op, sges, flags } = request;
        self.check_op(&op)?;
        let mut sge = sges?;
        self.check_classic_len(&op, u64::from(sge.length))?;
        if sge.length != 0 && self.inner.requested().max_send_sge == 0 {
            return Err(PostReason::TooManyRanges { ranges: 1, max: 0 });
        }
        let is_inline = self.inlines(&op, u64::from(sge.length));
        let token = self.file_send_one(wr_id, pinned_key::<N>(&sge, is_inline), kind_of(&op).with(flags))?;
        let mut request = send_request(token, op, self.flags(&op, flags), is_inline);
        let num_sge = count(slice::from_ref(&sge), false);
        (request.sg_list, request.num_sge) = (&raw mut sge, num_sge);
        let answer = self.post_filed(&mut request);
        self.settle(answer)
    }

    /// Checks the length of the only range of a request. Returns whether the post copies it.
    #[inline(always)]
    fn check_one(&self, op: &SendOp<'_, Ah>, sge: &ibv_sge) -> Result<bool, PostReason> {
        self.check_len(op, u64::from(sge.length))?;
        Ok(self.inlines(op, u64::from(sge.length)))
    }

    fn post_ranges(
        &mut self,
        wr_id: u64,
        op: SendOp<'_, Ah>,
        named: &[impl Named],
        flags: SendFlags,
    ) -> Result<(), PostReason> {
        self.open_send()?;
        let Filed { token, mut sges, is_inline } =
            self.file_ranges(&mut self.send.batch(), wr_id, &op, flags, named)?;
        self.send.advance_by(1);
        let answer = if let Some(api) = self.wr_api {
            // SAFETY: the QP is alive, and posting takes it by `&mut`.
            let mut batch = unsafe { api.start() };
            // SAFETY: see `SAFETY OF POSTING`.
            unsafe { batch.push(token, op, flags, Payload::of_first(&sges, is_inline)) };
            batch.complete()
        } else {
            let mut request = send_request(token, op, self.flags(&op, flags), is_inline);
            let num_sge = count(&sges, false);
            (request.sg_list, request.num_sge) = (sges.as_mut_ptr(), num_sge);
            self.post_filed(&mut request)
        };
        self.settle(answer)
    }

    /// Posts a batch to the send queue.
    pub(super) fn post_all_named<'a, R, L>(
        &mut self,
        requests: impl Iterator<Item = SendWr<'a, L, Ah>>,
        keeper: &mut impl Keeper<L, R>,
    ) -> Result<usize, Stopped>
    where
        R: Named,
        Ah: 'a,
    {
        self.open_send()?;
        match self.wr_api {
            // Separate loops: in each the kind of the QP is a constant.
            Some(api) if self.is_datagram => self.post_batch(api, true, requests, keeper),
            Some(api) => self.post_batch(api, false, requests, keeper),
            None => self.post_list(requests, keeper),
        }
    }

    /// Posts a batch by the extended calls. Nothing is posted if a request is refused, because the batch is dropped.
    #[inline(always)]
    fn post_batch<'a, R, L>(
        &mut self,
        api: WrApi,
        is_datagram: bool,
        requests: impl Iterator<Item = SendWr<'a, L, Ah>>,
        keeper: &mut impl Keeper<L, R>,
    ) -> Result<usize, Stopped>
    where
        R: Named,
        Ah: 'a,
    {
        // SAFETY: the QP is alive, and posting takes it by `&mut`.
        let mut batch = unsafe { api.start() };
        let (mut count, mut filing) = (0, self.send.batch());
        for SendWr { wr_id, op, sges, flags } in requests {
            match keeper.keep(&filing, wr_id, flags, sges)? {
                [one] => {
                    self.check_kind(&op, is_datagram)?;
                    self.check_reads(&op)?;
                    let sge = one.range(self.pd, op.writes_locally())?;
                    let is_inline = self.check_one(&op, &sge)?;
                    let Some(token) = filing.file_one(wr_id, pinned_key::<R>(&sge, is_inline), kind_of(&op)) else {
                        return Err(self.send_refusal().into());
                    };
                    // SAFETY: see `SAFETY OF POSTING`.
                    unsafe { batch.push(token, op, flags, Payload::of(sge, is_inline)) };
                }
                several => {
                    let Filed { token, sges, is_inline } = self.file_ranges(&mut filing, wr_id, &op, flags, several)?;
                    // SAFETY: see `SAFETY OF POSTING`.
                    unsafe { batch.push(token, op, flags, Payload::of_first(&sges, is_inline)) };
                }
            }
            count += 1;
        }
        if count == 0 {
            return Err(PostReason::EmptyBatch.into());
        }
        self.send.advance_by(count as u32);
        match batch.complete() {
            Ok(()) => Ok(count),
            Err(errno) => self.end_sends(count, PostReason::Device(errno).into()),
        }
    }

    /// The flags of a request for ibv_post_send(3). On iWARP each is signaled: completions come out of order, so one tells
    /// nothing of other requests, and soft-iWARP gives TCP the pages of a long unsignaled one, which it reads after the
    /// completion of a later one (`siw_qp_prepare_tx`). Reads are answered in order there: they need no fence, and soft-iWARP
    /// refuses it.
    pub(super) fn flags(&self, op: &SendOp<'_, Ah>, flags: SendFlags) -> SendFlags {
        let unfenced = if op.writes_locally() { SendFlags::FENCE } else { SendFlags::empty() };
        if self.is_iwarp { flags.union(SendFlags::SIGNALED).difference(unfenced) } else { flags }
    }

    /// Posts a filed request. [`Qp::settle`] follows.
    pub(super) fn post_filed(&mut self, request: &mut ibv_send_wr) -> Result<(), Errno> {
        let (qp, mut bad) = (&self.inner, ptr::null_mut());
        // SAFETY: see `SAFETY OF POSTING`; the function is the provider's.
        let returned = unsafe { (qp.post_send)(qp.as_ptr(), request, &raw mut bad) };
        answer(returned, bad)
    }

    /// Files a request of the send queue with any number of ranges.
    pub(super) fn file_ranges<N: Named>(
        &self,
        filing: &mut Filing<'_>,
        wr_id: u64,
        op: &SendOp<'_, Ah>,
        flags: SendFlags,
        named: &[N],
    ) -> Result<Filed, PostReason> {
        self.check_op(op)?;
        let max = self.inner.requested().max_send_sge;
        // A read has one target on iWARP (RFC 5040, 4.3): soft-iWARP fills the first of several and succeeds. So has an
        // atomic operation: the device of irdma writes 8 bytes to the first (`irdma_upost_send`), libqedr spoils the
        // next request.
        let max = if op.is_atomic() || (self.is_iwarp && op.writes_locally()) { max.min(1) } else { max };
        let sges = ranges(self.pd, named, max, op.writes_locally())?;
        let len = sges.iter().map(|sge| u64::from(sge.length)).sum();
        self.check_classic_len(op, len)?;
        let is_inline = self.inlines(op, len);
        let token = {
            let (keys, kind) = (pinned_keys::<N>(&sges, is_inline), kind_of(op).with(flags));
            filing.file(wr_id, &keys, kind).ok_or_else(|| self.send_refusal())?
        };
        Ok(Filed { token, sges, is_inline })
    }
}
