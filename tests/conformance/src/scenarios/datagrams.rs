//! Datagrams: behaviours 70 to 74. A connect looks an address up (SIDR); nothing is connected.

use std::net::IpAddr;
use std::thread;

use cmid_harness::failure::{ensure, fails, same, why};
use cmid_harness::fixture::{DeviceOf, EndOf, MrOf, PdOf, Side, pdl};
use cmid_harness::{Check, Env, Failure, Fixture, test_caps};
use cmid_proto::datapath::{
    AhAttr, Caps, Completion, GRH_LEN, GlobalRoute, Length, OfPd, PostReason, QpState, SendWr, To, WcOpcode, WcStatus,
    prelude::*,
};
use cmid_proto::memory::Access;
use cmid_proto::{
    Call, CmEvent, Datagram, Errno, Error, IdKey, PortSpace, ReceivedParam, RefuseReason, Refused, RejectReason, Time,
};

use super::memory::{LEN, contents, deregister, register, used};
use super::timeouts::{SENT_IN_VAIN, takes};

type AhOf<L> = <DeviceOf<L> as DataPath>::Ah;

/// The key that the connection manager gives to all its datagram QPs (`RDMA_UDP_QKEY`).
const QKEY: u32 = 0x0123_4567;
/// Statuses of SIDR, as UNREACHABLE carries them.
const UNSUPPORTED: i32 = 1;
const REJECTED: i32 = 2;

fn listen<L: Env>(b: &mut Fixture<'_, L>) -> Check<IdKey> {
    b.listen_in(PortSpace::Udp, 10)
}

fn resolved<L: Env>(b: &mut Fixture<'_, L>) -> Check<IdKey> {
    b.resolved_in(PortSpace::Udp, b.address)
}

/// A client id that has looked the server up, and the server's id for it.
fn asked<L: Env>(b: &mut Fixture<'_, L>) -> Check<(IdKey, IdKey)> {
    let client = resolved(b)?;
    b.connect(client, &[])?;
    let server = b.expect_any(Side::Server, CmEvent::ConnectRequest)?.id;
    Ok((client, server))
}

fn unreachable<L: Env>(b: &mut Fixture<'_, L>, client: IdKey, status: i32) -> Check {
    b.expect(Side::Client, client, CmEvent::Unreachable, status, pdl::ANSWER).map(drop)
}

pub(super) fn behaviour_70_a_lookup_where_nobody_listens<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let client = resolved(b)?;
    b.attach_qp(Side::Client, client)?;
    b.qp_is(Side::Client, client, QpState::RTS)?;
    b.connect(client, &[])?;
    unreachable(b, client, UNSUPPORTED)
}

pub(super) fn behaviour_71_a_lookup_is_rejected<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    listen(b)?;
    let client = resolved(b)?;
    let param = b.param();
    fails("181 bytes", b.client.drive().connect(client, param, &[1; 181], Time::NEVER), Errno::EINVAL)?;
    let connect = Call::Connect { id: client, param };
    same("and on the bare device", b.client.bare(&connect, &[1; 181]), Err(Errno::EINVAL))?;
    b.connect(client, &[3; 180])?;
    let request = b.expect_any(Side::Server, CmEvent::ConnectRequest)?;
    same("the request's private data", &request.private_data[..], &[3; pdl::LOOKUP])?;
    let server = request.id;
    fails("137 bytes", b.server.drive().reject(server, &[1; 137]), Errno::EINVAL)?;
    let reject = Call::Reject { id: server, reason: RejectReason::Consumer };
    same("and on the bare device", b.server.bare(&reject, &[1; 137]), Err(Errno::EINVAL))?;
    b.server.drive().reject(server, &[5; 136])?;
    unreachable(b, client, REJECTED)
}

