//! Datagrams: behaviours 70 to 74. A connect looks an address up (SIDR); nothing is connected.

use cmid_harness::failure::{fails, same};
use cmid_harness::fixture::{Side, pdl};
use cmid_harness::{Check, Env, Failure, Fixture};
use cmid_proto::datapath::QpState;
use cmid_proto::{Call, CmEvent, Errno, Error, IdKey, PortSpace, RefuseReason, Refused, RejectReason, Time};

use super::timeouts::{SENT_IN_VAIN, takes};

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
    b.attach_qp(Side::Client, client)?;
    b.attach_qp(Side::Server, server)?;
    let param = b.param();
    fails("137 bytes", b.server.drive().accept(server, param, &[1; 137], Time::NEVER), Errno::EINVAL)?;
    b.accept(server, &[5; 136])?;
    let answer = b.expect(Side::Client, client, CmEvent::Established, 0, pdl::ANSWER)?;
    same("the answer's private data", &answer.private_data[..], &[5; pdl::ANSWER])?;
    let found = answer.datagram.ok_or_else(|| Failure("ESTABLISHED does not say where to send".into()))?;
    same("the key", found.qkey, QKEY)?;
    same("a QP number", found.qp_num != 0, true)?;
    b.quiet(Side::Server)?;
    fails("accept again", b.server.drive().accept(server, param, &[], Time::NEVER), Errno::EINVAL)?;
    let again = b.server.bare(&Call::Accept { id: server, param }, &[]);
    same("and on the bare device", again, Err(Errno::EINVAL))
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
