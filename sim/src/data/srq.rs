//! Shared receive queues.

use std::collections::BTreeMap;
use std::mem;

use cmid_proto::Errno;
use cmid_proto::datapath::{
    AsyncEventKind, AsyncSource, BatchError, Completion, CreateCall, CreateError, CreateReason, Lent, Parts, PostError,
    PostReason, Sge, SharedReceiveQueue, SrqCaps, Unposted, UnpostedBatch,
};

use crate::data::blocks::{LeftBlocks, Piece};
use crate::data::fault::Resource;
use crate::data::mr::Mr;
use crate::data::pd::Pd;
use crate::data::post::Queue;
use crate::data::receive::{self, Receive, RecvOf, RecvQueue};
use crate::data::work::Batch;
use crate::fabric::Fabric;
use crate::fabric::world::World;
use crate::index::{DeviceNo, PdNo, QpNo, SrqNo};

/// A shared receive queue.
#[derive(Debug)]
pub(crate) struct SrqState {
    pub(crate) device: DeviceNo,
    pub(crate) pd: PdNo,
    pub(crate) receives: RecvQueue,
    /// The limit of SRQ_LIMIT_REACHED; 0 if it is not armed.
    pub(crate) limit: u32,
    /// Whether its handle exists.
    pub(super) held: bool,
}

/// The shared receive queues of all hosts.
#[derive(Debug, Default)]
pub(crate) struct Srqs {
    pub(super) live: BTreeMap<SrqNo, SrqState>,
    pub(super) next: u64,
}

impl Srqs {
    pub(crate) fn get(&self, no: SrqNo) -> Result<&SrqState, Errno> {
        self.live.get(&no).ok_or(Errno::EINVAL)
    }

    pub(crate) fn get_mut(&mut self, no: SrqNo) -> Result<&mut SrqState, Errno> {
        self.live.get_mut(&no).ok_or(Errno::EINVAL)
    }

    /// Whether a receive pins a region.
    pub(crate) fn pins(&self, pd: PdNo, key: u32) -> bool {
        self.live.values().any(|srq| srq.pd == pd && srq.receives.pins(key))
    }
}

impl World {
    /// `ibv_create_srq`, with the checks of `rxe_srq_chk_init`.
    pub(crate) fn create_srq(&mut self, device: DeviceNo, pd: PdNo, caps: SrqCaps) -> Result<SrqNo, CreateReason> {
        if let Some(reason) = self.maxima(device.host).srq(caps) {
            return Err(reason);
        }
        self.grant(device.host, Resource::Srq)?;
        self.acquire_pd(pd)?;
        self.memory.count_user(device.host, pd).inspect_err(|_| self.release_pd(pd))?;
        let srqs = &mut self.queues.srqs;
        srqs.next += 1;
        let no = SrqNo(srqs.next);
        let receives = RecvQueue::new(caps.max_wr, caps.max_sge);
        srqs.live.insert(no, SrqState { device, pd, receives, limit: 0, held: true });
        Ok(no)
    }

    /// `ibv_modify_srq` with `IBV_SRQ_LIMIT`: at most the length of the queue, which is a power of two, less one place in rxe
    /// (`rxe_srq_chk_attr`, `siw_modify_srq`).
    pub(crate) fn arm_srq_limit(&mut self, no: SrqNo, limit: u32) -> Result<(), Errno> {
        let SrqState { device, receives: RecvQueue { max, .. }, .. } = self.queues.srqs.get(no)?;
        let longest =
            if self.is_iwarp(device.host) { max.next_power_of_two() } else { (max + 1).next_power_of_two() - 1 };
        let srq = self.queues.srqs.get_mut(no)?;
        if limit > longest {
            return Err(Errno::EINVAL);
        }
        srq.limit = limit;
        Ok(())
    }

    /// Returns the next receive for a message to this QP.
    pub(crate) fn next_receive(&self, qp: QpNo) -> Option<&Receive> {
        let pair = self.queues.pairs.get(&qp)?;
        match pair.srq {
            None => pair.receives.next(),
            Some(srq) => self.queues.srqs.get(srq).ok()?.receives.next(),
        }
    }

    /// Takes the next receive. Reports once that a shared queue has fewer receives than its limit (`get_srq_wqe` of
    /// rxe).
    pub(crate) fn take_receive(&mut self, qp: QpNo) -> Option<Receive> {
        let pair = self.queues.pairs.get_mut(&qp)?;
        let Some(no) = pair.srq else { return pair.receives.take() };
        let srq = self.queues.srqs.get_mut(no).ok()?;
        let receive = srq.receives.take()?;
        if srq.receives.ready() < u64::from(srq.limit) {
            srq.limit = 0;
            let source = AsyncSource::Srq(no.number());
            let device = srq.device;
            self.raise_event(device, AsyncEventKind::SRQ_LIMIT_REACHED, source);
        }
        Some(receive)
    }

    /// Handles the drop of a handle.
    pub(crate) fn drop_srq(&mut self, no: SrqNo) {
        if let Ok(srq) = self.queues.srqs.get_mut(no) {
            srq.held = false;
        }
        self.end_unused_srq(no);
    }

    /// Destroys a shared receive queue without a handle and without QPs.
    pub(crate) fn end_unused_srq(&mut self, no: SrqNo) {
        let unused = self.queues.srqs.get(no).is_ok_and(|srq| !srq.held);
        if unused && !self.queues.pairs.any(|pair| pair.srq == Some(no)) {
            self.end_srq(no);
        }
    }

    /// Destroys the shared receive queues of a removed device. Their handles then have no effect.
    pub(crate) fn end_srqs_of(&mut self, device: DeviceNo) {
        let of_device = self.queues.srqs.live.iter().filter(|(_, srq)| srq.device == device);
        let ended: Vec<SrqNo> = of_device.map(|(&no, _)| no).collect();
        ended.into_iter().for_each(|no| self.end_srq(no));
    }

    fn end_srq(&mut self, no: SrqNo) {
        if let Some(srq) = self.queues.srqs.live.remove(&no) {
            self.memory.discount_user(srq.pd);
            self.release_pd(srq.pd);
            self.sweep = true;
        }
    }
}

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
        (
            RecvOf::Srq(self.no),
            Ok(Queue { pd: self.pd, max_sge, max, room: max, last: 0, is_unanswered: false, is_stuck: false }),
        )
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

    /// # Errors
    /// `EOPNOTSUPP` on iWARP: libsiw does not have it.
    fn limit(&self) -> Result<u32, Errno> {
        self.fabric.with(|world| {
            let limit = world.queues.srqs.get(self.no)?.limit;
            if world.is_iwarp(self.device.host) { Err(Errno::EOPNOTSUPP) } else { Ok(limit) }
        })
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
