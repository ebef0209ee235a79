//! The connection manager of iWARP: the state of a connection, its messages over TCP (MPA), and the resulting events
//! (iwcm.c, siw_cm.c, `cma_iw_handler`).
//!
//! TCP keeps the messages of a connection in order and loses none, so there is no retransmission here and
//! [`Config::loss`](crate::Config::loss) does not apply. The kernel makes the TCP connection inside rdma_connect(3),
//! and blocks there; here it takes no time.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use cmid_proto::{CmEvent, ConnParam, Errno, ReceivedParam, Transport};

use crate::data::qp::PairState;
use crate::fabric::world::{LOCAL_WORK, World};
use crate::index::{HostNo, IdNo, QpNo};
use crate::kernel::address::{is_link_local, lacks_scope};
use crate::kernel::channel::Unread;
use crate::kernel::due::Due;
use crate::kernel::ib_cm::{TIMED_OUT, mirrored};
use crate::kernel::id::{CmState, Id};
use crate::kernel::iw_conn::{IwConn, IwMessage, IwState};

/// The time that the active side waits for the answer to its request (`MPAREQ_TIMEOUT`).
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum private data of a message that siw sends right: the kernel's field for the length has 8 bits, and siw
/// adds 4 (`siw_send_mpareqrep`). With more the kernel sends a wrong length; here the call fails.
const DATA_MAX: usize = 251;

/// `-ECONNRESET`, `-EINVAL`.
const RESET: i32 = -104;
const INVALID: i32 = -22;
/// `ECONNREFUSED`, `ECONNRESET`.
const REFUSED: Errno = Errno(111);
const CONNECTION_RESET: Errno = Errno(104);

impl World {
    /// Whether the device of this host is an iWARP device.
    pub(crate) fn is_iwarp(&self, host: HostNo) -> bool {
        self.hosts.get(host.0).is_some_and(|host| host.transport == Transport::Iwarp)
    }

    /// Whether the device of this id's host is an iWARP device.
    pub(crate) fn is_on_iwarp(&mut self, no: IdNo) -> Result<bool, Errno> {
        let host = self.id(no)?.host;
        Ok(self.is_iwarp(host))
    }

    fn iw(&mut self, no: IdNo) -> Option<&mut IwConn> {
        self.ids.get_mut(&no)?.iw.as_mut()
    }

    fn iw_state(&self, no: IdNo) -> Option<IwState> {
        Some(self.ids.get(&no)?.iw.as_ref()?.state)
    }

    fn iw_send(&mut self, from: IdNo, to: IdNo, message: IwMessage) {
        let delay = match message {
            IwMessage::Ready | IwMessage::Closed => LOCAL_WORK,
            IwMessage::Request { .. }
            | IwMessage::Reply { .. }
            | IwMessage::Reject { .. }
            | IwMessage::OwnRequest { .. }
            | IwMessage::Close => {
                self.counters.sent += 1;
                self.config.latency
            }
        };
        self.timers.arm(self.now.after(delay), Due::Iw { from, to, message });
    }

    /// The QP of an id, or of its device by number (`iw_get_qp`).
    fn iw_qp(&mut self, no: IdNo, param: &ConnParam) -> Result<QpNo, Errno> {
        let id = self.id(no)?;
        let qp = id.qp.unwrap_or(QpNo { host: id.host, num: param.qp_num & 0x00ff_ffff });
        if self.queues.pairs.get(&qp).is_some() { Ok(qp) } else { Err(Errno::EINVAL) }
    }

