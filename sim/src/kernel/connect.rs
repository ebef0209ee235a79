//! The calls that make and end a connection: connect, accept, reject, establish, disconnect.

use std::net::SocketAddr;

use cmid_proto::{ConnParam, Ece, Errno, PortSpace, RejectReason};

use crate::data::qp::PairState;
use crate::fabric::config::LifeTime;
use crate::fabric::world::World;
use crate::index::{HostNo, IdNo, QpNo};
use crate::kernel::conn::{Conn, IbState};
use crate::kernel::id::{CmState, Depths, Id, with_qp};
use crate::kernel::wire::{Body, REJ_DATA, REP_DATA, REQ_DATA, Rep, Req, padded, reason};

/// The checks of librdmacm itself, for the TCP port space only (`ucma_valid_param`).
fn valid_param(id: &Id, device: Depths, param: &ConnParam) -> Result<(), Errno> {
    match id.port_space {
        PortSpace::Tcp if !device.allow(param) => Err(Errno::EINVAL),
        PortSpace::Tcp | PortSpace::Ib | PortSpace::Udp | PortSpace::Ipoib => Ok(()),
    }
}

/// The parameters in a message: depths as stored by the library, the rest from the caller and the QP.
fn wire_param(id: &Id, param: &ConnParam) -> ConnParam {
    ConnParam {
        responder_resources: id.depths.responder_resources,
        initiator_depth: id.depths.initiator_depth,
        ..with_qp(id, param)
    }
}

/// The attributes of RTR and RTS.
pub(crate) struct Ready {
    qp: QpNo,
    peer: Option<(HostNo, u32)>,
    /// The retry counts, and the code of the ACK timeout.
    attrs: (u8, u8, u8),
    /// Whether the QP answers reads and atomic operations: if the peer has said that it starts some
    /// (`cm_init_qp_init_attr`).
    answers_reads: bool,
}

impl World {
    /// `rdma_connect`.
    pub(crate) fn connect(&mut self, no: IdNo, param: &ConnParam, data: &[u8]) -> Result<(), Errno> {
        let device = Depths::of_device(&self.config);
        let comm = self.new_comm();
        let iwarp = self.is_on_iwarp(no)?;
        let id = self.id(no)?;
        if !id.verbs {
            return Err(Errno::EINVAL);
        }
        valid_param(id, device, param)?;
        if id.is_datagram() && !iwarp {
            return self.look_up_service(no, data);
        }
        id.depths = device.unless_given(param);
        // An error here does not change the state, so a corrected call succeeds.
        let longest = if iwarp { usize::MAX } else { REQ_DATA };
        if id.state != CmState::RouteResolved || data.len() > longest {
            return Err(Errno::EINVAL);
        }
        if iwarp {
            return self.iw_connect(no, param, data);
        }
        let (src, dst, life_time) = self.way(no)?;
        let id = self.id(no)?;
        let param = wire_param(id, param);
        let req = Req {
            service: (id.port_space, dst.port()),
            src,
            dst,
            param,
            timeout: life_time.timeout().with_ack_delay(),
            ece: id.local_ece,
            private_data: padded(data, REQ_DATA),
        };
        let mut conn = Conn::new(IbState::ReqSent, src.ip(), dst.ip(), comm, life_time.timeout());
        conn.local_qp_num = param.qp_num;
        conn.retry_count = param.retry_count;
        conn.interval = life_time.request_interval();
        id.conn = Some(conn);
        id.state = CmState::Connect;
        self.comms.insert(comm, no);
        self.send_and_wait(no, Body::Req(Box::new(req)));
        Ok(())
    }

    /// The source, the destination and the packet life time of an id's requests. Fails for the loopback address,
    /// which is the source of an id that resolved a wildcard: it is no GID of the device (`cm_init_av_by_path`).
    pub(crate) fn way(&mut self, no: IdNo) -> Result<(SocketAddr, SocketAddr, LifeTime), Errno> {
        let id = self.id(no)?;
        let (Some(src), Some(dst), Some(life_time)) = (id.src, id.dst, id.life_time) else {
            return Err(Errno::EINVAL);
        };
        let host = id.host;
        let named = self.hosts.get(host.0).is_some_and(|host| host.rdma.contains(&src.ip()));
        if named { Ok((src, dst, life_time)) } else { Err(Errno::EINVAL) }
    }