pub(super) fn behaviour_72_a_lookup_is_answered<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    listen(b)?;
    let (client, server) = asked(b)?;
    let pds = (b.pd(Side::Client)?, b.pd(Side::Server)?);
    // Of the two messages one is sent inline.
    let caps = Caps { max_inline: 32, ..test_caps() };
    let ends = (b.end(Side::Client, client, &pds.0, caps)?, b.end(Side::Server, server, &pds.1, caps)?);
    same("the QPs", (ends.0.qp.state()?, ends.1.qp.state()?), (QpState::RTS, QpState::RTS))?;
    let param = b.param();
    fails("137 bytes", b.server.drive().accept(server, param, &[1; 137], Time::NEVER), Errno::EINVAL)?;
    b.accept(server, &[5; 136])?;
    let answer = b.expect(Side::Client, client, CmEvent::Established, 0, pdl::ANSWER)?;
    same("the answer's private data", &answer.private_data[..], &[5; pdl::ANSWER])?;
    let found = answer.datagram.ok_or_else(|| Failure("ESTABLISHED does not say where to send".into()))?;
    same("the QP and its key", (found.qp_num, found.qkey), (ends.1.qp.num(), QKEY))?;
    same("the path", (found.path.port_num, found.path.dlid, answer.param), (1, 0, ReceivedParam::default()))?;
    let route = found.path.grh.map(|route| (IpAddr::from(route.dgid).to_canonical(), route.hop_limit));
    same("its route", route, Some((b.net().server, 64)))?;
    b.quiet(Side::Server)?;
    let (asks, rights) = ((0..=255).cycle().take(LEN).collect(), Access::LOCAL_WRITE);
    let mrs = (register(&pds.0, asks, rights)?, register(&pds.1, vec![0xee; LEN], rights)?);
    let mut talk = Talk { pds, ends, mrs, found };
    talk.there_and_back(b)?;
    talk.what_nobody_wants_is_lost(b)?;
    talk.what_is_of_another_kind_is_refused(b)?;
    fails("accept again", b.server.drive().accept(server, param, &[], Time::NEVER), Errno::EINVAL)?;
    let again = b.server.bare(&Call::Accept { id: server, param }, &[]);
    same("and on the bare device", again, Err(Errno::EINVAL))?;
    same("the QP after that", talk.ends.1.qp.state()?, QpState::ERR)?;
    talk.close(b)
}

/// Both ends of a lookup that was answered.
struct Talk<L: Env> {
    pds: (PdOf<L>, PdOf<L>),
    ends: (EndOf<L>, EndOf<L>),
    mrs: (MrOf<L>, MrOf<L>),
    found: Datagram,
}

impl<L: Env> Talk<L> {
    /// The client sends to a QP with a key.
    fn send(&mut self, ah: &AhOf<L>, len: usize, qp_num: u32, qkey: u32) -> Result<(), PostReason> {
        why(self.ends.0.qp.post_send(SendWr::send_to(3, self.mrs.0.sge(0..len), To { ah, qp_num, qkey })))
    }

    /// The answers go to the address in the header of what was received.
    fn there_and_back(&mut self, b: &mut Fixture<'_, L>) -> Check {
        let ah = self.pds.0.create_ah(&self.found.path)?;
        let mut last = Completion::default();
        for len in [34, 3, 34, 3] {
            self.ends.1.qp.post_recv(1, self.mrs.1.sge(8..8 + GRH_LEN + 64))?;
            self.ends.0.qp.post_recv(2, self.mrs.0.sge(300..300 + GRH_LEN + 3))?;
            self.send(&ah, len, self.found.qp_num, QKEY).map_err(PostReason::errno)?;
            let (client, server) = (&mut self.ends.0, &mut self.ends.1);
            b.ends(client, 3, WcStatus::SUCCESS)?;
            last = b.done(server)?;
            same("the receive", (last.wr_id, last.status, last.opcode), (1, WcStatus::SUCCESS, WcOpcode::RECV))?;
            same("its length", (last.byte_len as usize, last.has_grh()), (GRH_LEN + len, true))?;
            same("its QPs", (last.qp_num, last.src_qp), (server.qp.num(), client.qp.num()))?;
            same("the message", &contents(&self.mrs.1)?[8 + GRH_LEN..][..4], &[0, 1, 2, 3])?;
            let back = self.pds.1.create_ah_from(&last, &self.mrs.1, 8)?;
            let to = To { ah: &back, qp_num: last.src_qp, qkey: QKEY };
            server.qp.post_send(SendWr::send_to(4, self.mrs.1.sge(9 + GRH_LEN..12 + GRH_LEN), to))?;
            b.ends(server, 4, WcStatus::SUCCESS)?;
            let done = b.done(client)?;
            same("the answer", (done.wr_id, done.byte_len as usize, done.src_qp), (2, GRH_LEN + 3, server.qp.num()))?;
            same("its bytes", &contents(&self.mrs.0)?[300 + GRH_LEN..][..3], &[1, 2, 3])?;
        }
        self.no_way_back(b, &last)
    }