    /// `cma_connect_iw`. It fails without a QP, and without a listener, which TCP reports at once. In both cases a
    /// later connect is possible.
    pub(crate) fn iw_connect(&mut self, no: IdNo, param: &ConnParam, data: &[u8]) -> Result<(), Errno> {
        let id = self.id(no)?;
        let (Some(src), Some(dst), Some(_)) = (id.src, id.dst, id.life_time) else { return Err(Errno::EINVAL) };
        let qp = self.iw_qp(no, param)?;
        let id = self.id(no)?;
        if data.len() > DATA_MAX || id.is_datagram() {
            return Err(Errno::EINVAL);
        }
        let (from, port_space) = (id.host, id.port_space);
        let param = ConnParam {
            responder_resources: id.depths.responder_resources,
            initiator_depth: id.depths.initiator_depth,
            qp_num: qp.num,
            ..ReceivedParam::default().0
        };
        let dst = tcp_destination(src, dst);
        // TCP needs the link of a link-local address (`__inet6_bind`, `tcp_v6_connect`).
        let confined = is_link_local(src.ip()) && !lacks_scope(src);
        if lacks_scope(src) || lacks_scope(dst) && !confined {
            return Err(Errno::EINVAL);
        }
        // siw listens on the addresses of its device only.
        if dst.ip().is_loopback() {
            return Err(REFUSED);
        }
        let at = self.rdma_host_of(dst.ip()).filter(|&at| self.passes(None, from, at) && self.is_iwarp(at));
        let at = at.ok_or(Errno::ETIMEDOUT)?;
        let to_itself = src == dst;
        if !to_itself {
            self.listener(at, (port_space, dst.port()), dst.ip()).map_err(|_| REFUSED)?;
        }
        let timer = self.arm_of_span(ANSWER_TIMEOUT, Due::Unanswered { id: no });
        let id = self.id(no)?;
        id.state = CmState::Connect;
        let state = IwState::ConnSent;
        id.iw = Some(IwConn { state, peer: None, gone: false, qp: Some(qp), param, timer: Some(timer) });
        let private_data = data.to_vec();
        self.iw_send(
            no,
            no,
            if to_itself { IwMessage::OwnRequest { private_data } } else { IwMessage::Request { at, private_data } },
        );
        Ok(())
    }

    /// What the library does to the QP of an id before an accept. Before a connect the kernel's attributes for RTS name a
    /// state, which siw refuses without TCP; of an id that listens or disconnects it has none (`rdma_init_qp_attr`,
    /// `iw_cm_init_qp_attr`, `siw_qp_nextstate_from_idle`). The QP keeps its state.
    pub(crate) fn iw_init_qp(&mut self, no: IdNo) -> Result<(), Errno> {
        match self.iw_state(no) {
            Some(IwState::Idle | IwState::ConnRecv | IwState::ConnSent | IwState::Established) => Ok(()),
            Some(IwState::Closing) | None => Err(Errno::EINVAL),
        }
    }

    /// `cma_accept_iw`. A failure rejects the peer (`rdma_accept`).
    pub(crate) fn iw_accept(&mut self, no: IdNo, param: &ConnParam, data: &[u8]) -> Result<(), Errno> {
        let accepted = self.iw_answer(no, param, data);
        if accepted.is_err() {
            let _ = self.iw_reject(no, &[]);
        }
        accepted
    }

    fn iw_answer(&mut self, no: IdNo, param: &ConnParam, data: &[u8]) -> Result<(), Errno> {
        if self.iw_state(no) != Some(IwState::ConnRecv) {
            return Err(Errno::EINVAL);
        }
        let qp = self.iw_qp(no, param)?;
        let (depths, in_error) = (self.id(no)?.depths, self.is_in_error(qp));
        let conn = self.iw(no).ok_or(Errno::EINVAL)?;
        if conn.gone {
            conn.state = IwState::Idle;
            return Err(CONNECTION_RESET);
        }
        if data.len() > DATA_MAX || in_error {
            conn.state = IwState::Idle;
            self.iw_close(no);
            return Err(Errno::EINVAL);
        }
        // siw serves at least what the peer starts, and starts at most what the peer serves (`siw_accept`).
        conn.param.responder_resources = depths.responder_resources.max(conn.param.responder_resources);
        conn.param.initiator_depth = depths.initiator_depth.min(conn.param.initiator_depth);
        conn.qp = Some(qp);
        let (peer, depth) = (conn.peer.ok_or(Errno::EINVAL)?, conn.param.initiator_depth);
        self.iw_ready_qp(qp, peer, depth);
        self.iw_send(no, peer, IwMessage::Reply { private_data: data.to_vec() });
        self.iw_send(no, no, IwMessage::Ready);
        Ok(())
    }

