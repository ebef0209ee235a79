//! Datagram ids: connect looks up the QP of a service, and accept answers with it (SIDR). There is no connection to
//! confirm or to end.

use cmid_proto::{CmEvent, ConnParam, Datagram, Errno};

use crate::fabric::world::World;
use crate::index::{HostNo, IdNo};
use crate::kernel::channel::Unread;
use crate::kernel::conn::{Conn, IbState};
use crate::kernel::gid::path;
use crate::kernel::ib_cm::TIMED_OUT;
use crate::kernel::id::{CmState, with_qp};
use crate::kernel::listener::Newcomer;
use crate::kernel::wire::{
    Body, Head, Message, SIDR_REP_DATA, SIDR_REQ_DATA, SidrAnswer, SidrReq, padded, reason, sidr,
};

/// The queue key of every datagram QP and group of the RDMA CM (`RDMA_UDP_QKEY`).
pub(crate) const UDP_QKEY: u32 = 0x0123_4567;

impl World {
    /// `rdma_connect` (`cma_resolve_ib_udp`).
    pub(crate) fn look_up_service(&mut self, no: IdNo, data: &[u8]) -> Result<(), Errno> {
        let comm = self.new_comm();
        let id = self.id(no)?;
        if id.state != CmState::RouteResolved || data.len() > SIDR_REQ_DATA {
            return Err(Errno::EINVAL);
        }
        let (src, dst, life_time) = self.way(no)?;
        let private_data = padded(data, SIDR_REQ_DATA);
        let id = self.id(no)?;
        let req = SidrReq { service: (id.port_space, dst.port()), src, dst, private_data };
        id.conn = Some(Conn::new(IbState::SidrReqSent, src.ip(), dst.ip(), comm, life_time.timeout()));
        id.state = CmState::Connect;
        self.comms.insert(comm, no);
        self.send_and_wait(no, Body::SidrReq(Box::new(req)));
        Ok(())
    }

    /// Processes an arriving lookup (`cm_sidr_req_handler`). Errors are answered at once. A duplicate of an
    /// unanswered lookup gets no answer.
    pub(crate) fn receive_sidr_req(&mut self, at: HostNo, head: &Head, req: &SidrReq) {
        let Some(host) = self.hosts.get(at.0) else { return };
        if host.remote_ids.contains_key(&(head.from, head.from_comm)) {
            return;
        }
        let listener = match self.listener(at, req.service, req.dst.ip()) {
            Ok(listener) => listener,
            Err(reason::INVALID_SERVICE_ID) => return self.refuse_sidr(at, head, sidr::UNSUPPORTED),
            Err(_) => return self.refuse_sidr(at, head, sidr::REJECT),
        };
        let Some(file) = self.take_backlog(listener) else {
            return self.refuse_sidr(at, head, sidr::REJECT);
        };
        // The timers of a lookup do not use it.
        let timeout = self.config.flavour.life_time().timeout();
        let newcomer = Newcomer { service: req.service, src: req.dst, dst: req.src, file, timeout };
        let child = self.child_of(at, head, IbState::SidrReqRcvd, newcomer);
        self.remember_lookup(child, at, head.from, head.from_comm);
        let event = Unread::new(listener, CmEvent::ConnectRequest, 0);
        self.report(Unread { child: Some(child), private_data: req.private_data.clone(), ..event });
    }

    /// `rdma_accept` and `rdma_establish` (`cma_send_sidr_rep`): only accept passes a QP. An error rejects the
    /// lookup.
    pub(crate) fn answer_lookup(&mut self, no: IdNo, param: Option<&ConnParam>, data: &[u8]) -> Result<(), Errno> {
        let id = self.id(no)?;
        if id.state != CmState::Connect {
            return Err(Errno::EINVAL);
        }
        let qp_num = param.map_or(0, |param| with_qp(id, param).qp_num);
        if data.len() > SIDR_REP_DATA {
            let _ = self.send_sidr_rep(no, SidrAnswer::Refused(sidr::REJECT), &[]);
            return Err(Errno::EINVAL);
        }
        self.send_sidr_rep(no, SidrAnswer::Found { qp_num, qkey: UDP_QKEY }, data)
    }

    /// `rdma_reject`.
    pub(crate) fn reject_lookup(&mut self, no: IdNo, data: &[u8]) -> Result<(), Errno> {
        if data.len() > SIDR_REP_DATA {
            return Err(Errno::EINVAL);
        }
        self.send_sidr_rep(no, SidrAnswer::Refused(sidr::REJECT), data)
    }

    /// Answers a lookup, and removes it. If the answer is lost, the retry is a new request
    /// (`cm_send_sidr_rep_locked`).
    pub(crate) fn send_sidr_rep(&mut self, no: IdNo, answer: SidrAnswer, data: &[u8]) -> Result<(), Errno> {
        if self.ib_state(no) != Some(IbState::SidrReqRcvd) {
            return Err(Errno::EINVAL);
        }
        self.reset_to_idle(no);
        self.send(no, Body::SidrRep { answer, private_data: padded(data, SIDR_REP_DATA) });
        Ok(())
    }

    /// Processes an arriving answer (`cm_sidr_rep_handler`, `cma_sidr_rep_handler`).
    pub(crate) fn receive_sidr_rep(&mut self, known: Option<IdNo>, answer: SidrAnswer, private_data: Vec<u8>) {
        let Some(no) = known.filter(|&no| self.ib_state(no) == Some(IbState::SidrReqSent)) else { return };
        self.answered(no);
        self.set_ib_state(no, IbState::Idle);
        let Some(id) = self.ids.get(&no) else { return };
        let (Some(src), Some(dst)) = (id.src, id.dst) else { return };
        let event = match answer {
            SidrAnswer::Found { qp_num, qkey } => {
                let mut path = path(self.gid_index(id.host, src.ip()), dst.ip());
                if let Some(route) = &mut path.grh {
                    route.traffic_class = id.traffic_class;
                }
                let datagram = Some(Datagram { qp_num, qkey, path });
                Unread { datagram, private_data, ..Unread::new(no, CmEvent::Established, 0) }
            }
            SidrAnswer::Refused(status) => Unread { private_data, ..Unread::new(no, CmEvent::Unreachable, status) },
        };
        self.report(event);
    }

    /// Handles a last retry without an answer.
    pub(crate) fn lookup_failed(&mut self, no: IdNo) {
        self.set_ib_state(no, IbState::Idle);
        self.report(Unread::new(no, CmEvent::Unreachable, TIMED_OUT));
    }

    fn refuse_sidr(&mut self, at: HostNo, head: &Head, status: i32) {
        let body = Body::SidrRep { answer: SidrAnswer::Refused(status), private_data: padded(&[], SIDR_REP_DATA) };
        self.transmit(Message { head: head.answer(at), body });
    }
}
