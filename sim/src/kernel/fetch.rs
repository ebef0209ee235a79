//! Reading an event, with its side effects in librdmacm (`rdma_get_cm_event`).

use cmid_proto::{CmEvent, Ece, IdKey, RawEvent};

use crate::fabric::world::World;
use crate::index::{FileNo, IdNo};
use crate::kernel::channel::{Kind, Unread};
use crate::kernel::id::{Depths, Id};

/// An event reported by the library.
#[derive(Debug)]
pub(crate) struct Fetched {
    id: IdKey,
    listener: Option<IdKey>,
    /// The new id of a CONNECT_REQUEST; the device stores it.
    pub(crate) child: Option<IdNo>,
    kind: CmEvent,
    status: i32,
    event: Unread,
}

impl Fetched {
    /// What it is, for the log.
    pub(crate) fn text(&self) -> String {
        format!("{:?} {}, status {}", self.id, self.kind, self.status)
    }

    /// Converts to the type of the core.
    pub(crate) fn raw(&self) -> RawEvent<&[u8]> {
        RawEvent {
            listener: self.listener,
            status: self.status,
            param: self.event.param,
            datagram: self.event.datagram,
            group: self.event.kind.group(),
            private_data: &self.event.private_data,
            ..RawEvent::new(self.id, self.kind)
        }
    }
}

/// The status of errors that librdmacm makes itself.
const LIBRARY_ERROR: i32 = -1;

impl World {
    /// Returns the next event that the library reports; it may read and swallow others first. `child` becomes the key
    /// of a new id.
    pub(crate) fn fetch(&mut self, file: FileNo, child: IdKey) -> Option<Fetched> {
        loop {
            let event = self.files.get_mut(&file)?.pop()?;
            match self.process(file, event, child) {
                Some(fetched) => return Some(fetched),
                None => self.counters.swallowed += 1,
            }
        }
    }

    fn process(&mut self, file: FileNo, event: Unread, child_key: IdKey) -> Option<Fetched> {
        let id = self.ids.get_mut(&event.owner)?;
        let mut kind = event.kind.cm();
        let mut status = event.status;
        let mut named = (id.key, None, None);
        match event.kind {
            // The library queries the kernel here. The query fails for an id with a removed device.
            Kind::AddrResolved if id.removed => (kind, status) = (CmEvent::AddrError, LIBRARY_ERROR),
            Kind::RouteResolved if id.removed => (kind, status) = (CmEvent::RouteError, LIBRARY_ERROR),
            Kind::AddrResolved => {
                id.verbs = true;
                id.query_addresses();
            }
            Kind::ConnectRequest(child) => {
                // The backlog is restored on reading, even if later steps fail (`ucma_get_event`).
                id.backlog = id.backlog.saturating_add(1);
                let listener = id.key;
                self.meet_child(file, child, child_key, &event)?;
                named = (Some(child_key), listener, Some(child));
            }
            Kind::ConnectResponse => {
                if id.qp.is_some() {
                    (kind, status) = self.finish(event.owner, event.ece, event.param.initiator_depth);
                } else {
                    id.remote_ece = event.ece;
                }
            }
            Kind::Rejected => {
                if id.connect_error {
                    return None;
                }
                self.qp_of_id_to_error(event.owner);
            }
            Kind::Disconnected => {
                if id.connect_error {
                    return None;
                }
            }
            Kind::MulticastJoin(group) => {
                if let Err(errno) = self.attach_on_read(event.owner, group) {
                    (kind, status) = (CmEvent::MulticastError, -errno.0);
                }
            }
            Kind::AddrError
            | Kind::RouteResolved
            | Kind::Unreachable
            | Kind::ConnectError
            | Kind::Established
            | Kind::TimewaitExit
            | Kind::DeviceRemoval
            | Kind::AddrChange
            | Kind::MulticastError(_) => {}
        }
        let (id, listener, child) = named;
        Some(Fetched { id: id?, listener, child, kind, status, event })
    }

    /// The library queries the kernel about the new id through the channel that it read from. The query fails if the
    /// id is on another channel because its listener migrated, or if its device is removed. The request is lost then
    /// (`ucma_process_conn_req`).
    fn meet_child(&mut self, file: FileNo, child: IdNo, key: IdKey, event: &Unread) -> Option<()> {
        let id = self.ids.get_mut(&child).filter(|id| id.file == file)?;
        if id.removed {
            self.destroy_id(child);
            return None;
        }
        id.key = Some(key);
        id.verbs = true;
        id.query_addresses();
        id.depths = Depths {
            responder_resources: event.param.responder_resources,
            initiator_depth: event.param.initiator_depth,
        };
        id.remote_ece = event.ece;
        Some(())
    }

    /// Processes a REP for an id with a QP: moves the QP to RTS and sends RTU (`ucma_process_conn_resp`). The ECE
    /// options must be of the vendor of the QP, which may have been created after the request
    /// (`ucma_process_conn_resp_ece`).
    fn finish(&mut self, no: IdNo, answered: Ece, depth: u8) -> (CmEvent, i32) {
        match self.complete(no, answered, depth) {
            Ok(()) => (CmEvent::Established, 0),
            Err(status) => {
                self.qp_of_id_to_error(no);
                if let Some(id) = self.ids.get_mut(&no) {
                    id.connect_error = true;
                }
                (CmEvent::ConnectError, status)
            }
        }
    }

    /// As the kernel backend, it returns the errno of a QP that cannot be changed, which librdmacm drops.
    fn complete(&mut self, no: IdNo, answered: Ece, depth: u8) -> Result<(), i32> {
        let refused = |_| LIBRARY_ERROR;
        let is_foreign = |id: &Id| answered.vendor_id != 0 && answered.vendor_id != id.local_ece.vendor_id;
        if self.ids.get(&no).is_some_and(|id| is_foreign(id)) {
            return Err(LIBRARY_ERROR);
        }
        let ready = self.query_ready(no).map_err(refused)?;
        self.move_ready(&ready, depth).map_err(|errno| -errno.0)?;
        self.confirm(no).map_err(refused)
    }
}