    /// `iw_cm_reject`.
    pub(crate) fn iw_reject(&mut self, no: IdNo, data: &[u8]) -> Result<(), Errno> {
        let conn = self.iw(no).filter(|conn| conn.state == IwState::ConnRecv).ok_or(Errno::EINVAL)?;
        if data.len() > DATA_MAX {
            return Err(Errno::EINVAL);
        }
        conn.state = IwState::Idle;
        if conn.gone {
            return Err(CONNECTION_RESET);
        }
        if let Some(peer) = conn.peer.take() {
            self.iw_send(no, peer, IwMessage::Reject { private_data: data.to_vec() });
        }
        Ok(())
    }

    /// `iw_cm_disconnect`: closes TCP. Returns 0 although there is no connection, except on a listener.
    pub(crate) fn iw_disconnect(&mut self, no: IdNo) -> Result<(), Errno> {
        let own = self.id(no)?.qp;
        let conn = self.iw(no).ok_or(Errno::EINVAL)?;
        let (waits, qp) = (conn.state == IwState::ConnSent, own.or(conn.qp));
        if let (Some(qp), IwState::Established | IwState::Idle) = (qp, conn.state) {
            self.siw_shut_down(qp);
        }
        self.iw_leave(no);
        self.counters.waits_for_answer += u64::from(waits);
        Ok(())
    }

    /// Closes TCP, if there is a connection. Its QP is over.
    fn iw_leave(&mut self, no: IdNo) {
        let Some(conn) = self.iw(no).filter(|conn| conn.state == IwState::Established) else { return };
        conn.state = IwState::Closing;
        conn.qp = None;
        self.iw_close(no);
        self.iw_send(no, no, IwMessage::Closed);
    }

    /// The kernel's part of the end of an id (`iw_destroy_cm_id`). In the kernel it waits for the answer to a request
    /// of this id; here the request is abandoned.
    pub(crate) fn iw_destroy(&mut self, no: IdNo) {
        let state = self.iw_state(no);
        self.counters.waits_for_answer += u64::from(state == Some(IwState::ConnSent));
        match state {
            Some(IwState::ConnRecv) => {
                let _ = self.iw_reject(no, &[]);
            }
            Some(IwState::ConnSent | IwState::Established) => self.iw_close(no),
            Some(IwState::Closing | IwState::Idle) | None => {}
        }
        let timer = self.iw(no).and_then(|conn| conn.timer.take());
        if let Some(timer) = timer {
            self.timers.cancel(timer);
        }
        if let Some(id) = self.ids.get_mut(&no) {
            id.iw = None;
        }
    }

    fn is_in_error(&self, qp: QpNo) -> bool {
        self.queues.pairs.get(&qp).is_some_and(|pair| pair.state == PairState::Err)
    }

    /// The QP of a connection is destroyed or in the error state, and TCP is closed with it (`siw_destroy_qp`,
    /// `siw_qp_cm_drop`).
    pub(crate) fn iw_qp_gone(&mut self, qp: QpNo) {
        if !self.is_iwarp(qp.host) {
            return;
        }
        let has_it =
            |id: &Id| id.iw.as_ref().is_some_and(|conn| conn.qp == Some(qp) && conn.state == IwState::Established);
        for no in self.ids.keys_of(|_, id| has_it(id)) {
            self.iw_leave(no);
        }
    }

    /// Closes this end of TCP: flushes the QP, and reports the close to the peer.
    fn iw_close(&mut self, no: IdNo) {
        let Some(conn) = self.iw(no) else { return };
        let (qp, peer) = (conn.qp.take(), conn.peer.take());
        if let Some(qp) = qp {
            self.qp_to_error(qp);
        }
        if let Some(peer) = peer {
            self.iw_send(no, peer, IwMessage::Close);
        }
    }

    /// Handles a request that was not answered in time (`SIW_CM_WORK_MPATIMEOUT`).
    pub(crate) fn iw_unanswered(&mut self, no: IdNo) {
        if self.iw_state(no) == Some(IwState::ConnSent) {
            self.iw_close(no);
            self.iw_ended(no, Unread::new(no, CmEvent::Unreachable, TIMED_OUT));
        }
    }

