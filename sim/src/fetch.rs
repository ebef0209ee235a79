//! Reading an event: an action with effects of its own, as in librdmacm (`rdma_get_cm_event`).

use cmid_proto::{CmEvent, IdKey, ReceivedParam};

use crate::channel::{FileNo, Kind, Unread};
use crate::id::{Depths, IdNo};
use crate::world::World;

/// An event that the library reports.
#[derive(Debug)]
pub(crate) struct Fetched {
    pub(crate) id: IdKey,
    pub(crate) listener: Option<IdKey>,
    /// The new id of a CONNECT_REQUEST, which its device is to file.
    pub(crate) child: Option<IdNo>,
    pub(crate) kind: CmEvent,
    pub(crate) status: i32,
    pub(crate) param: ReceivedParam,
    pub(crate) private_data: Vec<u8>,
}

impl World {
    /// The next event that the library reports; it may take and swallow others before. `child` becomes the key of a
    /// new id.
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
            Kind::AddrResolved => {
                id.verbs = true;
                id.query_addresses();
            }
            Kind::ConnectRequest(child) => {
                // Read is read, whatever comes of it (`ucma_get_event`).
                id.backlog = id.backlog.saturating_add(1);
                let listener = id.key;
                self.meet_child(file, child, child_key, &event.param)?;
                named = (Some(child_key), listener, Some(child));
            }
            Kind::ConnectResponse => {
                if id.qp.is_some() {
                    (kind, status) = self.finish(event.owner);
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
            Kind::AddrError | Kind::RouteResolved | Kind::Unreachable | Kind::Established | Kind::TimewaitExit => {}
        }
        let (id, listener, child) = named;
        Some(Fetched { id: id?, listener, child, kind, status, param: event.param, private_data: event.private_data })
    }

    /// The library asks the kernel about the new id through the channel that it read from. If the id is on another one,
    /// since its listener migrated, that fails and the request is lost (`ucma_process_conn_req`).
    fn meet_child(&mut self, file: FileNo, child: IdNo, key: IdKey, param: &ReceivedParam) -> Option<()> {
        let id = self.ids.get_mut(&child).filter(|id| id.file == file)?;
        id.key = Some(key);
        id.verbs = true;
        id.query_addresses();
        id.depths = Depths { responder_resources: param.responder_resources, initiator_depth: param.initiator_depth };
        Some(())
    }

    /// The peer accepted and the id has a QP: the reader makes it ready and confirms (`ucma_process_conn_resp`).
    fn finish(&mut self, no: IdNo) -> (CmEvent, i32) {
        let done = self.ready_qp(no).and_then(|()| self.confirm(no));
        match done {
            Ok(()) => (CmEvent::Established, 0),
            Err(_) => {
                self.qp_of_id_to_error(no);
                if let Some(id) = self.ids.get_mut(&no) {
                    id.connect_error = true;
                }
                // The library's own status: the errno is lost.
                (CmEvent::ConnectError, -1)
            }
        }
    }
}
