//! Posts of blocks to a QP, and their return.

use cmid_proto::datapath::{BatchError, Caps, Lent, Parts, PostCall, PostReason, Returns, SendFlags, SendWr, Unposted};

use crate::accounting::wr_ring::Cursor;
use crate::data::staging::Stopped;
use crate::data::{Ah, Piece, Qp, QpInner};

/// The blocks that the requests of a QP have.
#[derive(Debug)]
pub(super) struct QpBlocks {
    pub(super) sends: Lent<Piece>,
    pub(super) recvs: Lent<Piece>,
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

/// Adds the blocks of the last `filed` requests. Those after the first `posted` were refused by the device.
fn lend(
    lent: &mut Lent<Piece>,
    cursor: &Cursor,
    requests: impl Iterator<Item = (u64, Returns, Parts<Piece>)>,
    Counts { posted, filed }: Counts,
) {
    let first = (cursor.next() as u32).wrapping_sub(filed as u32);
    for ((wr_id, returns, parts), ahead) in requests.zip(0..) {
        let returns = if (ahead as usize) < posted { returns } else { Returns::ToPool };
        lent.lend(u64::from(first.wrapping_add(ahead)), wr_id, returns, parts);
    }
}

/// Where the blocks of a request with these flags go.
fn returns(flags: SendFlags) -> Returns {
    if flags.contains(SendFlags::SIGNALED) { Returns::ByCompletion } else { Returns::OnFailure }
}

impl Qp {
    /// Ends the post of the request that was added last, which was refused. Returns its blocks, unless the device may have it.
    #[cold]
    fn refused(&mut self, call: PostCall, reason: PostReason) -> Unposted<Piece> {
        let blocks = QpBlocks::of(&mut self.blocks, &self.poster.inner);
        let lent = if call == PostCall::Send { &mut blocks.sends } else { &mut blocks.recvs };
        let given = lent.refuse_last(matches!(reason, PostReason::Device(_)));
        Unposted { error: self.poster.error(call, reason), given }
    }

    #[inline(always)]
    pub(super) fn send_blocks<L: Into<Parts<Piece>>>(
        &mut self,
        request: SendWr<'_, L, Ah>,
    ) -> Result<(), Unposted<Piece>> {
        let SendWr { wr_id, op, sges: list, flags } = request;
        let (poster, blocks) = (&mut self.poster, &mut self.blocks);
        let Some(lent) = blocks.as_mut().map(|blocks| &mut blocks.sends).filter(|lent| lent.has_place()) else {
            return self.send_without_place(SendWr { wr_id, op, sges: list, flags });
        };
        let parts = lent.lend(u64::from(poster.send.next() as u32), wr_id, returns(flags), list.into());
        match poster.post_named(wr_id, op, parts, flags) {
            Ok(()) => Ok(()),
            Err(reason) => Err(self.refused(PostCall::Send, reason)),
        }
    }

    /// As `send_blocks`, where the record has no place for the request yet.
    #[cold]
    fn send_without_place<L: Into<Parts<Piece>>>(&mut self, request: SendWr<'_, L, Ah>) -> Result<(), Unposted<Piece>> {
        let (poster, blocks) = (&self.poster, &mut self.blocks);
        let lent = &mut QpBlocks::of(blocks, &poster.inner).sends;
        match lent.check_room(1, |number| poster.send.is_over(number as u32)) {
            Ok(()) => self.send_blocks(request),
            Err(reason) => {
                Err(Unposted { error: poster.error(PostCall::Send, reason), blocks: Some(request.sges.into()) })
            }
        }
    }

    #[inline(always)]
    pub(super) fn recv_blocks<L: Into<Parts<Piece>>>(&mut self, wr_id: u64, list: L) -> Result<(), Unposted<Piece>> {
        let (poster, blocks) = (&mut self.poster, &mut self.blocks);
        let Some(lent) = blocks.as_mut().map(|blocks| &mut blocks.recvs).filter(|lent| lent.has_place()) else {
            return self.recv_without_place(wr_id, list);
        };
        let parts = lent.lend(u64::from(poster.recv.next() as u32), wr_id, Returns::ByCompletion, list.into());
        match poster.post_receive(wr_id, parts) {
            Ok(()) => Ok(()),
            Err(reason) => Err(self.refused(PostCall::Recv, reason)),
        }
    }

    /// As `recv_blocks`, where the record has no place for the request yet.
    #[cold]
    fn recv_without_place<L: Into<Parts<Piece>>>(&mut self, wr_id: u64, list: L) -> Result<(), Unposted<Piece>> {
        let (poster, blocks) = (&self.poster, &mut self.blocks);
        let lent = &mut QpBlocks::of(blocks, &poster.inner).recvs;
        match lent.check_room(1, |number| poster.recv.is_over(number as u32)) {
            Ok(()) => self.recv_blocks(wr_id, list),
            Err(reason) => Err(Unposted { error: poster.error(PostCall::Recv, reason), blocks: Some(list.into()) }),
        }
    }

    pub(super) fn send_all_blocks(
        &mut self,
        requests: &mut Vec<SendWr<'_, Parts<Piece>, Ah>>,
    ) -> Result<usize, BatchError> {
        let (all, poster) = (requests.len(), &mut self.poster);
        let lent = &mut QpBlocks::of(&mut self.blocks, &poster.inner).sends;
        let posted = match lent.check_room(all, |number| poster.send.is_over(number as u32)) {
            Ok(()) => poster.post_all_named(requests.iter().map(|request| {
                let &SendWr { wr_id, op, ref sges, flags } = request;
                SendWr { wr_id, op, sges, flags }
            })),
            Err(reason) => Err(reason.into()),
        };
        let counts = Counts::of(posted, all);
        let owned = requests.drain(..counts.filed).map(|request| (request.wr_id, returns(request.flags), request.sges));
        lend(lent, &poster.send, owned, counts);
        posted.map_err(|stopped| poster.stopped(PostCall::Send, stopped))
    }

    pub(super) fn recv_all_blocks(&mut self, requests: &mut Vec<(u64, Parts<Piece>)>) -> Result<usize, BatchError> {
        let (all, poster) = (requests.len(), &mut self.poster);
        let lent = &mut QpBlocks::of(&mut self.blocks, &poster.inner).recvs;
        let posted = match lent.check_room(all, |number| poster.recv.is_over(number as u32)) {
            Ok(()) => poster.post_recv_list(requests.iter().map(|(wr_id, parts)| (*wr_id, parts))),
            Err(reason) => Err(reason.into()),
        };
        let counts = Counts::of(posted, all);
        let owned = requests.drain(..counts.filed).map(|(wr_id, parts)| (wr_id, Returns::ByCompletion, parts));
        lend(lent, &poster.recv, owned, counts);
        posted.map_err(|stopped| poster.stopped(PostCall::Recv, stopped))
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
