//! The state machines of all protection domains.

use std::collections::BTreeMap;

use cmid_proto::memory::{Bindings, Domain};

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
    /// The windows that may be bound to its regions.
    pub(super) bindings: Bindings,
}

impl Domains {
    /// The device of a domain.
    pub(crate) fn device_of(&self, no: PdNo) -> Option<DeviceNo> {
        self.live.get(&no).map(|held| held.device)
    }

    /// Returns the record of the windows of a domain. One that is gone has none.
    pub(super) fn bindings(&mut self, no: PdNo) -> Option<&mut Bindings> {
        self.live.get_mut(&no).map(|held| &mut held.bindings)
    }

    pub(crate) fn handle_removal(&mut self, device: DeviceNo) {
        for held in self.live.values_mut().filter(|held| held.device == device) {
            held.domain.handle_removal();
        }
    }
}
