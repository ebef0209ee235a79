//! Processing of an arriving request: detects duplicates and stale connections, then finds a listener
//! (`cm_req_handler`, `cma_ib_req_handler`, `ucma_connect_event_handler`, in this order).

use std::net::{IpAddr, SocketAddr};

use cmid_proto::{CmEvent, PortSpace};

use crate::fabric::config::PathTimeout;
use crate::fabric::world::World;
use crate::index::{FileNo, HostNo, IdNo};
use crate::kernel::address::{is_any, without_scope};
use crate::kernel::channel::Unread;
use crate::kernel::conn::{Conn, IbState, Listed};
use crate::kernel::ib_cm::mirrored;
use crate::kernel::id::{CmState, Id};
use crate::kernel::wire::{Body, Head, Req, reason};

/// The initial values of a request's id.
pub(crate) struct Newcomer {
    pub(crate) service: (PortSpace, u16),
    pub(crate) src: SocketAddr,
    pub(crate) dst: SocketAddr,
    /// Its listener's channel.
    pub(crate) file: FileNo,
    pub(crate) timeout: PathTimeout,
}

impl World {
    pub(crate) fn receive_req(&mut self, at: HostNo, head: &Head, req: &Req) {
        let Some(host) = self.hosts.get(at.0) else { return };
        if let Some(&no) = host.remote_ids.get(&(head.from, head.from_comm)) {
            // A duplicate: answer with MRA while the application has not answered.
            if self.ib_state(no) == Some(IbState::MraReqSent) {
                self.send(no, Body::Mra);
            }
            return;
        }
        if let Some(&live) = host.remote_qps.get(&self.remote_qp(head.from, head.from_ip, req.param.qp_num)) {
            self.refuse(at, head, reason::STALE_CONNECTION);
            self.send_dreq(live);
            return;
        }
        let listener = match self.listener(at, req.service, req.dst.ip()) {
            Ok(listener) => listener,
            Err(reason) => return self.refuse(at, head, reason),
        };
        // The backlog is full: no answer. A retry of the peer may succeed.
        let Some(file) = self.take_backlog(listener) else { return };
        let newcomer = Newcomer { service: req.service, src: req.dst, dst: req.src, file, timeout: req.timeout };
        let child = self.child_of(at, head, IbState::MraReqSent, newcomer);
        if let Some(conn) = self.conn(child) {
            conn.retry_count = req.param.retry_count;
            (conn.rnr_retry_count, conn.peer_starts) = (req.param.rnr_retry_count, req.param.initiator_depth);
        }
        let listed = self.remember_remote(child, at, head, req.param.qp_num);
        debug_assert_eq!(listed, Listed::New, "both were looked up before");
        self.report(Unread {
            param: mirrored(&req.param),
            ece: req.ece,
            private_data: req.private_data.clone(),
            child: Some(child),
            ..Unread::new(listener, CmEvent::ConnectRequest, 0)
        });
    }

    /// The listener for this service at this address, or the reject reason if there is none (`cm_find_listen`,
    /// `cma_ib_id_from_event`, `cma_match_private_data`).
    pub(crate) fn listener(&self, at: HostNo, service: (PortSpace, u16), ip: IpAddr) -> Result<IdNo, i32> {
        let Some(host) = self.hosts.get(at.0) else { return Err(reason::INVALID_SERVICE_ID) };
        let (mut service_known, mut found) = (false, None);
        for no in host.ports.owners(service.0, service.1) {
            let Some(id) = self.ids.get(&no) else { continue };
            let Some(src) = id.src.map(|src| src.ip()) else { continue };
            let listens = id.state == CmState::Listen;
            // The kernel listens for a service per device.
            service_known |= listens && (is_any(src) || host.device_index(src) == host.device_index(ip));
            // The kernel looks at the state after it has chosen, so an id with a device hides listeners. siw's
            // listeners are sockets.
            let chosen = listens || (id.device.is_some() && !self.is_iwarp(at));
            let family = src.is_ipv4() == ip.is_ipv4() || !id.options.takes_only_its_family(src);
            // siw listens on a loopback address itself (`siw_create_listen`).
            let wildcard = is_any(src) && !(src.is_loopback() && self.is_iwarp(at));
            if found.is_none() && chosen && ((wildcard && family) || src == ip) {
                found = Some((no, listens));
            }
        }
        match found {
            Some((no, true)) => Ok(no),
            Some((_, false)) | None if service_known => Err(reason::CONSUMER_DEFINED),
            Some((_, false)) | None => Err(reason::INVALID_SERVICE_ID),
        }
    }

    /// Takes a place in the backlog; returns the listener's channel, or `None` if the backlog is full
    /// (`ucma_connect_event_handler`).
    pub(crate) fn take_backlog(&mut self, listener: IdNo) -> Option<FileNo> {
        let id = self.ids.get_mut(&listener)?;
        let Some(left) = id.backlog.checked_sub(1) else {
            self.counters.backlog_full += 1;
            return None;
        };
        id.backlog = left;
        Some(id.file)
    }

    /// Creates the id of a new connection or lookup, in CONNECT and on its listener's channel (`cma_ib_new_conn_id`,
    /// `cma_ib_new_udp_id`).
    pub(crate) fn child_of(&mut self, at: HostNo, head: &Head, state: IbState, newcomer: Newcomer) -> IdNo {
        let (comm, turn) = (self.new_comm(), self.next_turn());
        let conn = Conn::new(state, head.to_ip, head.from_ip, comm, newcomer.timeout);
        let id = Id {
            state: CmState::Connect,
            src: Some(without_scope(newcomer.src)),
            dst: Some(without_scope(newcomer.dst)),
            device: Some(turn),
            own_link: Some(self.link_addr(at)),
            uid: false,
            conn: Some(conn),
            ..Id::new(at, newcomer.file, newcomer.service.0)
        };
        let no = self.add_id(id);
        self.comms.insert(comm, no);
        no
    }
}
