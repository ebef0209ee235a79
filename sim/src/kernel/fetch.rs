//! Reading an event, with its side effects in librdmacm (`rdma_get_cm_event`).

use cmid_proto::{CmEvent, Ece, IdKey, RawEvent};

use crate::fabric::world::World;
use crate::index::{FileNo, IdNo};
use crate::kernel::channel::Unread;
use crate::kernel::id::{Depths, Id};

/// An event reported by the library.
#[derive(Debug)]
pub(crate) struct Fetched {
    id: IdKey,
    listener: Option<IdKey>,
    /// With the type and the status that the library makes of them.
    event: Unread,
}

impl Fetched {
    /// What it is, for the log.
    pub(crate) fn text(&self) -> String {
        format!("{:?} {}, status {}", self.id, self.event.kind, self.event.status)
    }

    /// The new id of a CONNECT_REQUEST; the device stores it.
    pub(crate) fn child(&self) -> Option<IdNo> {
        self.event.child
    }

    /// Converts to the type of the core.
    pub(crate) fn raw(&self) -> RawEvent<&[u8]> {
        RawEvent {
            listener: self.listener,
            status: self.event.status,
            param: self.event.param,
            datagram: self.event.datagram,
            group: self.event.group,
            private_data: &self.event.private_data,
            ..RawEvent::new(self.id, self.event.kind)
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

    fn process(&mut self, file: FileNo, mut event: Unread, child_key: IdKey) -> Option<Fetched> {
        let id = self.ids.get_mut(&event.owner)?;
        let mut named = (id.key, None);
        match event.kind {
            // The library queries the kernel here. The query fails for an id with a removed device.
            CmEvent::AddrResolved if id.removed => event.becomes(CmEvent::AddrError, LIBRARY_ERROR),
            CmEvent::RouteResolved if id.removed => event.becomes(CmEvent::RouteError, LIBRARY_ERROR),
            CmEvent::AddrResolved => {
                id.verbs = true;
                id.query_addresses();
            }
            CmEvent::ConnectRequest => {
                // The backlog is restored on reading, even if later steps fail (`ucma_get_event`).
                id.backlog = id.backlog.saturating_add(1);
                let listener = id.key;
                self.meet_child(file, child_key, &event)?;
                named = (Some(child_key), listener);
            }
            CmEvent::ConnectResponse if id.qp.is_none() => id.remote_ece = event.ece,
            CmEvent::ConnectResponse => self.finish(&mut event),
            CmEvent::Rejected | CmEvent::Disconnected if id.connect_error => return None,
            CmEvent::Rejected => self.qp_of_id_to_error(event.owner),
            CmEvent::MulticastJoin => {
                if let Err(errno) = self.attach_on_read(event.owner, event.group?) {
                    event.becomes(CmEvent::MulticastError, -errno.0);
                }
            }
            CmEvent::AddrError
            | CmEvent::RouteResolved
            | CmEvent::RouteError
            | CmEvent::ConnectError
            | CmEvent::Unreachable
            | CmEvent::Established
            | CmEvent::Disconnected
            | CmEvent::DeviceRemoval
            | CmEvent::MulticastError
            | CmEvent::AddrChange
            | CmEvent::TimewaitExit
            | CmEvent::AddrinfoResolved
            | CmEvent::AddrinfoError
            | CmEvent::User
            | CmEvent::Internal
            | CmEvent::Unknown(_) => {}
        }
        let (id, listener) = named;
        Some(Fetched { id: id?, listener, event })
    }

    /// The library queries the kernel about the new id through the channel that it read from. The query fails if the
    /// id is on another channel because its listener migrated, or if its device is removed. The request is lost then
    /// (`ucma_process_conn_req`).
    fn meet_child(&mut self, file: FileNo, key: IdKey, event: &Unread) -> Option<()> {
        let child = event.child?;
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
    fn finish(&mut self, event: &mut Unread) {
        let no = event.owner;
        match self.complete(no, event.ece, event.param.initiator_depth) {
            Ok(()) => event.becomes(CmEvent::Established, 0),
            Err(status) => {
                self.qp_of_id_to_error(no);
                if let Some(id) = self.ids.get_mut(&no) {
                    id.connect_error = true;
                }
                event.becomes(CmEvent::ConnectError, status);
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
