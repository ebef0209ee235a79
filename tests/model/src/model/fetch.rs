//! Reading an event (`rdma_get_cm_event`), which changes the event and has side effects.

use cmid_proto::{CmEvent, IdKey};

use super::kernel::{File, Kernel, No, Phase, Unread};

/// An event reported by the library.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fetched {
    /// The id of the event; for a request the new id.
    pub(crate) id: No,
    /// The owner of the event.
    pub(crate) owner: No,
    pub(crate) event: Unread,
}

/// The status of the library's own errors.
const LIBRARY_ERROR: i32 = -1;

impl Kernel {
    /// Returns the next event that the library reports; it swallows some.
    pub(crate) fn fetch(&mut self, file: File, child: IdKey) -> Option<Fetched> {
        loop {
            let event = self.files.get_mut(&file)?.pop_front()?;
            if let Some(event) = self.read(file, event, child) {
                return Some(Fetched { id: event.child.unwrap_or(event.owner), owner: event.owner, event });
            }
        }
    }

    fn read(&mut self, file: File, event: Unread, child_key: IdKey) -> Option<Unread> {
        let id = self.id_mut(event.owner);
        let fails = |kind| Some(Unread { kind, status: LIBRARY_ERROR, ..event });
        match event.kind {
            // The library queries the kernel here; the query fails for an id with a removed device.
            CmEvent::AddrResolved if id.removed => return fails(CmEvent::AddrError),
            CmEvent::RouteResolved if id.removed => return fails(CmEvent::RouteError),
            CmEvent::AddrResolved => id.verbs = true,
            CmEvent::ConnectResponse if id.qp => {
                if id.stage != Phase::RepRcvd || id.removed {
                    id.connect_error = true;
                    return fails(CmEvent::ConnectError);
                }
                id.stage = Phase::Established;
                return Some(Unread { kind: CmEvent::Established, ..event });
            }
            CmEvent::Rejected | CmEvent::Disconnected if id.connect_error => return None,
            CmEvent::ConnectRequest => {
                let child = event.child?;
                assert_eq!(self.id(child).file, file, "a request that its listener's migration has lost");
                if self.id(child).removed {
                    self.destroy(child);
                    return None;
                }
                let child = self.id_mut(child);
                (child.key, child.verbs) = (Some(child_key), true);
            }
            _ => {}
        }
        Some(event)
    }
}
