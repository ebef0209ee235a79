//! Processing of messages and timeouts: protocol state × message (the handlers of `cm.c`), and the resulting events
//! for the application (`cma_ib_handler`).

use cmid_proto::{CmEvent, ConnParam, Errno, ReceivedParam};

use crate::fabric::world::World;
use crate::index::{HostNo, IdNo};
use crate::kernel::channel::Unread;
use crate::kernel::conn::{IbState, Listed};
use crate::kernel::id::CmState;
use crate::kernel::wire::{Body, Head, Message, REJ_DATA, Rep, padded, reason};

/// `-ETIMEDOUT`.
pub(crate) const TIMED_OUT: i32 = -110;

/// Events from the IB CM to the RDMA CM.
enum IbEvent {
    /// A REQ or REP was not answered.
    Unreachable,
    Answered(Box<Rep>),
    Ready,
    /// Requested or answered by the peer (0), or timed out (a negative errno).
    Disconnected(i32),
    Rejected(i32, Vec<u8>),
    TimeWaitOver,
}

/// Swaps the depths: the peer's initiator depth is this side's responder resources, and the reverse.
pub(crate) fn mirrored(sent: &ConnParam) -> ReceivedParam {
    ReceivedParam(ConnParam {
        responder_resources: sent.initiator_depth,
        initiator_depth: sent.responder_resources,
        ..*sent
    })
}

impl World {
    /// Processes a message that arrived at the device of host `at`.
    pub(crate) fn receive(&mut self, at: HostNo, message: Message) {
        let head = message.head;
        let known = self.addressee(at, &head, &message.body);
        match message.body {
            Body::Req(req) => self.receive_req(at, &head, &req),
            Body::Mra => self.receive_mra(known),
            Body::Rep(rep) => self.receive_rep(at, known, &head, rep),
            Body::Rtu => self.receive_rtu(known),
            Body::Rej { reason, private_data, .. } => self.receive_rej(known, reason, private_data),
            Body::Dreq { qp_num } => self.receive_dreq(at, known, &head, qp_num),
            Body::Drep => self.receive_drep(known),
            Body::SidrReq(req) => self.receive_sidr_req(at, &head, &req),
            Body::SidrRep { answer, private_data } => self.receive_sidr_rep(known, answer, private_data),
        }
    }

    /// The id that a message is for (`cm_acquire_id`, `cm_acquire_rejected_id`).
    fn addressee(&self, at: HostNo, head: &Head, body: &Body) -> Option<IdNo> {
        if let Body::Rej { reason: reason::TIMEOUT, .. } = body {
            // The sender does not know this side's communication id.
            return self.hosts.get(at.0)?.remote_ids.get(&(head.from, head.from_comm)).copied();
        }
        let no = *self.comms.get(&head.to_comm?)?;
        let id = self.ids.get(&no)?;
        let same_peer = match id.conn.as_ref()?.remote_comm {
            Some(comm) => comm == head.from_comm && !matches!(body, Body::Rej { of_req: true, .. }),
            None => body.is_first_answer(),
        };
        (id.host == at && same_peer).then_some(no)
    }

    fn receive_mra(&mut self, known: Option<IdNo>) {
        let Some(no) = known else { return };
        match self.ib_state(no) {
            Some(IbState::ReqSent) => self.set_ib_state(no, IbState::MraReqRcvd),
            Some(IbState::RepSent) => self.set_ib_state(no, IbState::MraRepRcvd),
            // Only the first MRA has an effect.
            Some(
                IbState::Idle
                | IbState::MraReqRcvd
                | IbState::MraReqSent
                | IbState::MraRepRcvd
                | IbState::MraRepSent
                | IbState::Established
                | IbState::DreqSent
                | IbState::DreqRcvd
                | IbState::Timewait
                | IbState::SidrReqSent
                | IbState::SidrReqRcvd,
            )
            | None => return,
        }
        self.wait_longer(no);
    }

