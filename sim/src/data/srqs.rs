//! The state of shared receive queues.

use std::collections::{BTreeMap, VecDeque};

use cmid_proto::Errno;
use cmid_proto::datapath::SrqCaps;

use crate::data::receive::{Receive, SrqEntry};
use crate::index::{DeviceNo, PdNo, SrqNo};

/// A shared receive queue.
#[derive(Debug)]
pub(crate) struct SrqState {
    pub(crate) device: DeviceNo,
    pub(crate) pd: PdNo,
    pub(crate) caps: SrqCaps,
    /// The limit of SRQ_LIMIT_REACHED; 0 if it is not armed.
    pub(crate) limit: u32,
    /// Receives that no QP has taken, oldest first.
    pub(super) receives: VecDeque<Receive>,
    /// Receives for which the doorbell was refused.
    pub(super) unrung: Vec<Receive>,
    /// The keys that each receive pins, until its completion is polled.
    pub(super) filed: BTreeMap<u64, Vec<u32>>,
    pub(super) sequence: u64,
    /// Whether its handle exists.
    pub(super) held: bool,
}

impl SrqState {
    /// Returns the number of receives without a polled completion.
    pub(crate) fn unpolled(&self) -> u32 {
        u32::try_from(self.filed.len()).unwrap_or(u32::MAX)
    }

    /// Returns the number of its last receive.
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Returns the number of receives that the queue has room for.
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
        self.live.values().any(|srq| srq.pins(pd, key))
    }

    /// Retires a receive when its completion is polled.
    pub(crate) fn polled(&mut self, srq_entry: SrqEntry) {
        if let Some(srq) = self.live.get_mut(&srq_entry.srq) {
            srq.filed.remove(&srq_entry.sequence);
        }
    }
}
