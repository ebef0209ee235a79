//! The handle of a shared receive queue.

use cmid_proto::Errno;
use cmid_proto::datapath::{
    BatchError, CreateCall, CreateError, PostCall, PostError, PostReason, Sge, SharedReceiveQueue, SrqCaps,
};

use crate::data::mr::Mr;
use crate::data::pd::Pd;
use crate::data::post::{self, fitting};
use crate::data::receive::Receive;
use crate::data::work::Stopped;
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
}

impl Srq {
    pub(crate) fn create(pd: &Pd, caps: SrqCaps) -> Result<Self, CreateError> {
        let made = pd.fabric.with(|world| {
            if world.lives(pd.device) { world.create_srq(pd.device, pd.no, caps) } else { Err(Errno::EIO.into()) }
        });
        let no = made.map_err(CreateCall::CreateSrq.failed())?;
        Ok(Srq { fabric: pd.fabric.clone(), device: pd.device, pd: pd.no, no, caps })
    }

    fn receive(&self, wr_id: u64, sges: &[Sge<'_, Mr>]) -> Result<Receive, PostReason> {
        post::receive(&self.fabric, self.pd, self.caps.max_sge, wr_id, sges)
    }

    fn stopped(&self, Stopped { posted, reason }: Stopped) -> BatchError {
        BatchError { posted, error: PostError::new(PostCall::SrqRecv, self.no.number(), reason) }
    }
}

impl SharedReceiveQueue for Srq {
    type Mr = Mr;

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
    /// [`PostReason::Gone`] after a removal of the device.
    fn post_recv<'a, L>(&mut self, wr_id: u64, sges: L) -> Result<(), PostError>
    where
        L: AsRef<[Sge<'a, Mr>]>,
    {
        let posted = self
            .receive(wr_id, sges.as_ref())
            .map_err(Stopped::from)
            .and_then(|receive| self.fabric.with(|world| world.post_srq_receives(self.no, vec![receive])));
        posted.map(drop).map_err(|stopped| self.stopped(stopped).error)
    }

    fn post_recvs<'a, L, I>(&mut self, requests: I) -> Result<usize, BatchError>
    where
        I: IntoIterator<Item = (u64, L)>,
        L: AsRef<[Sge<'a, Mr>]>,
    {
        let batch = requests.into_iter().map(|(wr_id, sges)| self.receive(wr_id, sges.as_ref()));
        let batch = batch.collect::<Result<Vec<Receive>, PostReason>>();
        let posted = batch.map_err(Stopped::from).and_then(|batch| {
            self.fabric.with(|world| {
                let srq = world.queues.srqs.get(self.no).map_err(|_| PostReason::Gone)?;
                let batch = fitting(srq.room(), srq.caps.max_wr, batch)?;
                world.post_srq_receives(self.no, batch)
            })
        });
        posted.map_err(|stopped| self.stopped(stopped))
    }
}

impl Drop for Srq {
    fn drop(&mut self) {
        self.fabric.with(|world| world.drop_srq(self.no));
    }
}