    /// `rdma_accept`: changes the QP, then sends the answer.
    pub(crate) fn accept(&mut self, no: IdNo, param: &ConnParam, data: &[u8]) -> Result<(), Errno> {
        let device = Depths::of_device(&self.config);
        let iwarp = self.is_on_iwarp(no)?;
        let id = self.id(no)?;
        if !id.verbs {
            return Err(Errno::EINVAL);
        }
        valid_param(id, device, param)?;
        id.depths = id.depths.lowered(device, param);
        let answered = if iwarp {
            if id.qp.is_some() {
                self.iw_init_qp(no)?;
            }
            self.iw_accept(no, param, data)
        } else if id.is_datagram() {
            self.answer_lookup(no, Some(param), data)
        } else {
            if id.qp.is_some() {
                self.ready_to_accept(no)?;
            }
            self.accept_kernel(no, param, data)
        };
        answered.inspect_err(|_| self.qp_of_id_to_error(no))?;
        self.id(no)?.uid = true;
        Ok(())
    }

    /// The kernel's part: an error rejects the peer (`rdma_accept` of `cma.c`).
    fn accept_kernel(&mut self, no: IdNo, param: &ConnParam, data: &[u8]) -> Result<(), Errno> {
        let id = self.id(no)?;
        let wire = wire_param(id, param);
        if id.state != CmState::Connect {
            return Err(Errno::EINVAL);
        }
        if self.ib_state(no) != Some(IbState::MraReqSent) || data.len() > REP_DATA {
            let _ = self.send_rej(no, reason::CONSUMER_DEFINED, &[]);
            return Err(Errno::EINVAL);
        }
        if let Some(conn) = self.conn(no) {
            conn.local_qp_num = wire.qp_num;
            conn.state = IbState::RepSent;
        }
        let ece = self.id(no)?.answered_ece();
        let private_data = padded(data, REP_DATA);
        self.send_and_wait(no, Body::Rep(Box::new(Rep { param: wire, ece, private_data })));
        Ok(())
    }

    /// `rdma_reject` and `rdma_reject_ece`; a lookup has no reject reasons.
    pub(crate) fn reject(&mut self, no: IdNo, reason: RejectReason, data: &[u8]) -> Result<(), Errno> {
        if self.is_on_iwarp(no)? {
            return self.iw_reject(no, data);
        }
        let id = self.id(no)?;
        if id.conn.is_some() && id.is_datagram() {
            return self.reject_lookup(no, data);
        }
        if id.conn.is_none() || data.len() > REJ_DATA {
            return Err(Errno::EINVAL);
        }
        let reason = match reason {
            RejectReason::Consumer => reason::CONSUMER_DEFINED,
            RejectReason::Ece => reason::VENDOR_OPTION_NOT_SUPPORTED,
        };
        self.send_rej(no, reason, data)
    }

    /// `rdma_set_local_ece`: stores the library's own ECE; only without a QP.
    pub(crate) fn set_ece(&mut self, no: IdNo, ece: Ece) -> Result<(), Errno> {
        let id = self.id(no)?;
        if id.qp.is_some() || ece.vendor_id == 0 {
            return Err(Errno::EINVAL);
        }
        id.local_ece = ece;
        Ok(())
    }

    /// `rdma_get_remote_ece`: only for applications with their own QP.
    pub(crate) fn remote_ece(&self, no: IdNo) -> Result<Ece, Errno> {
        let id = self.ids.get(&no).ok_or(Errno::ENOENT)?;
        if id.qp.is_some() { Err(Errno::EINVAL) } else { Ok(id.remote_ece) }
    }