    /// Without a header, and by that of another address, there is no path to answer by.
    fn no_way_back(&mut self, b: &Fixture<'_, L>, received: &Completion) -> Check {
        let (pd, mut header) = (&self.pds.1, register(&self.pds.1, vec![0; GRH_LEN], Access::empty())?);
        let back = |completion, mr: &MrOf<L>, offset| {
            pd.create_ah_from(completion, mr, offset).map(drop).map_err(|error| error.errno())
        };
        for beyond in [LEN - GRH_LEN + 1, usize::MAX] {
            same("beyond the end", back(received, &self.mrs.1, beyond), Err(Errno::EINVAL))?;
        }
        same("zeros", back(received, &header, 0), Err(Errno::EPROTONOSUPPORT))?;
        let none = Completion::default();
        same("nothing received", (none.has_grh(), back(&none, &header, 0)), (false, Err(Errno::EINVAL)))?;
        header.write(0, &contents(&self.mrs.1)?[8..8 + GRH_LEN])?;
        same("a copy of the header", back(received, &header, 0), Ok(()))?;
        let IpAddr::V4(elsewhere) = b.net().no_rdma else { return Err(Failure("it is IPv4".into())) };
        header.write(GRH_LEN - 4, &elsewhere.octets())?;
        ensure(back(received, &header, 0).is_err(), || "sent to an address of no device".into())?;
        deregister(header).map(drop)
    }

    /// A wrong key, a wrong number: nothing arrives, and the sender gets no error.
    fn what_nobody_wants_is_lost(&mut self, b: &mut Fixture<'_, L>) -> Check {
        self.ends.1.qp.post_recv(5, self.mrs.1.sge(0..100))?;
        let ah = self.pds.0.create_ah(&self.found.path)?;
        for (qp_num, qkey) in [(self.found.qp_num, QKEY + 1), (self.found.qp_num + 1000, QKEY)] {
            self.send(&ah, 3, qp_num, qkey).map_err(PostReason::errno)?;
            b.ends(&mut self.ends.0, 3, WcStatus::SUCCESS)?;
        }
        thread::sleep(b.env.quiet());
        same("a receive", self.ends.1.cq.poll_one()?.map(|done| done.wr_id), None)
    }

    /// What would make a provider follow a handle that is missing, or of another PD.
    fn what_is_of_another_kind_is_refused(&mut self, b: &mut Fixture<'_, L>) -> Check {
        let (qp_num, ah) = (self.found.qp_num, self.pds.0.create_ah(&self.found.path)?);
        let foreign = self.pds.1.create_ah(&self.found.path)?;
        same("of another PD", self.send(&foreign, 8, qp_num, QKEY), Err(PostReason::OtherPd(OfPd::Ah)))?;
        let beyond = PostReason::OutOfRange { len: Length::new(LEN) };
        same("beyond the end", self.send(&ah, LEN + 1, qp_num, QKEY), Err(beyond))?;
        let (qp, mr) = (&mut self.ends.0.qp, &self.mrs.0);
        let remote = self.mrs.1.remote(0);
        for wr in [
            SendWr::send(1, mr.sge(0..8)),
            SendWr::write(1, mr.sge(0..8), remote),
            SendWr::read(1, mr.sge(0..8), remote),
        ] {
            same("without a peer", why(qp.post_send(wr)), Err(PostReason::IsDatagram))?;
        }
        b.listen()?;
        let mut connected = b.join(&self.pds.0, &self.pds.1)?;
        let send = SendWr::send_to(1, mr.sge(0..8), To { ah: &ah, qp_num, qkey: QKEY });
        same("to one that has a peer", why(connected.0.qp.post_send(send)), Err(PostReason::IsConnected))?;
        b.part(connected)?;
        let route = self.found.path.grh.unwrap_or_default();
        for path in [
            AhAttr { port_num: 9, ..self.found.path },
            AhAttr { grh: None, ..self.found.path },
            AhAttr { grh: Some(GlobalRoute { sgid_index: 200, ..route }), ..self.found.path },
        ] {
            let refused = self.pds.0.create_ah(&path).map(drop).map_err(|error| error.errno());
            let errnos = [Errno::EINVAL, Errno::ENOENT, Errno::ENODATA].map(Err);
            ensure(errnos.contains(&refused), || format!("{refused:?} for {path:?}"))?;
        }
        Ok(())
    }

