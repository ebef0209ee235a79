//! The handle of a shared receive queue.

use std::mem;

use cmid_proto::Errno;
use cmid_proto::datapath::{
    BatchError, Completion, CreateCall, CreateError, Lent, Parts, PostError, PostReason, Sge, SharedReceiveQueue,
    SrqCaps, Unposted, UnpostedBatch,
};

use crate::data::blocks::{LeftBlocks, Piece};
use crate::data::mr::Mr;
use crate::data::pd::Pd;
use crate::data::post::Queue;
use crate::data::receive::{self, RecvOf};
use crate::data::work::Batch;
use crate::fabric::Fabric;
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

    /// Returns what its receives are checked by once it is gone. Those that pass are refused.
    fn receives(&self) -> (RecvOf, Result<Queue, PostReason>) {
        let SrqCaps { max_sge, max_wr: max, .. } = self.caps;
        (RecvOf::Srq(self.no), Ok(Queue { pd: self.pd, max_sge, max, room: max, last: 0, is_unanswered: false }))
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
        self.fabric.with(|world| world.queues.srqs.get(self.no).map_or(0, |srq| srq.receives.unpolled()))
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
        receive::post(&self.fabric, self.receives(), requests)
    }

    fn post_recv_blocks<L: Into<Parts<Piece>>>(&mut self, wr_id: u64, blocks: L) -> Result<(), Unposted<Piece>> {
        let one = Batch::from([(wr_id, blocks.into())]);
        receive::post_blocks(&self.fabric, self.receives(), &mut self.blocks, one).map(drop).map_err(receive::only)
    }

    fn post_recvs_blocks<L, I>(&mut self, requests: I) -> Result<usize, UnpostedBatch<Piece>>
    where
        I: IntoIterator<Item = (u64, L)>,
        L: Into<Parts<Piece>>,
    {
        receive::post_blocks(&self.fabric, self.receives(), &mut self.blocks, receive::batch(requests))
    }

    fn reclaim(&mut self, completion: &Completion) -> Option<Parts<Piece>> {
        receive::reclaim(&self.fabric, RecvOf::Srq(self.no), &mut self.blocks, completion)
    }
}

impl Drop for Srq {
    fn drop(&mut self) {
        self.fabric.with(|world| world.drop_srq(self.no));
        if !self.blocks.is_empty() {
            let blocks = mem::replace(&mut self.blocks, Lent::new(0));
            let of = RecvOf::Srq(self.no);
            self.fabric.shared().retire(LeftBlocks { of, _blocks: [blocks, Lent::new(0)] });
        }
    }
}
