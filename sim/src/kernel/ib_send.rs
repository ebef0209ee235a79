//! Transmission of messages by the IB CM, once or until answered, and the end of connections.

use std::net::IpAddr;
use std::time::Duration;

use cmid_proto::Errno;

use crate::fabric::config::TRANSMISSIONS;
use crate::fabric::timers::TimerKey;
use crate::fabric::world::World;
use crate::index::{CommId, HostNo, IdNo};
use crate::kernel::conn::{Conn, IbState, Listed, Outstanding};
use crate::kernel::due::Due;
use crate::kernel::wire::{Body, Head, Message, REJ_DATA, SidrAnswer, padded, reason, sidr};

impl World {
    pub(crate) fn conn(&mut self, no: IdNo) -> Option<&mut Conn> {
        self.ids.get_mut(&no)?.conn.as_mut()
    }

    pub(crate) fn ib_state(&self, no: IdNo) -> Option<IbState> {
        Some(self.ids.get(&no)?.conn.as_ref()?.state)
    }

    pub(crate) fn set_ib_state(&mut self, no: IdNo, state: IbState) {
        if let Some(conn) = self.conn(no) {
            conn.state = state;
        }
    }

    /// Sends a message once.
    pub(crate) fn send(&mut self, no: IdNo, body: Body) {
        if let Some(message) = self.message(no, body) {
            self.transmit(message);
        }
    }

    /// Sends a message until it is answered or cancelled.
    pub(crate) fn send_and_wait(&mut self, no: IdNo, body: Body) {
        let Some(message) = self.message(no, body) else { return };
        self.transmit(message.clone());
        let Some(interval) = self.conn(no).map(|conn| conn.interval) else { return };
        let timer = self.timers.arm(self.now.after(interval), Due::Unanswered { id: no });
        if let Some(conn) = self.conn(no) {
            let before = conn.outstanding.replace(Outstanding { message, sent: 1, interval, timer });
            if let Some(before) = before {
                self.timers.cancel(before.timer);
            }
        }
    }

    /// Ends retransmission after an answer (`ib_cancel_mad`).
    pub(crate) fn answered(&mut self, no: IdNo) {
        if let Some(outstanding) = self.conn(no).and_then(|conn| conn.outstanding.take()) {
            self.timers.cancel(outstanding.timer);
        }
    }

    /// Extends the timeout after an MRA of the peer (`ib_modify_mad`).
    pub(crate) fn wait_longer(&mut self, no: IdNo) {
        let Some(interval) = self.conn(no).map(|conn| conn.timeout.mra_interval()) else { return };
        let timer = self.timers.arm(self.now.after(interval), Due::Unanswered { id: no });
        let obsolete = match self.conn(no).and_then(|conn| conn.outstanding.as_mut()) {
            Some(outstanding) => {
                outstanding.interval = interval;
                std::mem::replace(&mut outstanding.timer, timer)
            }
            None => timer,
        };
        self.timers.cancel(obsolete);
    }

    /// Handles a timeout: retransmits, or gives up.
    pub(crate) fn unanswered(&mut self, no: IdNo) {
        if self.ids.get(&no).is_some_and(|id| id.iw.is_some()) {
            return self.iw_unanswered(no);
        }
        let now = self.now;
        let Some(outstanding) = self.ids.get_mut(&no).and_then(|id| id.conn.as_mut()?.outstanding.as_mut()) else {
            return;
        };
        if outstanding.sent >= TRANSMISSIONS {
            self.answered(no);
            self.gave_up(no);
            return;
        }
        outstanding.sent += 1;
        outstanding.timer = self.timers.arm(now.after(outstanding.interval), Due::Unanswered { id: no });
        let message = outstanding.message.clone();
        self.counters.retransmitted += 1;
        self.transmit(message);
    }

