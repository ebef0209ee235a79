//! A request arrives: is it known, is it stale, does somebody listen (`cm_req_handler`, `cma_ib_req_handler`,
//! `ucma_connect_event_handler`, in this order).

use std::net::IpAddr;

use cmid_proto::PortSpace;

use crate::address::is_any;
use crate::channel::{Kind, Unread};
use crate::conn::{Conn, IbState, Listed};
use crate::host::HostNo;
use crate::ib_cm::mirrored;
use crate::id::{CmState, Id, IdNo};
use crate::wire::{Body, Head, Req, reason};
use crate::world::World;

impl World {
    pub(crate) fn receive_req(&mut self, at: HostNo, head: &Head, req: &Req) {
        let Some(host) = self.hosts.get(at.0) else { return };
        if let Some(&no) = host.remote_ids.get(&(head.from, head.from_comm)) {
            // A duplicate: while the application has not answered, ask the peer for time.
            if self.ib_state(no) == Some(IbState::MraReqSent) {
                self.send(no, Body::Mra);
            }
            return;
        }
        if let Some(&live) = host.remote_qps.get(&(head.from, req.param.qp_num)) {
            self.refuse(at, head, reason::STALE_CONNECTION);
            self.send_dreq(live);
            return;
        }
        let listener = match self.listener(at, req.service, req.dst.ip()) {
            Ok(listener) => listener,
            Err(reason) => return self.refuse(at, head, reason),
        };
        let Some(id) = self.ids.get_mut(&listener) else { return };
        let Some(left) = id.backlog.checked_sub(1) else {
            // Silence: the peer tries again, and may succeed then.
            self.counters.backlog_full += 1;
            return;
        };
        id.backlog = left;
        let file = id.file;
        let child = self.child_of(at, head, req, file);
        self.report(Unread {
            owner: listener,
            kind: Kind::ConnectRequest(child),
            status: 0,
            param: mirrored(&req.param),
            private_data: req.private_data.clone(),
        });
    }

    /// Who takes requests for this service at this address, or the reason for which nobody does
    /// (`cm_find_listen`, `cma_ib_id_from_event`).
    fn listener(&self, at: HostNo, service: (PortSpace, u16), ip: IpAddr) -> Result<IdNo, i32> {
        let Some(host) = self.hosts.get(at.0) else { return Err(reason::INVALID_SERVICE_ID) };
        let mut service_known = false;
        for no in host.ports.owners(service.0, service.1) {
            let Some(id) = self.ids.get(&no) else { continue };
            let Some(src) = id.src else { continue };
            if id.state == CmState::Listen {
                service_known = true;
                if is_any(src.ip()) || src.ip() == ip {
                    return Ok(no);
                }
            }
        }
        Err(if service_known { reason::CONSUMER_DEFINED } else { reason::INVALID_SERVICE_ID })
    }

    /// The id of a new connection: it starts life in CONNECT, on its listener's channel (`cma_ib_new_conn_id`).
    fn child_of(&mut self, at: HostNo, head: &Head, req: &Req, file: crate::channel::FileNo) -> IdNo {
        let comm = self.new_comm();
        let mut conn = Conn::new(IbState::MraReqSent, head.to_ip, head.from_ip, comm);
        conn.retry_count = req.param.retry_count;
        let id = Id {
            state: CmState::Connect,
            src: Some(req.dst),
            dst: Some(req.src),
            device: true,
            uid: false,
            conn: Some(conn),
            ..Id::new(at, file, req.service.0)
        };
        let no = self.add_id(id);
        self.comms.insert(comm, no);
        let listed = self.remember_remote(no, at, head.from, head.from_comm, req.param.qp_num);
        debug_assert_eq!(listed, Listed::New, "both were looked up before");
        no
    }
}
