//! Calls and events of shared receive queues.

use cmid_proto::Errno;
use cmid_proto::datapath::{AsyncEventKind, AsyncSource, CreateReason, SrqCaps};

use crate::data::fault::Resource;
use crate::data::receive::{Receive, RecvQueue};
use crate::data::srqs::SrqState;
use crate::fabric::world::World;
use crate::index::{DeviceNo, PdNo, QpNo, SrqNo};

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

    /// `ibv_modify_srq` with `IBV_SRQ_LIMIT` (`rxe_srq_chk_attr`).
    pub(crate) fn arm_srq_limit(&mut self, no: SrqNo, limit: u32) -> Result<(), Errno> {
        let srq = self.queues.srqs.get_mut(no)?;
        if limit > srq.receives.max {
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
