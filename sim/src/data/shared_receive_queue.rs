//! The handle of a shared receive queue.

use std::mem;

use cmid_proto::datapath::{
    BatchError, Completion, CreateCall, CreateError, Lent, Parts, PostCall, PostError, Sge, SharedReceiveQueue,
    SrqCaps, Unposted, UnpostedBatch,
};
use cmid_proto::{Errno, ErrorWith};

use crate::data::blocks::{self, LeftBlocks, LeftQueue, Piece};
use crate::data::mr::Mr;
use crate::data::pd::Pd;
use crate::data::post::{Queue, fitting, receive};
use crate::data::work::{Batch, Stopped};
use crate::fabric::Fabric;
use crate::fabric::world::World;
use crate::index::{DeviceNo, PdNo, SrqNo};

/// A shared receive queue.
#[derive(Debug)]
pub struct Srq {
    pub(crate) fabric: Fabric,
    pub(crate) device: DeviceNo,
    pub(crate) pd: PdNo,
    pub(crate) no: SrqNo,
    caps: SrqCaps,
    /// The blocks that its receives have.
    blocks: Lent<Piece>,
}

impl Srq {
    pub(crate) fn create(pd: &Pd, caps: SrqCaps) -> Result<Self, CreateError> {
        let made = pd.fabric.with(|world| {
            if world.lives(pd.device) { world.create_srq(pd.device, pd.no, caps) } else { Err(Errno::EIO.into()) }
        });
        let no = made.map_err(CreateCall::CreateSrq.failed())?;
        Ok(Srq { fabric: pd.fabric.clone(), device: pd.device, pd: pd.no, no, caps, blocks: Lent::new(caps.max_wr) })
    }

    /// Returns what its receives are checked by, after `first`. One that is gone refuses those that pass.
    fn queue(&self, first: impl FnOnce(&mut World)) -> Queue {
        let SrqCaps { max_sge, max_wr: max, .. } = self.caps;
        self.fabric.with(|world| {
            first(world);
            let (room, last) = world.queues.srqs.get(self.no).map_or((max, 0), |srq| (srq.room(), srq.sequence()));
            Queue { pd: self.pd, max_sge, max, room, last, is_unanswered: false }
        })
    }

    fn stopped(&self, Stopped { posted, reason, .. }: Stopped) -> BatchError {
        BatchError { posted, error: PostError::new(PostCall::SrqRecv, self.no.number(), reason) }
    }
}

impl SharedReceiveQueue for Srq {
    type Mr = Mr;
    type Piece = Piece;

    fn num(&self) -> u32 {
        self.no.number()
    }

    fn caps(&self) -> SrqCaps {
        self.caps
    }

    fn unpolled(&self) -> u32 {
        self.fabric.with(|world| world.queues.srqs.get(self.no).map_or(0, |srq| srq.unpolled()))
    }

    fn arm_limit(&self, limit: u32) -> Result<(), Errno> {
        self.fabric.with(|world| world.arm_srq_limit(self.no, limit))
    }

    fn limit(&self) -> Result<u32, Errno> {
        self.fabric.with(|world| world.queues.srqs.get(self.no).map(|srq| srq.limit))
    }

    /// # Errors
    /// [`PostReason::Gone`](cmid_proto::datapath::PostReason::Gone) after a removal of the device.
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
        let queue = self.queue(|_| {});
        let receive = |(wr_id, sges): (u64, L)| receive(&self.fabric, queue, wr_id, sges.as_ref());
        let batch = fitting(queue, requests.into_iter().map(receive));
        let posted = batch.and_then(|batch| self.fabric.with(|world| world.post_srq_receives(self.no, batch)));
        posted.map_err(|stopped| self.stopped(stopped))
    }

    fn post_recv_blocks<L: Into<Parts<Piece>>>(&mut self, wr_id: u64, blocks: L) -> Result<(), Unposted<Piece>> {
        let mut one = Batch::from([(wr_id, blocks.into())]);
        let posted = self.recv_all_blocks(&mut one);
        let blocks = one.pop().map(|(_, parts)| parts);
        posted.map(drop).map_err(|BatchError { error, .. }| Unposted { error, given: blocks })
    }

    fn post_recvs_blocks<L, I>(&mut self, requests: I) -> Result<usize, UnpostedBatch<Piece>>
    where
        I: IntoIterator<Item = (u64, L)>,
        L: Into<Parts<Piece>>,
    {
        let mut requests: Batch<_> = requests.into_iter().map(|(wr_id, list)| (wr_id, list.into())).collect();
        let posted = self.recv_all_blocks(&mut requests);
        posted.map_err(|error| ErrorWith::new(requests.into_iter().map(|(_, parts)| parts).collect(), error))
    }

    fn reclaim(&mut self, completion: &Completion) -> Option<Parts<Piece>> {
        let (fabric, no) = (&self.fabric, self.no);
        let is_over = |number| fabric.with(|world| world.queues.is_srq_receive_over(no, number));
        self.blocks.reclaim(completion, is_over).map(blocks::loaded)
    }
}

impl Srq {
    /// Takes the requests that are posted, or that the device may execute, out of the batch.
    fn recv_all_blocks(&mut self, requests: &mut Batch<(u64, Parts<Piece>)>) -> Result<usize, BatchError> {
        let (fabric, no) = (&self.fabric, self.no);
        let is_over = |number| fabric.with(|world| world.queues.is_srq_receive_over(no, number));
        let checked = self.blocks.check_room(requests.len(), is_over);
        let checked = checked.and_then(|()| requests.iter().try_for_each(|(_, parts)| blocks::check(parts, true)));
        checked.map_err(|reason| self.stopped(reason.into()))?;
        let flush = |world: &mut World| requests.iter().for_each(|(_, parts)| blocks::flush(parts, fabric, world));
        let queue = self.queue(flush);
        let post = |world: &mut World, batch| world.post_srq_receives(no, batch);
        let posted = blocks::post_receives(fabric, (&mut self.blocks, queue), requests, post);
        posted.map_err(|stopped| self.stopped(stopped))
    }
}

impl Drop for Srq {
    fn drop(&mut self) {
        self.fabric.with(|world| world.drop_srq(self.no));
        if !self.blocks.is_empty() {
            let blocks = mem::replace(&mut self.blocks, Lent::new(0));
            let queue = LeftQueue::Srq(self.no);
            self.fabric.shared().retire(LeftBlocks { queue, _blocks: [blocks, Lent::new(0)] });
        }
    }
}
