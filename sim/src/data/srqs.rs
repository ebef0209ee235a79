//! The state of shared receive queues.

use std::collections::BTreeMap;

use cmid_proto::Errno;

use crate::data::receive::RecvQueue;
use crate::index::{DeviceNo, PdNo, SrqNo};

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