    /// `rdma_establish`.
    pub(crate) fn establish(&mut self, no: IdNo) -> Result<(), Errno> {
        let iwarp = self.is_on_iwarp(no)?;
        let id = self.id(no)?;
        if id.qp.is_some() {
            return Err(Errno::EINVAL);
        }
        if iwarp {
            // It is an accept without parameters, which fails and so rejects the peer (`cma_accept_iw`).
            let _ = self.iw_reject(no, &[]);
            return Err(Errno::EINVAL);
        }
        if id.conn.is_some() && id.is_datagram() {
            return self.answer_lookup(no, None, &[]);
        }
        self.confirm(no)
    }

    /// Sends RTU; in a wrong state the kernel rejects the peer (`cma_rep_recv`, `rdma_accept`).
    pub(crate) fn confirm(&mut self, no: IdNo) -> Result<(), Errno> {
        if self.id(no)?.state != CmState::Connect {
            return Err(Errno::EINVAL);
        }
        if self.ib_state(no) != Some(IbState::MraRepSent) {
            let _ = self.send_rej(no, reason::CONSUMER_DEFINED, &[]);
            return Err(Errno::EINVAL);
        }
        self.set_ib_state(no, IbState::Established);
        self.send(no, Body::Rtu);
        Ok(())
    }

    /// `rdma_disconnect`: sends DREQ, or DREP as an answer; returns 0 in most states even without either.
    pub(crate) fn disconnect(&mut self, no: IdNo) -> Result<(), Errno> {
        let iwarp = self.is_on_iwarp(no)?;
        let id = self.id(no)?;
        if !id.verbs {
            return Err(Errno::EINVAL);
        }
        if iwarp {
            return self.iw_disconnect(no);
        }
        let listens_on_device = id.state == CmState::Listen && id.device.is_some();
        let connects = id.conn.is_some();
        self.qp_of_id_to_error(no);
        if !connects && !listens_on_device {
            return Err(Errno::EINVAL);
        }
        if !self.send_dreq(no) {
            self.send_drep(no);
        }
        Ok(())
    }

    /// Moves the QP through INIT, RTR and RTS for an accept, with the attributes of the kernel and the depths of the library.
    fn ready_to_accept(&mut self, no: IdNo) -> Result<(), Errno> {
        let (mut ready, depths) = (self.query_ready(no)?, self.id(no)?.depths);
        ready.answers_reads &= depths.responder_resources > 0;
        self.move_ready(&ready, depths.initiator_depth)
    }

    /// Queries the attributes of INIT, RTR and RTS (`rdma_init_qp_attr`). The id's own ACK timeout replaces that of the
    /// path.
    pub(crate) fn query_ready(&mut self, no: IdNo) -> Result<Ready, Errno> {
        let id = self.id(no)?;
        let qp = id.qp.ok_or(Errno::EINVAL)?;
        let conn = id.conn.as_ref().filter(|conn| conn.state.gives_ready());
        let conn = conn.ok_or(Errno::EINVAL)?;
        let peer = conn.remote_host.map(|host| (host, conn.remote_qp_num));
        let timeout = id.options.ack_timeout.unwrap_or(conn.timeout.0);
        let attrs = (conn.retry_count, conn.rnr_retry_count, timeout);
        Ok(Ready { qp, peer, attrs, answers_reads: conn.peer_starts > 0 })
    }

    /// Changes the QP, as accept and the reader of a REP do. `depth` is the number of reads and atomic operations that the peer
    /// answers at a time. An ACK timeout of more than 5 bits makes the move to RTS fail (`rxe_qp_chk_attr`).
    pub(crate) fn move_ready(&mut self, ready: &Ready, depth: u8) -> Result<(), Errno> {
        let &Ready { qp, peer, attrs, answers_reads } = ready;
        self.queues.modify(qp, PairState::Init)?;
        self.queues.modify(qp, PairState::Rtr)?;
        self.queues.set_peer(qp, peer, attrs, depth, answers_reads)?;
        self.queues.modify(qp, PairState::Rts)?;
        self.run_inbound(qp);
        Ok(())
    }

    pub(crate) fn qp_of_id_to_error(&mut self, no: IdNo) {
        if let Some(qp) = self.ids.get(&no).and_then(|id| id.qp) {
            self.qp_to_error(qp);
        }
    }
}