    /// Ends a connection, and reports it in the state CONNECT, which the id does not leave (`cma_iw_handler`).
    fn iw_ended(&mut self, no: IdNo, event: Unread) {
        let Some(conn) = self.iw(no) else { return };
        conn.state = IwState::Idle;
        if let Some(timer) = conn.timer.take() {
            self.timers.cancel(timer);
        }
        self.report(event);
    }

    /// Handles a message.
    pub(crate) fn iw_receive(&mut self, from: IdNo, to: IdNo, message: IwMessage) {
        match message {
            IwMessage::Request { at, private_data } => self.iw_requested(from, at, private_data),
            IwMessage::Reply { private_data } => self.iw_replied(from, to, private_data),
            IwMessage::Reject { private_data } => {
                if self.iw_state(to) == Some(IwState::ConnSent) {
                    self.iw_ended(to, Unread { private_data, ..Unread::new(to, CmEvent::Rejected, RESET) });
                }
            }
            // TCP connects a socket to itself, and the request is no valid answer (`siw_proc_mpareply`).
            IwMessage::OwnRequest { private_data } => self.iw_failed(to, private_data),
            IwMessage::Close => self.iw_closed_by_peer(to),
            IwMessage::Ready => self.iw_ready(to),
            IwMessage::Closed => {
                if self.iw_state(to) == Some(IwState::Closing) {
                    self.iw_ended(to, Unread::new(to, CmEvent::Disconnected, 0));
                }
            }
        }
    }

    /// `cm_conn_req_handler`, `iw_conn_req_handler`. A listener without room in its backlog rejects the peer. So does
    /// one on `::`: its socket takes connections to IPv4 addresses, too, and the kernel finds no listener for those
    /// (`siw_listen_address`, `iw_conn_req_handler`).
    fn iw_requested(&mut self, from: IdNo, at: HostNo, private_data: Vec<u8>) {
        let Some(client) = self.ids.get(&from) else { return };
        let (Some(src), Some(dst), Some(conn)) = (client.src, client.dst, &client.iw) else { return };
        let dst = tcp_destination(src, dst);
        let (service, param) = ((client.port_space, dst.port()), conn.param);
        let place = self.listener(at, service, dst.ip()).ok();
        let is_v6 = |no: &IdNo| self.ids.get(no).is_some_and(|id| id.src.is_some_and(|src| src.is_ipv6()));
        let place = place.filter(|listener| dst.is_ipv6() || !is_v6(listener));
        let place = place.and_then(|listener| Some((listener, self.take_backlog(listener)?)));
        let Some((listener, file)) = place else {
            return self.iw_send(from, from, IwMessage::Reject { private_data: Vec::new() });
        };
        let received = mirrored(&ConnParam { qp_num: 0, ..param });
        let turn = self.next_turn();
        let child = self.add_id(Id {
            state: CmState::Connect,
            src: Some(dst),
            dst: Some(src),
            device: Some(turn),
            own_link: Some(self.link_addr(at)),
            uid: false,
            iw: Some(IwConn {
                state: IwState::ConnRecv,
                peer: Some(from),
                gone: false,
                qp: None,
                param: received.0,
                timer: None,
            }),
            ..Id::new(at, file, service.0)
        });
        if let Some(conn) = self.iw(from) {
            conn.peer = Some(child);
        }
        self.report(Unread {
            param: received,
            private_data,
            child: Some(child),
            ..Unread::new(listener, CmEvent::ConnectRequest, 0)
        });
    }

    /// `siw_proc_mpareply`, `cm_conn_rep_handler`. The depths become those of the answer, mirrored. A QP in the error state
    /// makes no connection; the event has the private data of the answer.
    fn iw_replied(&mut self, from: IdNo, no: IdNo, private_data: Vec<u8>) {
        let Some(answer) = self.ids.get(&from).and_then(|id| id.iw.as_ref()).map(|conn| conn.param) else { return };
        let qp = self.iw(no).and_then(|conn| conn.qp);
        let in_error = qp.is_some_and(|qp| self.is_in_error(qp));
        let Some(conn) = self.iw(no).filter(|conn| conn.state == IwState::ConnSent) else { return };
        if in_error {
            return self.iw_failed(no, private_data);
        }
        conn.state = IwState::Established;
        conn.param.responder_resources = answer.initiator_depth;
        conn.param.initiator_depth = answer.responder_resources;
        let param = depths_of(&conn.param);
        if let Some(timer) = conn.timer.take() {
            self.timers.cancel(timer);
        }
        if let Some(qp) = qp {
            self.iw_ready_qp(qp, from, answer.responder_resources);
        }
        self.report(Unread { param, private_data, ..Unread::new(no, CmEvent::Established, 0) });
    }

