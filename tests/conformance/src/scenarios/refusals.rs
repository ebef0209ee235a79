//! Section "refusals": which side refuses, with which reason, and which requests are legal afterwards.

use std::net::SocketAddr;

use cmid_harness::failure::{fails, same};
use cmid_harness::fixture::pdl;
use cmid_harness::{Check, Env, Fixture, fixture::Side};
use cmid_proto::datapath::QpState;
use cmid_proto::{Call, CmEvent, ConnParam, Errno, PortSpace, RejectReason, State, Time};

/// Reasons of the IB CM, as REJECTED carries them in its status.
const INVALID_SERVICE_ID: i32 = 8;
const CONSUMER_DEFINED: i32 = 28;
const VENDOR_OPTIONS: i32 = 35;

pub(super) fn behaviour_11_no_listener<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let client = b.resolved()?;
    b.connect(client, &[])?;
    b.expect(Side::Client, client, CmEvent::Rejected, INVALID_SERVICE_ID, pdl::REJECTED)?;
    b.quiet(Side::Client)?;
    same("client", b.client.drive().core().state(client), Some(State::Failed))
}

pub(super) fn behaviour_12_listener_on_another_address<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let (other, channel) = (SocketAddr::new(b.net().client, b.address.port()), b.server.channel);
    let drive = b.server.drive();
    let id = drive.create_id(Some(channel), PortSpace::Tcp)?;
    drive.bind(id, other)?;
    drive.listen(id, 10)?;
    let client = b.resolved()?;
    b.connect(client, &[])?;
    b.expect(Side::Client, client, CmEvent::Rejected, CONSUMER_DEFINED, pdl::REJECTED).map(drop)
}

pub(super) fn behaviour_13_reject_with_private_data<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    b.listen()?;
    let client = b.resolved()?;
    b.attach_qp(Side::Client, client)?;
    b.connect(client, &[])?;
    let server = b.expect_any(Side::Server, CmEvent::ConnectRequest)?.id;
    fails("reject with 149 bytes", b.server.drive().reject(server, &[1; 149]), Errno::EINVAL)?;
    let reject = Call::Reject { id: server, reason: RejectReason::Consumer };
    same("and on the bare device", b.server.bare(&reject, &[1; 149]), Err(Errno::EINVAL))?;
    b.quiet(Side::Client)?;
    b.server.drive().reject(server, b"no, and here is why.")?;
    let event = b.expect(Side::Client, client, CmEvent::Rejected, CONSUMER_DEFINED, pdl::REJECTED)?;
    same("the reason", &event.private_data[..21], b"no, and here is why.\0")?;
    b.qp_is(Side::Client, client, QpState::ERR)?;
    fails("reject again", b.server.drive().reject(server, &[]), Errno::EINVAL)?;
    same("and on the bare device", b.server.bare(&reject, &[]), Err(Errno::EINVAL))?;
    let param = b.param();
    fails("accept", b.server.drive().accept(server, param, &[], Time::NEVER), Errno::EINVAL)?;
    let accept = Call::Accept { id: server, param };
    same("and on the bare device", b.server.bare(&accept, &[]), Err(Errno::EINVAL))?;
    let (address, here) = (b.address, SocketAddr::new(b.net().client, 0));
    let drive = b.client.drive();
    fails("connect", drive.connect(client, param, &[], Time::NEVER), Errno::EINVAL)?;
    fails("resolve_route", drive.resolve_route(client, Time::NEVER), Errno::EINVAL)?;
    fails("resolve_addr", drive.resolve_addr(client, None, address, Time::NEVER), Errno::EINVAL)?;
    fails("bind", drive.bind(client, here), Errno::EINVAL)?;
    fails("listen", drive.listen(client, 1), Errno::EINVAL)?;
    drive.disconnect(client, Time::NEVER)?;
    b.quiet(Side::Client)?;
    b.quiet(Side::Server)
}

pub(super) fn behaviour_14_reject_because_of_enhanced_connection_establishment<L: Env>(
    b: &mut Fixture<'_, L>,
) -> Check {
    let (client, server) = b.requested()?;
    b.server.drive().reject_ece(server, b"not so")?;
    let event = b.expect(Side::Client, client, CmEvent::Rejected, VENDOR_OPTIONS, pdl::REJECTED)?;
    same("the reason", &event.private_data[..7], b"not so\0")
}