    fn receive_rep(&mut self, at: HostNo, known: Option<IdNo>, head: &Head, rep: Box<Rep>) {
        let Some(no) = known else { return };
        match self.ib_state(no) {
            Some(IbState::ReqSent | IbState::MraReqRcvd) => {}
            // A duplicate: the RTU was lost, or is not sent yet.
            Some(IbState::Established) => return self.send(no, Body::Rtu),
            Some(IbState::MraRepSent) => return self.send(no, Body::Mra),
            Some(
                IbState::Idle
                | IbState::MraReqSent
                | IbState::RepSent
                | IbState::MraRepRcvd
                | IbState::DreqSent
                | IbState::DreqRcvd
                | IbState::Timewait
                | IbState::SidrReqSent
                | IbState::SidrReqRcvd,
            )
            | None => return,
        }
        match self.remember_remote(no, at, head, rep.param.qp_num) {
            Listed::New => {
                self.answered(no);
                if let Some(conn) = self.conn(no) {
                    (conn.rnr_retry_count, conn.peer_starts) = (rep.param.rnr_retry_count, rep.param.initiator_depth);
                    conn.timeout = conn.timeout.with_ack_delay();
                }
                self.set_ib_state(no, IbState::MraRepSent);
                self.ib_event(no, IbEvent::Answered(rep));
            }
            Listed::Known => {}
            Listed::Stale(live) => {
                self.refuse(at, head, reason::STALE_CONNECTION);
                self.send_dreq(live);
            }
        }
    }

    fn receive_rtu(&mut self, known: Option<IdNo>) {
        let Some(no) = known else { return };
        if matches!(self.ib_state(no), Some(IbState::RepSent | IbState::MraRepRcvd)) {
            self.confirmed(no);
        }
    }

    fn receive_rej(&mut self, known: Option<IdNo>, reason: i32, private_data: Vec<u8>) {
        let Some(no) = known else { return };
        match self.ib_state(no) {
            Some(
                IbState::ReqSent | IbState::MraReqRcvd | IbState::RepSent | IbState::MraRepRcvd | IbState::MraReqSent,
            ) => {
                self.answered(no);
                if reason == reason::STALE_CONNECTION {
                    self.enter_time_wait(no);
                } else {
                    self.reset_to_idle(no);
                }
            }
            Some(IbState::MraRepSent | IbState::DreqSent | IbState::Established) => {
                self.answered(no);
                self.enter_time_wait(no);
            }
            Some(
                IbState::Idle | IbState::DreqRcvd | IbState::Timewait | IbState::SidrReqSent | IbState::SidrReqRcvd,
            )
            | None => return,
        }
        self.ib_event(no, IbEvent::Rejected(reason, private_data));
    }

    fn receive_dreq(&mut self, at: HostNo, known: Option<IdNo>, head: &Head, qp_num: u32) {
        let Some(no) = known else {
            // The connection no longer exists. An answer lets the peer end its own.
            return self.transmit(Message { head: head.answer(at), body: Body::Drep });
        };
        if self.conn(no).is_none_or(|conn| conn.local_qp_num != qp_num) {
            return;
        }
        match self.ib_state(no) {
            Some(IbState::RepSent | IbState::MraRepRcvd | IbState::Established | IbState::DreqSent) => {
                self.answered(no);
                self.set_ib_state(no, IbState::DreqRcvd);
                self.ib_event(no, IbEvent::Disconnected(0));
            }
            Some(IbState::Timewait) => self.send(no, Body::Drep),
            // Dropped; the peer sends it again.
            Some(
                IbState::Idle
                | IbState::ReqSent
                | IbState::MraReqRcvd
                | IbState::MraReqSent
                | IbState::MraRepSent
                | IbState::DreqRcvd
                | IbState::SidrReqSent
                | IbState::SidrReqRcvd,
            )
            | None => {}
        }
    }

    fn receive_drep(&mut self, known: Option<IdNo>) {
        let Some(no) = known else { return };
        if matches!(self.ib_state(no), Some(IbState::DreqSent | IbState::DreqRcvd)) {
            self.answered(no);
            self.enter_time_wait(no);
            self.ib_event(no, IbEvent::Disconnected(0));
        }
    }

    /// Handles a last transmission without an answer (`cm_process_send_error`).
    pub(crate) fn gave_up(&mut self, no: IdNo) {
        match self.ib_state(no) {
            Some(IbState::ReqSent | IbState::MraReqRcvd | IbState::RepSent | IbState::MraRepRcvd) => {
                self.reset_to_idle(no);
                self.ib_event(no, IbEvent::Unreachable);
            }
            Some(IbState::DreqSent) => {
                self.enter_time_wait(no);
                self.ib_event(no, IbEvent::Disconnected(TIMED_OUT));
            }
            Some(IbState::SidrReqSent) => self.lookup_failed(no),
            // The state has changed since the transmission.
            Some(
                IbState::Idle
                | IbState::SidrReqRcvd
                | IbState::MraReqSent
                | IbState::MraRepSent
                | IbState::Established
                | IbState::DreqRcvd
                | IbState::Timewait,
            )
            | None => {}
        }
    }

