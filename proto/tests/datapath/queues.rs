//! The queues of the device that records its calls.

use std::ops::Range;

use cmid_proto::Errno;
use cmid_proto::datapath::{
    Access, BatchError, Caps, Completion, ModifyError, Part, Parts, PostCall, PostError, QpAttrs, QpState, QueuePair,
    SendWr, Sge, SharedReceiveQueue, SrqCaps, Unpolled, Unposted, UnpostedBatch,
};

use crate::device::{Bytes, Mw, Piece, Qp, Srq};

impl SharedReceiveQueue for Srq {
    type Mr = Bytes;
    type Piece = Piece;

    fn post_recv_blocks<L: Into<Parts<Piece>>>(&mut self, _: u64, _: L) -> Result<(), Unposted<Piece>> {
        Ok(())
    }

    fn post_recvs_blocks<L, I>(&mut self, requests: I) -> Result<usize, UnpostedBatch<Piece>>
    where
        I: IntoIterator<Item = (u64, L)>,
        L: Into<Parts<Piece>>,
    {
        Ok(requests.into_iter().count())
    }

    fn reclaim(&mut self, _: &Completion) -> Option<Parts<Piece>> {
        None
    }

    fn num(&self) -> u32 {
        4
    }

    fn caps(&self) -> SrqCaps {
        self.0
    }

    fn unpolled(&self) -> u32 {
        0
    }

    fn arm_limit(&self, _: u32) -> Result<(), Errno> {
        Ok(())
    }

    fn limit(&self) -> Result<u32, Errno> {
        Ok(0)
    }

    fn post_recv<'a, L: AsRef<[Sge<'a, Bytes>]>>(&mut self, _: u64, _: L) -> Result<(), PostError> {
        Ok(())
    }

    fn post_recvs<'a, L, I>(&mut self, requests: I) -> Result<usize, BatchError>
    where
        I: IntoIterator<Item = (u64, L)>,
        L: AsRef<[Sge<'a, Bytes>]>,
    {
        Ok(requests.into_iter().count())
    }
}

impl QueuePair for Qp {
    type Mr = Bytes;
    type Mw = Mw;
    type Ah = u8;
    type Piece = Piece;

    fn post_send_blocks<L: Into<Parts<Piece>>>(&mut self, _: SendWr<'_, L, u8>) -> Result<(), Unposted<Piece>> {
        Ok(())
    }

    fn post_sends_blocks<'a, L, I>(&mut self, requests: I) -> Result<usize, UnpostedBatch<Piece>>
    where
        I: IntoIterator<Item = SendWr<'a, L, u8>>,
        L: Into<Parts<Piece>>,
    {
        Ok(requests.into_iter().count())
    }

    fn post_recv_blocks<L: Into<Parts<Piece>>>(&mut self, _: u64, _: L) -> Result<(), Unposted<Piece>> {
        Ok(())
    }

    fn post_recvs_blocks<L, I>(&mut self, requests: I) -> Result<usize, UnpostedBatch<Piece>>
    where
        I: IntoIterator<Item = (u64, L)>,
        L: Into<Parts<Piece>>,
    {
        Ok(requests.into_iter().count())
    }

    fn post_bind_block<L: Into<Part<Piece>>>(
        &mut self,
        _: u64,
        _: &mut Mw,
        _: L,
        _: Access,
    ) -> Result<(), Unposted<Piece>> {
        Ok(())
    }

    fn reclaim(&mut self, _: &Completion) -> Option<Parts<Piece>> {
        None
    }

    fn num(&self) -> u32 {
        9
    }

    fn state(&self) -> Result<QpState, Errno> {
        self.state
    }

    fn caps(&self) -> Caps {
        Caps::default()
    }

    fn modify(&mut self, attrs: QpAttrs) -> Result<(), ModifyError> {
        attrs.check(QpState::INIT).map_err(|reason| ModifyError { num: 9, reason })
    }

    fn attrs(&self) -> Result<QpAttrs, Errno> {
        Ok(QpAttrs::default())
    }

    fn unpolled(&self) -> Unpolled {
        self.left.borrow_mut().pop_front().unwrap_or_default()
    }

    fn post_send<'a, L: AsRef<[Sge<'a, Bytes>]>>(&mut self, request: SendWr<'a, L, u8>) -> Result<(), PostError> {
        if !self.refusals.is_empty() {
            return Err(PostError::new(PostCall::Send, 9, self.refusals.remove(0)));
        }
        self.sent.push(request.wr_id);
        Ok(())
    }

    fn post_sends<'a, L, I>(&mut self, requests: I) -> Result<usize, BatchError>
    where
        I: IntoIterator<Item = SendWr<'a, L, u8>>,
        L: AsRef<[Sge<'a, Bytes>]>,
    {
        Ok(requests.into_iter().count())
    }

    fn post_recv<'a, L: AsRef<[Sge<'a, Bytes>]>>(&mut self, _: u64, _: L) -> Result<(), PostError> {
        Ok(())
    }

    fn post_recvs<'a, L, I>(&mut self, requests: I) -> Result<usize, BatchError>
    where
        I: IntoIterator<Item = (u64, L)>,
        L: AsRef<[Sge<'a, Bytes>]>,
    {
        Ok(requests.into_iter().count())
    }

    fn post_bind(&mut self, _: u64, _: &mut Mw, _: &Bytes, _: Range<usize>, _: Access) -> Result<(), PostError> {
        Ok(())
    }

    fn post_invalidate(&mut self, _: u64, _: &mut Mw) -> Result<(), PostError> {
        Ok(())
    }
}
