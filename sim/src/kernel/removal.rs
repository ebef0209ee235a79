//! Removal of the devices of a host (`cma_process_remove`).

use cmid_proto::CmEvent;
use cmid_proto::datapath::{AsyncEventKind, AsyncSource};

use crate::fabric::world::World;
use crate::index::{HostNo, IdNo};

impl World {
    /// Closes every id with the device, as a destroy does towards the peer, and reports it if events are delivered for
    /// the id. Ids without a device, such as wildcard listeners, do not change.
    pub(crate) fn remove_device(&mut self, host: HostNo) {
        let devices = self.devices_of(host);
        if !self.hosts.get_mut(host.0).is_some_and(|host| host.set_device(false)) {
            return;
        }
        let closed = self.in_turn(|id| id.device.filter(|_| id.host == host && !id.removed));
        for no in closed {
            self.close_id(no);
        }
        for &device in &devices {
            self.raise_event(device, AsyncEventKind::DEVICE_FATAL, AsyncSource::Device);
        }
        self.queues.drop_windows(host);
        let orphans = self.queues.pairs.keys_of(|qp, _| qp.host == host);
        for qp in orphans {
            self.qp_to_error(qp);
            self.end_qp(qp, false);
        }
        devices.iter().for_each(|&device| self.end_srqs_of(device));
        self.memory.disassociate(host);
        devices.iter().for_each(|&device| self.domains.handle_removal(device));
        self.sweep = true;
    }

    /// Ends the kernel's part of an id; the user context remains (`ucma_close_id`).
    fn close_id(&mut self, no: IdNo) {
        self.release_port(no);
        self.destroy_conn(no);
        self.iw_destroy(no);
        self.cancel_joins(no);
        let Some(id) = self.ids.get_mut(&no) else { return };
        id.removed = true;
        if let Some(lookup) = id.lookup.take() {
            self.timers.cancel(lookup);
        }
        self.report_plain(no, CmEvent::DeviceRemoval, 0);
    }
}
