//! Section "normal life": behaviours 1 to 10.

use cmid_harness::failure::{ensure, fails, same};
use cmid_harness::fixture::pdl;
use cmid_harness::{Check, Env, Fixture, fixture::Side};
use cmid_proto::datapath::QpState;
use cmid_proto::{CmEvent, ConnParam, Errno, State, Time};

/// The limit of soft-RoCE, and of the simulated device, in each direction.
const DEVICE_DEPTH: u8 = 128;

pub(super) fn behaviour_01_connect_with_qps<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let listener = b.listen()?;
    let client = b.resolved()?;
    b.attach_qp(Side::Client, client)?;
    b.connect(client, &[7])?;
    let request = b.expect_any(Side::Server, CmEvent::ConnectRequest)?;
    same("the listener of the request", request.listener, Some(listener))?;
    let p = request.param;
    let seen = (p.responder_resources, p.initiator_depth, p.retry_count, p.rnr_retry_count);
    same("the request's depths and retries", seen, (1, 1, 5, 6))?;
    ensure(p.qp_num != 0, || "the request has no QP number".into())?;
    same("the request's private data", (request.private_data.len(), request.private_data[0]), (pdl::REQUEST, 7))?;
    let server = request.id;
    b.attach_qp(Side::Server, server)?;
    b.accept(server, &[9, 9])?;
    let answer = b.expect(Side::Client, client, CmEvent::Established, 0, pdl::RESPONSE)?;
    let p = answer.param;
    let seen = (p.responder_resources, p.initiator_depth, p.retry_count, p.rnr_retry_count);
    same("the answer's depths and retries", seen, (1, 1, 0, 6))?;
    same("the answer's private data", &answer.private_data[..3], &[9, 9, 0])?;
    let up = b.expect(Side::Server, server, CmEvent::Established, 0, pdl::NONE)?;
    same("the server's ESTABLISHED has no parameters", up.param, Default::default())?;
    same("client", b.client.drive().core().state(client), Some(State::Connected))?;
    same("server", b.server.drive().core().state(server), Some(State::Connected))?;
    b.qp_is(Side::Client, client, QpState::RTS)?;
    b.qp_is(Side::Server, server, QpState::RTS)
}

pub(super) fn behaviour_02_disconnect_answered_then_time_wait<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let (client, server) = b.connected_with_qps()?;
    b.client.drive().disconnect(client, Time::NEVER)?;
    b.qp_is(Side::Client, client, QpState::ERR)?;
    b.expect(Side::Server, server, CmEvent::Disconnected, 0, pdl::NONE)?;
    b.qp_is(Side::Server, server, QpState::RTS)?;
    b.quiet(Side::Client)?;
    b.server.drive().disconnect(server, Time::NEVER)?;
    b.expect(Side::Client, client, CmEvent::Disconnected, 0, pdl::NONE)?;
    b.expect(Side::Client, client, CmEvent::TimewaitExit, 0, pdl::NONE)?;
    b.expect(Side::Server, server, CmEvent::TimewaitExit, 0, pdl::NONE)?;
    b.client.drive().disconnect(client, Time::NEVER)?;
    b.quiet(Side::Client)?;
    let param = b.param();
    fails("connect again", b.client.drive().connect(client, param, &[], Time::NEVER), Errno::EINVAL)?;
    b.destroy(Side::Client, client)?;
    b.destroy(Side::Server, server)
}

pub(super) fn behaviour_03_disconnect_answered_by_destroy<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let (client, server) = b.connected_with_qps()?;
    b.client.drive().disconnect(client, Time::NEVER)?;
    b.expect(Side::Server, server, CmEvent::Disconnected, 0, pdl::NONE)?;
    b.quiet(Side::Client)?;
    b.destroy(Side::Server, server)?;
    b.expect(Side::Client, client, CmEvent::Disconnected, 0, pdl::NONE)?;
    b.expect(Side::Client, client, CmEvent::TimewaitExit, 0, pdl::NONE).map(drop)
}

pub(super) fn behaviour_04_disconnect_answered_before_it_is_read<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let (client, server) = b.connected_with_qps()?;
    b.client.drive().disconnect(client, Time::NEVER)?;
    // The server's kernel has the DREQ, but its driver has not read the event.
    std::thread::sleep(b.env.quiet());
    b.server.drive().disconnect(server, Time::NEVER)?;
    for (side, id) in [(Side::Client, client), (Side::Server, server)] {
        b.expect(side, id, CmEvent::Disconnected, 0, pdl::NONE)?;
    }
    for (side, id) in [(Side::Client, client), (Side::Server, server)] {
        b.expect(side, id, CmEvent::TimewaitExit, 0, pdl::NONE)?;
    }
    Ok(())
}

