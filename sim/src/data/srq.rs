//! Shared receive queues of all hosts.

use std::collections::{BTreeMap, VecDeque};

use cmid_proto::Errno;
use cmid_proto::datapath::{AsyncEventKind, AsyncSource, SrqCaps};

use crate::data::queues::Receive;
use crate::fabric::world::World;
use crate::index::{DeviceNo, PdNo, QpNo, SrqNo};

/// Maximum number of receives of a shared receive queue (`RXE_MAX_SRQ_WR`).
const MAX_SRQ_WR: u32 = 1 << 20;
/// Maximum number of ranges of a receive (`RXE_MAX_SRQ_SGE`).
const MAX_SRQ_SGE: u32 = 27;

/// The place of a receive in a shared receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    srq: SrqNo,
    sequence: u64,
}

/// A shared receive queue.
#[derive(Debug)]
pub(crate) struct SrqState {
    pub(crate) device: DeviceNo,
    pub(crate) pd: PdNo,
    pub(crate) caps: SrqCaps,
    /// 0 if none is armed.
    pub(crate) limit: u32,
    /// Receives that no QP has taken, oldest first.
    receives: VecDeque<Receive>,
    /// The keys that each receive pins, until its completion is polled.
    filed: BTreeMap<u64, Vec<u32>>,
    sequence: u64,
    /// Its handle exists.
    held: bool,
}

impl SrqState {
    /// The number of receives without a polled completion.
    pub(crate) fn unpolled(&self) -> u32 {
        u32::try_from(self.filed.len()).unwrap_or(u32::MAX)
    }

    /// The number of receives that there is room for.
    pub(crate) fn room(&self) -> u32 {
        self.caps.max_wr.saturating_sub(self.unpolled())
    }

    fn pins(&self, pd: PdNo, key: u32) -> bool {
        self.pd == pd && self.filed.values().any(|keys| keys.contains(&key))
    }
}

/// The shared receive queues of all hosts.
#[derive(Debug, Default)]
pub(crate) struct Srqs {
    live: BTreeMap<SrqNo, SrqState>,
    next: u64,
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
        self.live.values().any(|srq| srq.pins(pd, key))
    }

    /// The completion of a receive is polled.
    pub(crate) fn polled(&mut self, place: Place) {
        if let Some(srq) = self.live.get_mut(&place.srq) {
            srq.filed.remove(&place.sequence);
        }
    }
}

impl World {
    /// `ibv_create_srq`, with the checks of `rxe_srq_chk_init`.
    pub(crate) fn create_srq(&mut self, device: DeviceNo, pd: PdNo, caps: SrqCaps) -> Result<SrqNo, Errno> {
        if !(1..=MAX_SRQ_WR).contains(&caps.max_wr) || caps.max_sge > MAX_SRQ_SGE {
            return Err(Errno::EINVAL);
        }
        self.acquire_pd(pd).map_err(|refused| refused.errno())?;
        self.memory.count_user(device.host, pd).inspect_err(|_| self.release_pd(pd))?;
        let srqs = &mut self.queues.srqs;
        srqs.next += 1;
        let no = SrqNo(srqs.next);
        let (receives, filed) = (VecDeque::new(), BTreeMap::new());
        srqs.live.insert(no, SrqState { device, pd, caps, limit: 0, receives, filed, sequence: 0, held: true });
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

    /// `ibv_post_srq_recv`.
    pub(crate) fn post_srq_receive(&mut self, no: SrqNo, receive: Receive) -> Result<(), Errno> {
        let srq = self.queues.srqs.get_mut(no)?;
        if srq.room() == 0 {
            return Err(Errno::ENOMEM);
        }
        srq.sequence += 1;
        let place = Place { srq: no, sequence: srq.sequence };
        srq.filed.insert(srq.sequence, receive.pins());
        srq.receives.push_back(Receive { place: Some(place), ..receive });
        // Its QPs may have packets that wait for a receive.
        let waiting = self.queues.pairs.keys_of(|_, pair| pair.srq == Some(no) && !pair.inbound.is_empty());
        waiting.into_iter().for_each(|qp| self.run_inbound(qp));
        Ok(())
    }

    /// The next receive for a message to this QP.
    pub(crate) fn next_receive(&self, qp: QpNo) -> Option<&Receive> {
        let pair = self.queues.pairs.get(&qp)?;
        match pair.srq {
            None => pair.receives.front(),
            Some(srq) => self.queues.srqs.get(srq).ok()?.receives.front(),
        }
    }

    /// Takes it. Fewer receives in a shared queue than its limit are reported once (`get_srq_wqe` of rxe).
    pub(crate) fn take_receive(&mut self, qp: QpNo) -> Option<Receive> {
        let pair = self.queues.pairs.get_mut(&qp)?;
        let Some(no) = pair.srq else { return pair.receives.pop_front() };
        let srq = self.queues.srqs.get_mut(no).ok()?;
        let receive = srq.receives.pop_front()?;
        if srq.receives.len() < srq.limit as usize {
            srq.limit = 0;
            let source = AsyncSource::Srq(no.number());
            self.async_readers.raise(srq.device, AsyncEventKind::SRQ_LIMIT_REACHED, source);
        }
        Some(receive)
    }

    /// Its handle is dropped.
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

    /// Destroys those of a removed device. Their handles have no effect any more.
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
