//! Calls and events of shared receive queues.

use std::collections::{BTreeMap, VecDeque};

use cmid_proto::Errno;
use cmid_proto::datapath::{AsyncEventKind, AsyncSource, CreateReason, PostReason, SrqCaps};

use crate::data::fault::Resource;
use crate::data::receive::{Receive, SrqEntry};
use crate::data::srqs::SrqState;
use crate::data::work::{Batch, Stopped};
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
        let (receives, unrung, filed) = (VecDeque::new(), Vec::new(), BTreeMap::new());
        srqs.live.insert(no, SrqState { device, pd, caps, limit: 0, receives, unrung, filed, sequence: 0, held: true });
        Ok(no)
    }

    /// `ibv_modify_srq` with `IBV_SRQ_LIMIT` (`rxe_srq_chk_attr`).
    pub(crate) fn arm_srq_limit(&mut self, no: SrqNo, limit: u32) -> Result<(), Errno> {
        let srq = self.queues.srqs.get_mut(no)?;
        if limit > srq.caps.max_wr {
            return Err(Errno::EINVAL);
        }
        srq.limit = limit;
        Ok(())
    }

    /// `ibv_post_srq_recv` for one or several receives. If the kernel refuses the doorbell, they are in the queue, and the
    /// device takes them after the next doorbell.
    pub(crate) fn post_srq_receives(&mut self, no: SrqNo, batch: Batch<Receive>) -> Result<usize, Stopped> {
        let gone = |_| PostReason::Gone;
        let (srq, count) = (self.queues.srqs.get_mut(no).map_err(gone)?, batch.len());
        for (posted, receive) in batch.into_iter().enumerate() {
            if srq.room() == 0 {
                return Err(Stopped::after(posted, PostReason::QueueFull { max: srq.caps.max_wr }));
            }
            srq.sequence += 1;
            let srq_entry = SrqEntry { srq: no, sequence: srq.sequence };
            srq.filed.insert(srq.sequence, receive.pins().collect());
            srq.unrung.push(Receive { srq_entry: Some(srq_entry), ..receive });
        }
        let host = srq.device.host;
        let rung = self.doorbell(host);
        let srq = self.queues.srqs.get_mut(no).map_err(gone)?;
        if let Err(reason) = rung {
            srq.unrung.iter_mut().for_each(|receive| receive.is_withdrawn = true);
            return Err(Stopped { posted: 0, filed: count, reason });
        }
        srq.receives.extend(srq.unrung.drain(..));
        // Its QPs may have packets that wait for a receive.
        let waiting = self.queues.pairs.keys_of(|_, pair| pair.srq == Some(no) && !pair.inbound.is_empty());
        waiting.into_iter().for_each(|qp| self.run_inbound(qp));
        Ok(count)
    }

    /// Returns the next receive for a message to this QP.
    pub(crate) fn next_receive(&self, qp: QpNo) -> Option<&Receive> {
        let pair = self.queues.pairs.get(&qp)?;
        match pair.srq {
            None => pair.receives.front(),
            Some(srq) => self.queues.srqs.get(srq).ok()?.receives.front(),
        }
    }

    /// Takes the next receive. Reports once that a shared queue has fewer receives than its limit (`get_srq_wqe` of
    /// rxe).
    pub(crate) fn take_receive(&mut self, qp: QpNo) -> Option<Receive> {
        let pair = self.queues.pairs.get_mut(&qp)?;
        let Some(no) = pair.srq else { return pair.receives.pop_front() };
        let srq = self.queues.srqs.get_mut(no).ok()?;
        let receive = srq.receives.pop_front()?;
        if srq.receives.len() < srq.limit as usize {
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