    /// Ends a time wait: packets of the old connection cannot arrive any more (`cm_timewait_handler`).
    pub(crate) fn time_wait_over(&mut self, no: IdNo) {
        if self.ib_state(no) == Some(IbState::Timewait) {
            self.set_ib_state(no, IbState::Idle);
            self.ib_event(no, IbEvent::TimeWaitOver);
        }
    }

    /// `rdma_notify` with `IB_EVENT_COMM_EST`: data arrived before the RTU (`cm_establish`).
    pub(crate) fn notify(&mut self, no: IdNo) -> Result<(), Errno> {
        // `rdma_notify` succeeds for each id with an `iw_cm_id`, including a listener on a device. A wildcard listener
        // has none.
        let on_iwarp = self.is_on_iwarp(no)?;
        let id = self.id(no)?;
        let has_iw = id.iw.is_some() || (on_iwarp && id.state == CmState::Listen && id.device.is_some());
        if has_iw {
            return Ok(());
        }
        let id = self.id(no)?;
        match id.conn.as_ref().map(|conn| conn.state) {
            Some(IbState::RepSent | IbState::MraRepRcvd) => {
                self.confirmed(no);
                Ok(())
            }
            Some(IbState::Established) => Err(Errno::EISCONN),
            Some(
                IbState::Idle
                | IbState::ReqSent
                | IbState::MraReqRcvd
                | IbState::MraReqSent
                | IbState::MraRepSent
                | IbState::DreqSent
                | IbState::DreqRcvd
                | IbState::Timewait
                | IbState::SidrReqSent
                | IbState::SidrReqRcvd,
            )
            | None => Err(Errno::EINVAL),
        }
    }

    /// Establishes the connection: an RTU or data of the peer confirms that it has the answer.
    fn confirmed(&mut self, no: IdNo) {
        self.answered(no);
        self.set_ib_state(no, IbState::Established);
        self.ib_event(no, IbEvent::Ready);
    }

    /// Rejects a message of a peer without a connection here (`cm_issue_rej`).
    pub(crate) fn refuse(&mut self, at: HostNo, head: &Head, reason: i32) {
        let body = Body::Rej { of_req: head.to_comm.is_none(), reason, private_data: padded(&[], REJ_DATA) };
        self.transmit(Message { head: head.answer(at), body });
    }

    /// The RDMA CM's handling of an event (`cma_ib_handler`).
    fn ib_event(&mut self, no: IdNo, event: IbEvent) {
        let Some(id) = self.ids.get_mut(&no) else { return };
        let wanted = match event {
            IbEvent::TimeWaitOver => CmState::Disconnect,
            IbEvent::Unreachable
            | IbEvent::Answered(_)
            | IbEvent::Ready
            | IbEvent::Disconnected(_)
            | IbEvent::Rejected(..) => CmState::Connect,
        };
        if id.state != wanted {
            return;
        }
        let unread = match event {
            IbEvent::Unreachable => Unread::new(no, CmEvent::Unreachable, TIMED_OUT),
            IbEvent::Answered(rep) => Unread {
                param: ReceivedParam(ConnParam { retry_count: 0, ..*mirrored(&rep.param) }),
                ece: rep.ece,
                private_data: rep.private_data,
                ..Unread::new(no, CmEvent::ConnectResponse, 0)
            },
            IbEvent::Ready => Unread::new(no, CmEvent::Established, 0),
            IbEvent::Disconnected(status) => {
                id.state = CmState::Disconnect;
                Unread::new(no, CmEvent::Disconnected, status)
            }
            IbEvent::Rejected(reason, private_data) => {
                Unread { private_data, ..Unread::new(no, CmEvent::Rejected, reason) }
            }
            IbEvent::TimeWaitOver => Unread::new(no, CmEvent::TimewaitExit, 0),
        };
        self.report(unread);
    }

    /// Queues an event of an id (`ucma_event_handler`); drops it if the id is not accepted yet.
    pub(crate) fn report(&mut self, event: Unread) {
        let Some(id) = self.ids.get(&event.owner) else { return };
        if !id.uid {
            self.counters.unaccepted += 1;
            return;
        }
        let host = id.host;
        if let Some(file) = self.files.get_mut(&id.file) {
            file.push(event);
        }
        self.wake(host);
    }
}

#[cfg(test)]
mod tests;