    /// The active end cannot use the answer.
    fn iw_failed(&mut self, no: IdNo, private_data: Vec<u8>) {
        if self.iw_state(no) == Some(IwState::ConnSent) {
            self.iw_close(no);
            self.iw_ended(no, Unread { private_data, ..Unread::new(no, CmEvent::ConnectError, INVALID) });
        }
    }

    /// `cm_conn_est_handler`.
    fn iw_ready(&mut self, no: IdNo) {
        let Some(conn) = self.iw(no).filter(|conn| conn.state == IwState::ConnRecv) else { return };
        conn.state = IwState::Established;
        let (param, gone) = (depths_of(&conn.param), conn.gone);
        self.report(Unread { param, ..Unread::new(no, CmEvent::Established, 0) });
        if gone {
            self.iw_closed_by_peer(no);
        }
    }

    /// Handles the close of TCP by the peer (`SIW_CM_WORK_PEER_CLOSE`).
    fn iw_closed_by_peer(&mut self, no: IdNo) {
        let Some(conn) = self.iw(no) else { return };
        match conn.state {
            IwState::ConnRecv => conn.gone = true,
            IwState::ConnSent => {
                self.iw_close(no);
                self.iw_ended(no, Unread::new(no, CmEvent::Rejected, RESET));
            }
            IwState::Established | IwState::Closing => {
                self.iw_close(no);
                self.iw_ended(no, Unread::new(no, CmEvent::Disconnected, 0));
            }
            IwState::Idle => {}
        }
    }

    /// Moves a QP to RTS, towards the QP at the other end, which answers `depth` reads at a time. The device does that itself,
    /// in any state before RTS (`siw_qp_modify`).
    fn iw_ready_qp(&mut self, qp: QpNo, peer: IdNo, depth: u8) {
        let remote = self.ids.get(&peer).and_then(|id| id.iw.as_ref()).and_then(|conn| conn.qp);
        // The retries are InfiniBand's: a message without a receive ends the connection. The time-out is when TCP gives
        // up here.
        let _ = self.queues.set_peer(qp, remote.map(|remote| (remote.host, remote.num)), (7, 7, 17), depth, true);
        for state in [PairState::Rtr, PairState::Rts] {
            let _ = self.queues.modify(qp, state);
        }
        self.run_inbound(qp);
    }
}

/// Returns the depths in an ESTABLISHED. They are not mirrored, because the kernel uses IRD as the initiator depth
/// (`cma_iw_handler`).
fn depths_of(own: &ConnParam) -> ReceivedParam {
    ReceivedParam(ConnParam {
        responder_resources: own.initiator_depth,
        initiator_depth: own.responder_resources,
        ..ReceivedParam::default().0
    })
}

/// The address that TCP connects to: the wildcard is the own address, and the loopback address in IPv6 (`ip_route_connect`,
/// `tcp_v6_connect`).
const fn tcp_destination(src: SocketAddr, dst: SocketAddr) -> SocketAddr {
    match dst {
        SocketAddr::V4(v4) if v4.ip().is_unspecified() => SocketAddr::new(src.ip(), v4.port()),
        SocketAddr::V6(v6) if v6.ip().is_unspecified() => SocketAddr::new(IpAddr::V6(Ipv6Addr::LOCALHOST), v6.port()),
        SocketAddr::V4(_) | SocketAddr::V6(_) => dst,
    }
}

/// The address that an iWARP device cannot resolve: the loopback address and the wildcard, which it would take for
/// itself (`cma_bind_loopback`).
pub(crate) const fn is_own_loopback(dst: &SocketAddr) -> bool {
    match dst {
        SocketAddr::V4(v4) => v4.ip().is_loopback() || v4.ip().is_unspecified(),
        SocketAddr::V6(v6) => v6.ip().is_loopback() || v6.ip().is_unspecified(),
    }
}
