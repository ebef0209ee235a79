//! The state machines of all protection domains.

use std::collections::BTreeMap;

use cmid_proto::memory::Domain;

use crate::index::{DeviceNo, PdNo};

/// The state machines of all protection domains, each with the number of its handles.
#[derive(Debug, Default)]
pub(crate) struct Domains {
    pub(super) live: BTreeMap<PdNo, Held>,
}

/// One domain.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) device: DeviceNo,
    pub(super) domain: Domain,
    pub(super) handles: u32,
}

impl Domains {
    /// The device of a domain.
    pub(crate) fn device_of(&self, no: PdNo) -> Option<DeviceNo> {
        self.live.get(&no).map(|held| held.device)
    }

    pub(crate) fn handle_removal(&mut self, device: DeviceNo) {
        for held in self.live.values_mut().filter(|held| held.device == device) {
            held.domain.handle_removal();
        }
    }
}
