//! Posts of blocks to a QP, and their return.

use core::iter;

use cmid_proto::datapath::{
    BatchError, Caps, Completion, Lent, Parts, PostCall, PostReason, Returns, SendFlags, SendWr, Unposted,
};

use crate::accounting::wr_ring::Cursor;
use crate::data::staging::Stopped;
use crate::data::{Ah, Piece, Qp, QpInner};

/// The blocks that the requests of a QP have.
#[derive(Debug)]
pub(super) struct QpBlocks {
    sends: Lent<Piece>,
    recvs: Lent<Piece>,
}

/// The blocks of one queue, and the position of its poster.
pub(super) struct Queue<'a> {
    lent: &'a mut Lent<Piece>,
    cursor: &'a Cursor,
}

impl QpBlocks {
    /// Returns those of a QP, with room for its requests.
    fn of<'a>(blocks: &'a mut Option<Box<QpBlocks>>, qp: &QpInner) -> &'a mut QpBlocks {
        blocks.get_or_insert_with(|| QpBlocks::new(qp.requested()))
    }

    #[cold]
    fn new(caps: &Caps) -> Box<Self> {
        Box::new(QpBlocks { sends: Lent::new(caps.max_send_wr), recvs: Lent::new(caps.max_recv_wr) })
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

    pub(super) fn reclaim(&mut self, completion: &Completion) -> Option<Parts<Piece>> {
        let cursor = self.cursor;
        self.lent.reclaim(completion, |number| cursor.is_over(number as u32))
    }

    /// Adds the blocks of the last request, which was posted.
    fn lend_last(&mut self, wr_id: u64, returns: Returns, parts: Parts<Piece>) {
        self.lent.lend(u64::from((self.cursor.next() as u32).wrapping_sub(1)), wr_id, returns, parts);
    }

    /// Adds the blocks of the last `filed` requests. Those after the first `posted` were refused by
    /// the device.
    fn lend(&mut self, requests: impl Iterator<Item = (u64, Returns, Parts<Piece>)>, Counts { posted, filed }: Counts) {
        let first = (self.cursor.next() as u32).wrapping_sub(filed as u32);
        for ((wr_id, returns, parts), ahead) in requests.zip(0..) {
            let returns = if (ahead as usize) < posted { returns } else { Returns::ToPool };
            self.lent.lend(u64::from(first.wrapping_add(ahead)), wr_id, returns, parts);
        }
    }
}

/// The `wr_id` of a request, and its blocks.
type Owning = (u64, Returns, Parts<Piece>);

/// How many requests of a batch are posted, and how many have a token: those too that the device may have.
#[derive(Clone, Copy)]
struct Counts {
    posted: usize,
    filed: usize,
}

impl Counts {
    fn of(result: Result<usize, Stopped>, all: usize) -> Self {
        match result {
            Ok(posted) => Counts { posted, filed: posted },
            Err(Stopped { posted, reason: PostReason::Device(_) }) => Counts { posted, filed: all },
            Err(Stopped { posted, .. }) => Counts { posted, filed: posted },
        }
    }
}

/// Where the blocks of a request with these flags go.
fn returns(flags: SendFlags) -> Returns {
    if flags.contains(SendFlags::SIGNALED) { Returns::ByCompletion } else { Returns::OnFailure }
}

impl Qp {
    /// The blocks of the send queue.
    pub(super) fn sends(&mut self) -> Queue<'_> {
        let cursor = &self.poster.send;
        Queue { lent: &mut QpBlocks::of(&mut self.blocks, &self.poster.inner).sends, cursor }
    }

    /// The blocks of the receive queue.
    pub(super) fn recvs(&mut self) -> Queue<'_> {
        let cursor = &self.poster.recv;
        Queue { lent: &mut QpBlocks::of(&mut self.blocks, &self.poster.inner).recvs, cursor }
    }

    /// Returns a request that was not posted with its blocks, unless the device may have it.
    #[cold]
    fn unposted(&mut self, call: PostCall, reason: PostReason, request: Owning) -> Unposted<Piece> {
        let error = self.poster.error(call, reason);
        if !matches!(reason, PostReason::Device(_)) {
            return Unposted { error, given: Some(request.2) };
        }
        let mut queue = if call == PostCall::Send { self.sends() } else { self.recvs() };
        queue.lend(iter::once(request), Counts { posted: 0, filed: 1 });
        Unposted { error, given: None }
    }

    #[inline(always)]
    pub(super) fn send_blocks(&mut self, request: SendWr<'_, Parts<Piece>, Ah>) -> Result<(), Unposted<Piece>> {
        let SendWr { wr_id, op, sges: parts, flags } = request;
        if let Err(reason) = self.sends().check_room(1) {
            return Err(self.unposted(PostCall::Send, reason, (wr_id, returns(flags), parts)));
        }
        match self.poster.post_named(wr_id, op, &parts, flags) {
            Ok(()) => {
                self.sends().lend_last(wr_id, returns(flags), parts);
                Ok(())
            }
            Err(reason) => Err(self.unposted(PostCall::Send, reason, (wr_id, returns(flags), parts))),
        }
    }

    #[inline(always)]
    pub(super) fn recv_blocks(&mut self, wr_id: u64, parts: Parts<Piece>) -> Result<(), Unposted<Piece>> {
        if let Err(reason) = self.recvs().check_room(1) {
            return Err(self.unposted(PostCall::Recv, reason, (wr_id, Returns::ByCompletion, parts)));
        }
        match self.poster.post_receive(wr_id, &parts) {
            Ok(()) => {
                self.recvs().lend_last(wr_id, Returns::ByCompletion, parts);
                Ok(())
            }
            Err(reason) => Err(self.unposted(PostCall::Recv, reason, (wr_id, Returns::ByCompletion, parts))),
        }
    }

    pub(super) fn send_all_blocks(
        &mut self,
        requests: &mut Vec<SendWr<'_, Parts<Piece>, Ah>>,
    ) -> Result<usize, BatchError> {
        let all = requests.len();
        let posted = match self.sends().check_room(all) {
            Ok(()) => self.poster.post_all_named(requests.iter().map(|request| {
                let &SendWr { wr_id, op, ref sges, flags } = request;
                SendWr { wr_id, op, sges, flags }
            })),
            Err(reason) => Err(reason.into()),
        };
        let counts = Counts::of(posted, all);
        let lent = requests.drain(..counts.filed).map(|request| (request.wr_id, returns(request.flags), request.sges));
        self.sends().lend(lent, counts);
        posted.map_err(|stopped| self.poster.stopped(PostCall::Send, stopped))
    }

    pub(super) fn recv_all_blocks(&mut self, requests: &mut Vec<(u64, Parts<Piece>)>) -> Result<usize, BatchError> {
        let all = requests.len();
        let posted = match self.recvs().check_room(all) {
            Ok(()) => self.poster.post_recv_list(requests.iter().map(|(wr_id, parts)| (*wr_id, parts))),
            Err(reason) => Err(reason.into()),
        };
        let counts = Counts::of(posted, all);
        let lent = requests.drain(..counts.filed).map(|(wr_id, parts)| (wr_id, Returns::ByCompletion, parts));
        self.recvs().lend(lent, counts);
        posted.map_err(|stopped| self.poster.stopped(PostCall::Recv, stopped))
    }
}

impl Drop for Qp {
    /// The QP keeps the blocks of its requests until they are drained.
    fn drop(&mut self) {
        if let Some(blocks) = self.blocks.take() {
            self.poster.inner.keep(*blocks);
        }
    }
}
