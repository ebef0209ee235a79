//! Posts of blocks to a QP, and their return.

use core::iter;

use cmid_proto::datapath::{
    BatchError, Caps, Completion, Lent, Parts, PostCall, PostReason, QueuePair as _, Returns, SendFlags, SendWr, Unposted,
};

use crate::accounting::wr_ring::Cursor;
use crate::data::piece::{check, sge, sges};
use crate::data::{Ah, Piece, Qp};

/// The blocks that the requests of a QP have.
#[derive(Debug)]
pub(super) struct QpBlocks {
    sends: Lent<Piece>,
    recvs: Lent<Piece>,
}

/// The blocks of one queue, and the position of its poster.
struct Queue<'a> {
    lent: &'a mut Lent<Piece>,
    cursor: &'a Cursor,
}

impl QpBlocks {
    fn new(caps: &Caps) -> Self {
        QpBlocks { sends: Lent::new(caps.max_send_wr), recvs: Lent::new(caps.max_recv_wr) }
    }

    /// Splits the blocks by queue.
    pub(super) fn into_queues(self) -> [Lent<Piece>; 2] {
        [self.sends, self.recvs]
    }
}

impl Queue<'_> {
    fn check_room(&mut self, count: usize) -> Result<(), PostReason> {
        let cursor = self.cursor;
        self.lent.check_room(count, |number| cursor.is_over(number as u32))
    }

    fn reclaim(&mut self, wr_id: u64) -> Option<Parts<Piece>> {
        let cursor = self.cursor;
        self.lent.reclaim(wr_id, |number| cursor.is_over(number as u32))
    }

    /// Adds the blocks of the last `count` requests that were posted. Those after the first `posted` were refused by
    /// the device.
    fn lend(
        &mut self,
        requests: impl Iterator<Item = (u64, Returns, Parts<Piece>)>,
        Counts { posted, filed }: Counts,
    ) {
        let first = (self.cursor.next() as u32).wrapping_sub(filed as u32);
        for ((wr_id, returns, parts), ahead) in requests.zip(0..) {
            let returns = if (ahead as usize) < posted { returns } else { Returns::ToPool };
            self.lent.lend(u64::from(first.wrapping_add(ahead)), wr_id, returns, parts);
        }
    }
}

/// How many requests of a batch are posted, and how many have a token: those too that the device may have.
#[derive(Clone, Copy)]
struct Counts {
    posted: usize,
    filed: usize,
}

impl Counts {
    fn of(result: Result<usize, BatchError>, all: usize) -> Self {
        match result {
            Ok(posted) => Counts { posted, filed: posted },
            Err(BatchError { posted, error }) => {
                let filed = if matches!(error.reason(), PostReason::Device(_)) { all } else { posted };
                Counts { posted, filed }
            }
        }
    }
}

/// Where the blocks of a request with these flags go.
fn returns(flags: SendFlags) -> Returns {
    if flags.contains(SendFlags::SIGNALED) { Returns::ByCompletion } else { Returns::OnFailure }
}

