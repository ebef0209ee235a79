//! Posts of blocks to a QP, and their return.

use core::mem;

use cmid_proto::ErrorWith;
use cmid_proto::datapath::{
    Caps, Lent, Part, Parts, PostCall, PostReason, Returns, SendFlags, SendWr, Unposted, UnpostedBatch,
};

use crate::accounting::wr_ring::{Cursor, Filing};
use crate::data::ranges::Keeper;
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

/// The blocks of a batch that is being posted. Its drop takes them back: the iterator of the batch may panic.
struct Lending<'a> {
    lent: &'a mut Lent<Piece>,
    /// The number of requests whose blocks were added.
    count: usize,
    /// The blocks of a request for which there is no room.
    refused: Option<Parts<Piece>>,
}

impl<'a> Lending<'a> {
    fn new(lent: &'a mut Lent<Piece>) -> Self {
        Lending { lent, count: 0, refused: None }
    }

    /// Makes room for a batch of at most so many requests, if it is needed. Not later: what is over is dropped here, and the
    /// batch holds the lock of the provider.
    fn prepare(&mut self, most: Option<usize>, cursor: &Cursor) {
        let _ = self.lent.check_room(most.unwrap_or(usize::MAX), |number| cursor.is_over(number as u32));
    }

    /// Called after the batch. Returns the blocks of the requests that were not posted and that the device does not have.
    fn end(&mut self, posted: Result<usize, Stopped>) -> Vec<Parts<Piece>> {
        let count = mem::take(&mut self.count);
        match posted {
            Ok(_) => Vec::new(),
            Err(Stopped { posted, reason: PostReason::Device(_) }) => {
                self.lent.note_refused(count.saturating_sub(posted));
                Vec::new()
            }
            Err(Stopped { posted, .. }) => {
                let last_first = (posted..count).filter_map(|_| self.lent.take_back());
                let mut blocks: Vec<_> = self.refused.take().into_iter().chain(last_first).collect();
                blocks.reverse();
                blocks
            }
        }
    }
}

impl<L: Into<Parts<Piece>>> Keeper<L, Part<Piece>> for Lending<'_> {
    fn keep(
        &mut self,
        filing: &Filing<'_>,
        wr_id: u64,
        flags: SendFlags,
        list: L,
    ) -> Result<&[Part<Piece>], PostReason> {
        // It may panic, so nothing counts yet.
        let parts = list.into();
        if let Err(reason) = self.lent.check_room(1, |_| false) {
            self.refused = Some(parts);
            return Err(reason);
        }
        self.count += 1;
        Ok(self.lent.lend(u64::from(filing.number()), wr_id, returns(flags), parts))
    }
}

impl Drop for Lending<'_> {
    fn drop(&mut self) {
        (0..self.count).for_each(|_| drop(self.lent.take_back()));
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
        let given = if let PostReason::Device(_) = reason {
            lent.note_refused(1);
            None
        } else {
            lent.take_back()
        };
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
                Err(Unposted { error: poster.error(PostCall::Send, reason), given: Some(request.sges.into()) })
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
            Err(reason) => Err(Unposted { error: poster.error(PostCall::Recv, reason), given: Some(list.into()) }),
        }
    }

    pub(super) fn send_all_blocks<'a, L: Into<Parts<Piece>>>(
        &mut self,
        requests: impl Iterator<Item = SendWr<'a, L, Ah>>,
    ) -> Result<usize, UnpostedBatch<Piece>>
    where
        Ah: 'a,
    {
        let (mut requests, poster) = (requests, &mut self.poster);
        let mut lending = Lending::new(&mut QpBlocks::of(&mut self.blocks, &poster.inner).sends);
        lending.prepare(requests.size_hint().1, &poster.send);
        let posted = poster.post_all_named(&mut requests, &mut lending);
        let mut blocks = lending.end(posted);
        posted.map_err(|stopped| {
            blocks.extend(requests.map(|request| request.sges.into()));
            ErrorWith::new(blocks, poster.stopped(PostCall::Send, stopped))
        })
    }

    pub(super) fn recv_all_blocks<L: Into<Parts<Piece>>>(
        &mut self,
        requests: impl Iterator<Item = (u64, L)>,
    ) -> Result<usize, UnpostedBatch<Piece>> {
        let (mut requests, poster) = (requests, &mut self.poster);
        let mut lending = Lending::new(&mut QpBlocks::of(&mut self.blocks, &poster.inner).recvs);
        lending.prepare(requests.size_hint().1, &poster.recv);
        let posted = poster.post_recv_list(&mut requests, &mut lending);
        let mut blocks = lending.end(posted);
        posted.map_err(|stopped| {
            blocks.extend(requests.map(|(_, list)| list.into()));
            ErrorWith::new(blocks, poster.stopped(PostCall::Recv, stopped))
        })
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