pub(super) fn behaviour_15_a_request_that_is_destroyed_is_rejected<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let (client, server) = b.requested()?;
    b.destroy(Side::Server, server)?;
    b.expect(Side::Client, client, CmEvent::Rejected, CONSUMER_DEFINED, pdl::REJECTED).map(drop)
}

pub(super) fn behaviour_16_private_data_too_long<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    b.listen()?;
    let client = b.resolved()?;
    let param = b.param();
    for len in [57, 220] {
        let drive = b.client.drive();
        fails("connect", drive.connect(client, param, &vec![1; len], Time::NEVER), Errno::EINVAL)?;
        same("client", drive.core().state(client), Some(State::RouteResolved))?;
        let connect = Call::Connect { id: client, param };
        same("and on the bare device", b.client.bare(&connect, &vec![1; len]), Err(Errno::EINVAL))?;
    }
    b.client.drive().connect(client, param, &[3; 56], Time::NEVER)?;
    let request = b.expect_any(Side::Server, CmEvent::ConnectRequest)?;
    same("the request's private data", &request.private_data[..], &[3; 56])?;
    // The kernel would reject the peer for this. The core refuses it first, and the request stays open.
    let param = b.param();
    let drive = b.server.drive();
    fails("accept", drive.accept(request.id, param, &[1; 197], Time::NEVER), Errno::EINVAL)?;
    drive.accept(request.id, param, &[5; 196], Time::NEVER)?;
    let answer = b.expect(Side::Client, client, CmEvent::ConnectResponse, 0, pdl::RESPONSE)?;
    same("the answer's private data", &answer.private_data[..], &[5; 196])
}

/// Past the core: the failing accept has rejected the peer.
pub(super) fn behaviour_16_what_the_kernel_does_about_too_long_an_answer<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let (client, server) = b.requested()?;
    let accept = Call::Accept { id: server, param: b.param() };
    same("197 bytes", b.server.bare(&accept, &[1; 197]), Err(Errno::EINVAL))?;
    b.expect(Side::Client, client, CmEvent::Rejected, CONSUMER_DEFINED, pdl::REJECTED)?;
    same("10 bytes", b.server.bare(&accept, &[1; 10]), Err(Errno::EINVAL))?;
    b.quiet(Side::Server)
}

pub(super) fn behaviour_21_the_client_rejects_the_answer<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let (client, server) = b.responded()?;
    b.client.drive().reject(client, b"no")?;
    let event = b.expect(Side::Server, server, CmEvent::Rejected, CONSUMER_DEFINED, pdl::REJECTED)?;
    same("the reason", &event.private_data[..3], b"no\0")?;
    fails("reject again", b.client.drive().reject(client, &[]), Errno::EINVAL)?;
    b.destroy(Side::Client, client)?;
    b.destroy(Side::Server, server)
}

pub(super) fn behaviour_22_depths_beyond_the_device<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    b.listen()?;
    let client = b.resolved()?;
    // One more than soft-RoCE supports; 255 would mean the maximum.
    for param in [ConnParam { responder_resources: 129, ..b.param() }, ConnParam { initiator_depth: 129, ..b.param() }]
    {
        fails("too deep", b.client.drive().connect(client, param, &[], Time::NEVER), Errno::EINVAL)?;
    }
    let nothing = ConnParam::default();
    fails("neither a QP nor its number", b.client.drive().connect(client, nothing, &[], Time::NEVER), Errno::EINVAL)?;
    same("client", b.client.drive().core().state(client), Some(State::RouteResolved))?;
    b.connect(client, &[])?;
    let server = b.expect_any(Side::Server, CmEvent::ConnectRequest)?.id;
    // An accept that the kernel does not see leaves the request pending, until the id is destroyed.
    let deep = ConnParam { initiator_depth: 129, ..b.param() };
    fails("too deep", b.server.drive().accept(server, deep, &[], Time::NEVER), Errno::EINVAL)?;
    same("server", b.server.drive().core().state(server), Some(State::Failed))?;
    b.quiet(Side::Client)?;
    b.destroy(Side::Server, server)?;
    b.expect(Side::Client, client, CmEvent::Rejected, CONSUMER_DEFINED, pdl::REJECTED).map(drop)
}