    /// An address handle may go before its datagram is complete, and outlives its QP, id and device.
    fn close(mut self, b: &mut Fixture<'_, L>) -> Check {
        for _ in 0..20 {
            let early = self.pds.0.create_ah(&self.found.path)?;
            self.send(&early, 8, self.found.qp_num, QKEY).map_err(PostReason::errno)?;
            drop(early);
            let done = b.done(&mut self.ends.0)?;
            same("whatever its status", done.wr_id, 3)?;
            if !done.is_success() {
                break;
            }
        }
        let ah = self.pds.0.create_ah(&self.found.path)?;
        b.part(self.ends)?;
        deregister(self.mrs.0)?;
        deregister(self.mrs.1)?;
        used("an address handle", &self.pds.0, 1)?;
        b.restart(Side::Client)?;
        thread::scope(|scope| scope.spawn(|| drop(ah)).join()).map_err(|_| Failure("it panicked".into()))?;
        used("without it", &self.pds.0, 0)
    }
}

/// There is no connection to end. The core refuses the call, where librdmacm breaks the QP and reports success.
pub(super) fn behaviour_72_a_disconnect_is_refused<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    listen(b)?;
    let (client, server) = asked(b)?;
    b.attach_qp(Side::Client, client)?;
    b.accept(server, &[])?;
    b.expect(Side::Client, client, CmEvent::Established, 0, pdl::ANSWER)?;
    for (side, id) in [(Side::Client, client), (Side::Server, server)] {
        match b.endpoint(side).drive().disconnect(id, Time::NEVER) {
            Err(Error::Refused(Refused::Request { reason: RefuseReason::NotConnected, .. })) => {}
            other => return Err(Failure(format!("disconnect: {other:?}, expected a refusal"))),
        }
    }
    b.qp_is(Side::Client, client, QpState::RTS)?;
    for (side, id) in [(Side::Client, client), (Side::Server, server)] {
        same("on the bare device", b.endpoint(side).bare(&Call::Disconnect { id }, &[]), Ok(()))?;
        b.quiet(side)?;
    }
    b.qp_is(Side::Client, client, QpState::ERR)
}

/// Past the core: the accept that fails has rejected the peer.
pub(super) fn behaviour_72_what_the_kernel_does_about_too_long_an_answer<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    listen(b)?;
    let (client, server) = asked(b)?;
    let accept = Call::Accept { id: server, param: b.param() };
    same("137 bytes", b.server.bare(&accept, &[1; 137]), Err(Errno::EINVAL))?;
    unreachable(b, client, REJECTED)
}

pub(super) fn behaviour_73_a_full_backlog_answers_at_once<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let listener = b.listen_in(PortSpace::Udp, 1)?;
    let (first, second) = (resolved(b)?, resolved(b)?);
    b.frozen = Some(Side::Server);
    b.connect(first, &[])?;
    b.quiet(Side::Client)?;
    b.connect(second, &[])?;
    unreachable(b, second, REJECTED)?;
    b.destroy(Side::Server, listener)?;
    b.frozen = None;
    unreachable(b, first, REJECTED)
}

pub(super) fn behaviour_73_a_lookup_that_is_destroyed_is_rejected<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    listen(b)?;
    let (client, server) = asked(b)?;
    b.destroy(Side::Server, server)?;
    unreachable(b, client, REJECTED)
}

pub(super) fn behaviour_74_the_server_is_silent<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    listen(b)?;
    let (client, server) = asked(b)?;
    takes(b, SENT_IN_VAIN, |b| {
        let channel = b.client.channel;
        let event = b.next(Side::Client, channel, &CmEvent::Unreachable)?;
        let seen = (event.id, event.cm(), event.status);
        same("client", seen, (client, Some(CmEvent::Unreachable), -Errno::ETIMEDOUT.0))
    })?;
    b.accept(server, &[])?;
    b.quiet(Side::Client)?;
    b.quiet(Side::Server)
}