impl Qp {
    /// The blocks of the send queue.
    fn sends(&mut self) -> Queue<'_> {
        let (inner, cursor) = (&self.inner, &self.send);
        Queue { lent: &mut self.blocks.get_or_insert_with(|| Box::new(QpBlocks::new(inner.requested()))).sends, cursor }
    }

    /// The blocks of the receive queue.
    fn recvs(&mut self) -> Queue<'_> {
        let (inner, cursor) = (&self.inner, &self.recv);
        Queue { lent: &mut self.blocks.get_or_insert_with(|| Box::new(QpBlocks::new(inner.requested()))).recvs, cursor }
    }

    /// Ends the post of one request: the queue has its blocks, or they go back with the reason.
    fn settle_blocks(
        queue: &mut Queue<'_>,
        posted: Result<(), PostReason>,
        request: (u64, Returns, Parts<Piece>),
    ) -> Result<(), (PostReason, Option<Parts<Piece>>)> {
        let counts = match posted {
            Ok(()) => Counts { posted: 1, filed: 1 },
            Err(PostReason::Device(_)) => Counts { posted: 0, filed: 1 },
            Err(reason) => return Err((reason, Some(request.2))),
        };
        queue.lend(iter::once(request), counts);
        posted.map_err(|reason| (reason, None))
    }

    #[cold]
    fn unposted(&self, call: PostCall, (reason, blocks): (PostReason, Option<Parts<Piece>>)) -> Unposted<Piece> {
        Unposted { error: self.error(call, reason), blocks }
    }

    pub(super) fn send_blocks(
        &mut self,
        request: SendWr<'_, Parts<Piece>, Ah>,
    ) -> Result<(), Unposted<Piece>> {
        let SendWr { wr_id, op, sges: parts, flags } = request;
        let posted = match self.sends().check_room(1).and_then(|()| check(&parts, op.writes_locally())) {
            Err(reason) => Err(reason),
            Ok(()) => match &*parts {
                [part] => match sge(part) {
                    Some(sge) => self.post_one(wr_id, op, sge, flags),
                    None => Err(PostReason::NotRegistered),
                },
                parts => self.post_ranges(wr_id, op, &sges(parts), flags),
            },
        };
        Self::settle_blocks(&mut self.sends(), posted, (wr_id, returns(flags), parts))
            .map_err(|refused| self.unposted(PostCall::Send, refused))
    }

    pub(super) fn recv_blocks(&mut self, wr_id: u64, parts: Parts<Piece>) -> Result<(), Unposted<Piece>> {
        let posted = self.recvs().check_room(1).and_then(|()| check(&parts, true));
        let posted = posted.and_then(|()| self.post_receive(wr_id, &sges(&parts)));
        Self::settle_blocks(&mut self.recvs(), posted, (wr_id, Returns::ByCompletion, parts))
            .map_err(|refused| self.unposted(PostCall::Recv, refused))
    }

    pub(super) fn send_all_blocks(
        &mut self,
        requests: &mut Vec<SendWr<'_, Parts<Piece>, Ah>>,
    ) -> Result<usize, BatchError> {
        let all = requests.len();
        let checked = self.sends().check_room(all).and_then(|()| {
            requests.iter().try_for_each(|request| check(&request.sges, request.op.writes_locally()))
        });
        checked.map_err(|reason| BatchError { posted: 0, error: self.error(PostCall::Send, reason) })?;
        let posted = self.post_sends(
            requests.iter().map(|&SendWr { wr_id, op, ref sges, flags }| SendWr { wr_id, op, sges: self::sges(sges), flags }),
        );
        let counts = Counts::of(posted, all);
        let lent = requests.drain(..counts.filed).map(|request| (request.wr_id, returns(request.flags), request.sges));
        self.sends().lend(lent, counts);
        posted
    }

    pub(super) fn recv_all_blocks(&mut self, requests: &mut Vec<(u64, Parts<Piece>)>) -> Result<usize, BatchError> {
        let all = requests.len();
        let checked = self.recvs().check_room(all);
        let checked = checked.and_then(|()| requests.iter().try_for_each(|(_, parts)| check(parts, true)));
        checked.map_err(|reason| BatchError { posted: 0, error: self.error(PostCall::Recv, reason) })?;
        let posted = self.post_recvs(requests.iter().map(|(wr_id, parts)| (*wr_id, sges(parts))));
        let counts = Counts::of(posted, all);
        let lent = requests.drain(..counts.filed).map(|(wr_id, parts)| (wr_id, Returns::ByCompletion, parts));
        self.recvs().lend(lent, counts);
        posted
    }

    pub(super) fn reclaim_blocks(&mut self, completion: &Completion) -> Option<Parts<Piece>> {
        self.blocks.as_ref()?;
        let mut queue = if completion.opcode.is_recv() { self.recvs() } else { self.sends() };
        queue.reclaim(completion.wr_id)
    }
}

impl Drop for Qp {
    /// The QP keeps the blocks of its requests until they are drained.
    fn drop(&mut self) {
        if let Some(blocks) = self.blocks.take() {
            self.inner.keep(*blocks);
        }
    }
}