    /// Ends the connection and starts its time wait (`cm_enter_timewait`).
    pub(crate) fn enter_time_wait(&mut self, no: IdNo) {
        self.forget_remote(no);
        let Some(span) = self.conn(no).map(|conn| conn.timeout.time_wait()) else { return };
        let timer = self.arm_of_span(span, Due::TimeWaitOver { id: no });
        if let Some(conn) = self.conn(no) {
            conn.state = IbState::Timewait;
            conn.time_wait = Some(timer);
        }
    }

    /// Arms a timer of a connection. Those in one tick of the kernel's timer wheel end newest first
    /// ([`Config::time_waits_of_one_tick`](crate::Config::time_waits_of_one_tick)).
    pub(crate) fn arm_of_span(&mut self, span: Duration, over: Due) -> TimerKey {
        let before = self.last_of_span.get(&span).copied().filter(|&timer| timer.due() > self.now);
        let timer = match before {
            Some(before) => {
                let chance = self.counters.time_waits_in_turn;
                self.counters.time_waits_in_turn += 1;
                let together = self.config.time_waits_of_one_tick.checked_shr(chance).is_some_and(|bits| bits & 1 == 1);
                if together {
                    self.timers.arm_before(before, over)
                } else {
                    self.timers.arm(self.now.after(span), over)
                }
            }
            None => self.timers.arm(self.now.after(span), over),
        };
        self.last_of_span.insert(span, timer);
        timer
    }

    /// Ends the connection without a time wait (`cm_reset_to_idle`).
    pub(crate) fn reset_to_idle(&mut self, no: IdNo) {
        self.forget_remote(no);
        self.set_ib_state(no, IbState::Idle);
    }

    /// The key of a peer's QP in the tables of connections: the number is unique at its device.
    pub(crate) fn remote_qp(&self, from: HostNo, ip: IpAddr, qp_num: u32) -> (HostNo, u8, u32) {
        (from, self.device_at(from, Some(ip)).index, qp_num)
    }

    /// Enters the peer's communication id and QP number into the host's tables of connections; returns a conflicting
    /// entry (`cm_insert_remote_id`, `cm_insert_remote_qpn`).
    pub(crate) fn remember_remote(&mut self, no: IdNo, at: HostNo, head: &Head, qp_num: u32) -> Listed {
        let (from, comm) = (head.from, head.from_comm);
        let qp = self.remote_qp(from, head.from_ip, qp_num);
        let Some(host) = self.hosts.get_mut(at.0) else { return Listed::Known };
        if host.remote_ids.contains_key(&(from, comm)) {
            return Listed::Known;
        }
        if let Some(&owner) = host.remote_qps.get(&qp) {
            return Listed::Stale(owner);
        }
        host.remote_ids.insert((from, comm), no);
        host.remote_qps.insert(qp, no);
        if let Some(conn) = self.conn(no) {
            conn.remote_host = Some(from);
            conn.remote_comm = Some(comm);
            conn.remote_qp_num = qp_num;
        }
        Listed::New
    }

    /// Enters the peer's communication id of a lookup (`cm_insert_remote_sidr`).
    pub(crate) fn remember_lookup(&mut self, no: IdNo, at: HostNo, from: HostNo, comm: CommId) {
        let Some(host) = self.hosts.get_mut(at.0) else { return };
        host.remote_ids.insert((from, comm), no);
        if let Some(conn) = self.conn(no) {
            conn.remote_host = Some(from);
            conn.remote_comm = Some(comm);
        }
    }

    /// Removes the connection from these tables (`cm_remove_remote`).
    fn forget_remote(&mut self, no: IdNo) {
        let Some(id) = self.ids.get(&no) else { return };
        let Some(conn) = &id.conn else { return };
        let (Some(from), Some(comm)) = (conn.remote_host, conn.remote_comm) else { return };
        let qp = self.remote_qp(from, conn.remote_ip, conn.remote_qp_num);
        let Some(host) = self.hosts.get_mut(id.host.0) else { return };
        if host.remote_ids.get(&(from, comm)) == Some(&no) {
            host.remote_ids.remove(&(from, comm));
        }
        if host.remote_qps.get(&qp) == Some(&no) {
            host.remote_qps.remove(&qp);
        }
    }