pub(super) fn behaviour_06_connect_without_qps<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let (client, server) = b.responded()?;
    b.quiet(Side::Server)?;
    b.confirm(client, server)?;
    fails("establish again", b.client.drive().establish(client), Errno::EINVAL)?;
    b.quiet(Side::Client)?;
    b.quiet(Side::Server)?;
    b.client.drive().disconnect(client, Time::NEVER)?;
    b.expect(Side::Server, server, CmEvent::Disconnected, 0, pdl::NONE)?;
    b.server.drive().disconnect(server, Time::NEVER)?;
    b.expect(Side::Client, client, CmEvent::Disconnected, 0, pdl::NONE)?;
    b.expect(Side::Client, client, CmEvent::TimewaitExit, 0, pdl::NONE)?;
    b.expect(Side::Server, server, CmEvent::TimewaitExit, 0, pdl::NONE).map(drop)
}

pub(super) fn behaviour_07_parameters_are_mirrored_and_clamped<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    b.listen()?;
    let client = b.resolved()?;
    let sent = ConnParam {
        responder_resources: 7,
        initiator_depth: 3,
        flow_control: true,
        retry_count: 6,
        rnr_retry_count: 5,
        srq: true,
        ..b.param()
    };
    // The kernel would lower it to 7.
    let above = b.client.drive().connect(client, ConnParam { retry_count: 9, ..sent }, &[], Time::NEVER);
    fails("a retry count of 9", above, Errno::EINVAL)?;
    b.client.drive().connect(client, sent, &[], Time::NEVER)?;
    let request = b.expect_any(Side::Server, CmEvent::ConnectRequest)?;
    let received = ConnParam { responder_resources: 3, initiator_depth: 7, ..sent };
    same("request", *request.param, received)?;
    let answer = ConnParam {
        responder_resources: ConnParam::DEVICE_MAX,
        initiator_depth: ConnParam::DEVICE_MAX,
        rnr_retry_count: 2,
        ..b.param()
    };
    b.server.drive().accept(request.id, answer, &[], Time::NEVER)?;
    let response = b.expect(Side::Client, client, CmEvent::ConnectResponse, 0, pdl::RESPONSE)?.param;
    let seen = (response.responder_resources, response.initiator_depth, response.rnr_retry_count);
    same("response", seen, (7, 3, 2))?;
    same("the server's QP number", response.qp_num, answer.qp_num)
}

pub(super) fn behaviour_08_defaults_are_the_devices_maxima<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    b.listen()?;
    let client = b.resolved()?;
    b.attach_qp(Side::Client, client)?;
    b.client.drive().connect(client, ConnParam::default(), &[], Time::NEVER)?;
    let request = b.expect_any(Side::Server, CmEvent::ConnectRequest)?;
    let p = request.param;
    let seen = (p.responder_resources, p.initiator_depth, p.retry_count, p.rnr_retry_count);
    same("request", seen, (DEVICE_DEPTH, DEVICE_DEPTH, 7, 7))?;
    b.attach_qp(Side::Server, request.id)?;
    b.server.drive().accept(request.id, ConnParam::default(), &[], Time::NEVER)?;
    let answer = b.expect(Side::Client, client, CmEvent::Established, 0, pdl::RESPONSE)?.param;
    same("answer", (answer.responder_resources, answer.initiator_depth), (DEVICE_DEPTH, DEVICE_DEPTH))
}

pub(super) fn behaviour_09_destroyed_while_established<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let (client, server) = b.connected_with_qps()?;
    b.destroy(Side::Server, server)?;
    b.expect(Side::Client, client, CmEvent::Disconnected, 0, pdl::NONE)?;
    b.qp_is(Side::Client, client, QpState::RTS)?;
    b.client.drive().disconnect(client, Time::NEVER)?;
    b.expect(Side::Client, client, CmEvent::TimewaitExit, 0, pdl::NONE).map(drop)
}

/// A process that ends closes all its channels. A driver that is dropped does the same.
pub(super) fn behaviour_10_the_client_ends_while_established<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let (_, server) = b.connected_with_qps()?;
    b.restart(Side::Client)?;
    b.expect(Side::Server, server, CmEvent::Disconnected, 0, pdl::NONE)?;
    b.server.drive().disconnect(server, Time::NEVER)?;
    b.expect(Side::Server, server, CmEvent::TimewaitExit, 0, pdl::NONE).map(drop)
}