    /// Sends a REJ if the protocol state permits it (`cm_send_rej_locked`). Does not cancel an outstanding message of
    /// this side, which makes a later destroy wait.
    pub(crate) fn send_rej(&mut self, no: IdNo, reason: i32, private_data: &[u8]) -> Result<(), Errno> {
        let state = self.ib_state(no).ok_or(Errno::EINVAL)?;
        match state {
            IbState::ReqSent | IbState::MraReqRcvd | IbState::MraReqSent | IbState::MraRepSent => {
                self.reset_to_idle(no);
            }
            IbState::RepSent | IbState::MraRepRcvd => self.enter_time_wait(no),
            IbState::Idle
            | IbState::Established
            | IbState::DreqSent
            | IbState::DreqRcvd
            | IbState::Timewait
            | IbState::SidrReqSent
            | IbState::SidrReqRcvd => return Err(Errno::EINVAL),
        }
        let of_req = state == IbState::MraReqSent;
        self.send(no, Body::Rej { of_req, reason, private_data: padded(private_data, REJ_DATA) });
        Ok(())
    }

    /// Sends a DREQ (`cm_send_dreq_locked`); false unless established.
    pub(crate) fn send_dreq(&mut self, no: IdNo) -> bool {
        if self.ib_state(no) != Some(IbState::Established) {
            return false;
        }
        let qp_num = self.conn(no).map_or(0, |conn| conn.remote_qp_num);
        self.set_ib_state(no, IbState::DreqSent);
        self.send_and_wait(no, Body::Dreq { qp_num });
        true
    }

    /// Sends a DREP (`cm_send_drep_locked`); false unless a DREQ was received.
    pub(crate) fn send_drep(&mut self, no: IdNo) -> bool {
        if self.ib_state(no) != Some(IbState::DreqRcvd) {
            return false;
        }
        self.enter_time_wait(no);
        self.send(no, Body::Drep);
        true
    }

    /// Sends the messages for the end of an id (`cm_destroy_id`).
    pub(crate) fn destroy_conn(&mut self, no: IdNo) {
        let Some(state) = self.ib_state(no) else { return };
        match state {
            IbState::ReqSent | IbState::MraReqRcvd => {
                self.answered(no);
                let _ = self.send_rej(no, reason::TIMEOUT, &[]);
            }
            IbState::RepSent | IbState::MraRepRcvd => {
                self.answered(no);
                let _ = self.send_rej(no, reason::CONSUMER_DEFINED, &[]);
            }
            IbState::MraReqSent | IbState::MraRepSent => {
                let _ = self.send_rej(no, reason::CONSUMER_DEFINED, &[]);
            }
            IbState::Established => {
                self.send_dreq(no);
                self.answered(no);
            }
            IbState::DreqSent | IbState::SidrReqSent => self.answered(no),
            IbState::SidrReqRcvd => {
                let _ = self.send_sidr_rep(no, SidrAnswer::Refused(sidr::REJECT), &[]);
            }
            IbState::DreqRcvd => {
                self.send_drep(no);
            }
            IbState::Timewait | IbState::Idle => {}
        }
        if self.conn(no).is_some_and(|conn| conn.outstanding.is_some()) {
            // The kernel waits here until the message has run out of retries.
            self.counters.stalls += 1;
        }
        self.forget_remote(no);
        let Some(conn) = self.ids.get_mut(&no).and_then(|id| id.conn.take()) else { return };
        if let Some(outstanding) = conn.outstanding {
            self.timers.cancel(outstanding.timer);
        }
        if let Some(timer) = conn.time_wait {
            self.timers.cancel(timer);
        }
        self.comms.remove(&conn.local_comm);
    }

    fn message(&self, no: IdNo, body: Body) -> Option<Message> {
        let id = self.ids.get(&no)?;
        let conn = id.conn.as_ref()?;
        let head = Head {
            from: id.host,
            from_ip: conn.local_ip,
            to_ip: conn.remote_ip,
            from_comm: conn.local_comm,
            to_comm: conn.remote_comm,
        };
        Some(Message { head, body })
    }
}
