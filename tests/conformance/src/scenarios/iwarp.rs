//! Connections on iWARP devices, where they differ from those on InfiniBand (docs/semantics.md, section 16).

use std::time::Duration;

use cmid_harness::failure::{ensure, fails, same};
use cmid_harness::fixture::{Side, pdl};
use cmid_harness::{Check, Disturbance, Env, Fixture, Speed};
use cmid_proto::datapath::{MemoryRegion, QueuePair, SendWr, WcStatus};
use cmid_proto::memory::Access;
use cmid_proto::{
    Acks, Call, CmEvent, ConnParam, Errno, Error, EventKind, IdKey, PortSpace, Progress, ReceivedParam, RefuseReason,
    Refused, RejectReason, Request, State, Time, Transport,
};

use super::bad_input::bound_by;
use super::disturbed::is_ended;
use super::iwarp_data::{
    iwarp_a_read_has_one_range_and_needs_no_fence, iwarp_an_empty_read_is_refused,
    iwarp_an_unsignaled_request_ends_by_itself, iwarp_no_invalidation_is_inlined,
};
use super::memory::register;
use super::scenario::{Entry, Scenario};
use super::sync::ended;

/// `-ECONNRESET`: the status of every REJECTED.
const RESET: i32 = -104;
/// `ECONNREFUSED`: nobody listens.
const REFUSED: Errno = Errno(111);
/// `ECONNRESET`: the peer has gone.
const GONE: Errno = Errno(104);

macro_rules! list {
    ($($name:ident [$($need:ident)*],)+) => {
        pub(super) const ENTRIES: &[Entry] = &[$(
            Entry {
                name: stringify!($name),
                behaviours: &[],
                speed: Speed::Fast,
                needs: &[$(Disturbance::$need),*],
                rereg: None,
            },
        )+];

        pub(super) fn scenarios<L: Env>() -> Vec<Scenario<L>> {
            let steps = [$($name as fn(&mut Fixture<'_, L>) -> Check),+];
            let with = |(&entry, steps)| Scenario { entry, acks: Acks::OnDelivery, steps };
            ENTRIES.iter().zip(steps).map(with).collect()
        }
    };
}

list! {
    iwarp_one_disconnect_ends_a_connection_for_both [],
    iwarp_private_data_has_its_own_length [],
    iwarp_both_sides_see_the_depths_of_the_accepting_side [],
    iwarp_a_destroy_while_connecting_waits_for_the_answer_and_blocks_nobody [],
    iwarp_a_connect_needs_a_qp [],
    iwarp_nobody_listens [],
    iwarp_a_request_is_rejected_once [],
    iwarp_a_request_that_is_destroyed_is_rejected [],
    iwarp_an_accept_without_a_qp_rejects_the_peer [],
    iwarp_the_client_goes_before_the_accept [],
    iwarp_a_destroy_ends_a_connection [],
    iwarp_the_client_ends_while_established [],
    iwarp_a_teardown_ends_with_the_disconnect [],
    iwarp_a_synchronous_teardown_ends_with_the_disconnect [],
    iwarp_migration_with_an_unread_event [],
    iwarp_a_listener_moves_with_unread_requests [],
    iwarp_either_side_sends_first [],
    iwarp_there_are_no_datagrams [],
    iwarp_the_loopback_address_cannot_be_resolved [],
    iwarp_an_unanswered_request_ends_after_ten_seconds [],
    iwarp_the_device_goes [DeviceGoes DeviceComes],
    iwarp_an_empty_read_is_refused [], iwarp_no_invalidation_is_inlined [],
    iwarp_a_read_has_one_range_and_needs_no_fence [],
    iwarp_an_unsignaled_request_ends_by_itself [],
}

/// A client with a QP that has sent a request with this private data, and the id of the request.
fn requested<L: Env>(b: &mut Fixture<'_, L>, data: &[u8]) -> Check<(IdKey, IdKey)> {
    let client = b.resolved()?;
    b.attach_qp(Side::Client, client)?;
    b.connect(client, data)?;
    let request = b.expect_any(Side::Server, CmEvent::ConnectRequest)?;
    same("the request's private data", &request.private_data[..], data)?;
    let param = ConnParam { responder_resources: 1, initiator_depth: 1, ..ReceivedParam::default().0 };
    same("the request's parameters", *request.param, param)?;
    Ok((client, request.id))
}

/// The DISCONNECTED of an id, and nothing after it.
fn is_over<L: Env>(b: &mut Fixture<'_, L>, side: Side, id: IdKey) -> Check {
    b.expect(side, id, CmEvent::Disconnected, 0, pdl::NONE)?;
    same("its state", b.endpoint(side).drive().core().state(id), Some(State::Closed))
}

fn iwarp_one_disconnect_ends_a_connection_for_both<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    for disconnects in [[true, false], [false, true], [true, true]] {
        let (client, server) = b.connected_with_qps()?;
        for (side, id, does) in [(Side::Client, client, disconnects[0]), (Side::Server, server, disconnects[1])] {
            if does {
                b.endpoint(side).drive().disconnect(id, Time::NEVER)?;
            }
        }
        is_over(b, Side::Client, client)?;
        is_over(b, Side::Server, server)?;
        // A disconnect of what is over is done.
        b.client.drive().disconnect(client, Time::NEVER)?;
        b.server.drive().disconnect(server, Time::NEVER)?;
        b.quiet(Side::Client)?;
        b.quiet(Side::Server)?;
        b.destroy(Side::Client, client)?;
        b.destroy(Side::Server, server)?;
    }
    Ok(())
}

fn iwarp_private_data_has_its_own_length<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    b.listen()?;
    for (sent, answered) in [(0, 0), (1, 1), (56, 196)] {
        let (client, server) = requested(b, &vec![1; sent])?;
        b.attach_qp(Side::Server, server)?;
        b.accept(server, &vec![2; answered])?;
        let event = b.expect(Side::Client, client, CmEvent::Established, 0, answered)?;
        same("the answer", &event.private_data[..], &vec![2; answered][..])?;
        b.expect(Side::Server, server, CmEvent::Established, 0, pdl::NONE)?;
        b.destroy(Side::Client, client)?;
        is_over(b, Side::Server, server)?;
        b.destroy(Side::Server, server)?;
    }
    Ok(())
}

/// The client asks for 7 and 0: it serves seven reads and starts none. `siw_accept` limits what the server starts, and
/// the client takes over what the server answers (`siw_proc_mpareply`). An ESTABLISHED has them the other way around
/// (`cma_iw_handler`).
fn iwarp_both_sides_see_the_depths_of_the_accepting_side<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    b.listen()?;
    let client = b.resolved()?;
    b.attach_qp(Side::Client, client)?;
    let depths = |responder_resources, initiator_depth| ConnParam {
        responder_resources,
        initiator_depth,
        ..ReceivedParam::default().0
    };
    b.client.drive().connect(client, depths(7, 0), &[], Time::NEVER)?;
    let request = b.expect_any(Side::Server, CmEvent::ConnectRequest)?;
    same("the request", *request.param, depths(0, 7))?;
    b.attach_qp(Side::Server, request.id)?;
    b.server.drive().accept(request.id, depths(16, 16), &[], Time::NEVER)?;
    let event = b.expect(Side::Server, request.id, CmEvent::Established, 0, pdl::NONE)?;
    same("the server's depths", *event.param, depths(7, 16))?;
    let event = b.expect(Side::Client, client, CmEvent::Established, 0, pdl::NONE)?;
    same("the client's depths", *event.param, depths(16, 7))
}

/// rdma_destroy_id(3) would block until the answer has come, for up to ten seconds (`iw_destroy_cm_id`).
fn iwarp_a_destroy_while_connecting_waits_for_the_answer_and_blocks_nobody<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    b.listen()?;
    for accepts in [false, true] {
        let (client, server) = requested(b, &[])?;
        same("destroy", b.client.drive().destroy(client, Time::NEVER)?, Progress::WhenAcked)?;
        b.quiet(Side::Client)?;
        // The driver goes on meanwhile.
        let other = b.resolved()?;
        b.destroy(Side::Client, other)?;
        if accepts {
            b.attach_qp(Side::Server, server)?;
            b.accept(server, &[])?;
            b.expect(Side::Server, server, CmEvent::Established, 0, pdl::NONE)?;
        } else {
            b.server.drive().reject(server, &[])?;
        }
        let end = b.next(Side::Client, b.client.channel, &EventKind::Destroyed)?;
        same("client", (end.id, end.kind, end.status), (client, EventKind::Destroyed, 0))?;
        if accepts {
            is_over(b, Side::Server, server)?;
        }
        b.quiet(Side::Client)?;
        b.destroy(Side::Server, server)?;
    }
    Ok(())
}

/// The connect fails and changes nothing: it can be repeated.
fn iwarp_a_connect_needs_a_qp<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    b.listen()?;
    let client = b.resolved()?;
    let param = b.param();
    fails("connect", b.client.drive().connect(client, param, &[], Time::NEVER), Errno::EINVAL)?;
    same("client", b.client.drive().core().state(client), Some(State::RouteResolved))?;
    b.attach_qp(Side::Client, client)?;
    b.connect(client, &[])?;
    b.expect_any(Side::Server, CmEvent::ConnectRequest).map(drop)
}

/// TCP reports it within the call.
fn iwarp_nobody_listens<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let client = b.resolved()?;
    b.attach_qp(Side::Client, client)?;
    let param = b.param();
    fails("connect", b.client.drive().connect(client, param, &[], Time::NEVER), REFUSED)?;
    same("client", b.client.drive().core().state(client), Some(State::RouteResolved))?;
    b.quiet(Side::Client)?;
    b.listen()?;
    b.connect(client, &[])?;
    b.expect_any(Side::Server, CmEvent::ConnectRequest).map(drop)
}

fn iwarp_a_request_is_rejected_once<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    b.listen()?;
    for length in [0, 20, 148] {
        let (client, server) = requested(b, b"may I?")?;
        b.server.drive().reject(server, &vec![3; length])?;
        let event = b.expect(Side::Client, client, CmEvent::Rejected, RESET, length)?;
        same("the reason", &event.private_data[..], &vec![3; length][..])?;
        let reject = Call::Reject { id: server, reason: RejectReason::Consumer };
        same("reject again, on the bare device", b.server.bare(&reject, &[]), Err(Errno::EINVAL))?;
        b.quiet(Side::Server)?;
        b.destroy(Side::Client, client)?;
        b.destroy(Side::Server, server)?;
    }
    Ok(())
}

fn iwarp_a_request_that_is_destroyed_is_rejected<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    b.listen()?;
    let (client, server) = requested(b, &[])?;
    b.destroy(Side::Server, server)?;
    b.expect(Side::Client, client, CmEvent::Rejected, RESET, pdl::NONE).map(drop)
}

fn iwarp_an_accept_without_a_qp_rejects_the_peer<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    b.listen()?;
    let (client, server) = requested(b, &[])?;
    let param = b.param();
    fails("accept", b.server.drive().accept(server, param, &[], Time::NEVER), Errno::EINVAL)?;
    b.expect(Side::Client, client, CmEvent::Rejected, RESET, pdl::NONE)?;
    b.quiet(Side::Server)
}

fn iwarp_the_client_goes_before_the_accept<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    b.listen()?;
    let (_, server) = requested(b, &[])?;
    // The driver is dropped with its ids, as at the end of its process.
    b.restart(Side::Client)?;
    b.quiet(Side::Server)?;
    b.attach_qp(Side::Server, server)?;
    let param = b.param();
    fails("accept", b.server.drive().accept(server, param, &[], Time::NEVER), GONE)?;
    b.quiet(Side::Server)
}

fn iwarp_a_destroy_ends_a_connection<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    for side in [Side::Client, Side::Server] {
        let (client, server) = b.connected_with_qps()?;
        let ((own, id), (other, peer)) = match side {
            Side::Client => ((Side::Client, client), (Side::Server, server)),
            Side::Server => ((Side::Server, server), (Side::Client, client)),
        };
        b.destroy(own, id)?;
        is_over(b, other, peer)?;
        b.quiet(other)?;
        b.destroy(other, peer)?;
    }
    Ok(())
}

fn iwarp_the_client_ends_while_established<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let (_, server) = b.connected_with_qps()?;
    b.restart(Side::Client)?;
    is_over(b, Side::Server, server)?;
    b.quiet(Side::Server)
}

fn iwarp_a_teardown_ends_with_the_disconnect<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    for both in [false, true] {
        let (client, server) = b.connected_with_qps()?;
        b.client.drive().teardown(client, Time::NEVER)?;
        same("client", b.client.drive().core().state(client), Some(State::Closing))?;
        if both {
            // The client's end may have arrived first.
            let teardown = b.server.drive().teardown(server, Time::NEVER);
            let over = |error| matches!(error, Error::Refused(Refused::Request { reason: RefuseReason::IsOver, .. }));
            ensure(teardown.map_or_else(over, |()| true), || "the server's teardown".into())?;
        }
        is_over(b, Side::Client, client)?;
        is_over(b, Side::Server, server)?;
        b.quiet(Side::Client)?;
        let again = b.client.drive().teardown(client, Time::NEVER);
        let over = |error| matches!(error, Error::Refused(Refused::Request { reason: RefuseReason::IsOver, .. }));
        ensure(again.is_err_and(over), || "a teardown of what is over".into())?;
        b.destroy(Side::Client, client)?;
        b.destroy(Side::Server, server)?;
    }
    Ok(())
}

fn iwarp_a_synchronous_teardown_ends_with_the_disconnect<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let (client, server) = b.connected_with_qps()?;
    same("migrate", b.client.drive().migrate(client, None, Time::NEVER)?, Progress::Done)?;
    b.client.drive().teardown(client, Time::NEVER)?;
    same("teardown", ended(b, Side::Client, client)?, (Ok(()), Some(CmEvent::Disconnected), 0))?;
    same("client", b.client.drive().core().state(client), Some(State::Closed))?;
    is_over(b, Side::Server, server)
}

/// The event is in the kernel when its id migrates, and is delivered on the new channel.
fn iwarp_migration_with_an_unread_event<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    b.listen()?;
    // ESTABLISHED, then DISCONNECTED.
    let (client, server) = requested(b, &[])?;
    b.attach_qp(Side::Server, server)?;
    b.frozen = Some(Side::Client);
    b.accept(server, &[])?;
    b.expect(Side::Server, server, CmEvent::Established, 0, pdl::NONE)?;
    std::thread::sleep(b.env.quiet());
    let first = b.client.drive().open_channel(Acks::OnDelivery)?;
    same("migrate", b.client.drive().migrate(client, Some(first), Time::NEVER)?, Progress::Done)?;
    b.frozen = None;
    b.expect_on(Side::Client, first, client, CmEvent::Established, 0, pdl::NONE)?;
    b.frozen = Some(Side::Client);
    b.server.drive().disconnect(server, Time::NEVER)?;
    is_over(b, Side::Server, server)?;
    std::thread::sleep(b.env.quiet());
    let second = b.client.drive().open_channel(Acks::OnDelivery)?;
    same("migrate", b.client.drive().migrate(client, Some(second), Time::NEVER)?, Progress::Done)?;
    b.frozen = None;
    b.expect_on(Side::Client, second, client, CmEvent::Disconnected, 0, pdl::NONE)?;
    let quiet = b.env.quiet();
    b.quiet_on(Side::Client, first, quiet)?;
    // REJECTED.
    let (client, server) = requested(b, &[])?;
    b.frozen = Some(Side::Client);
    b.server.drive().reject(server, b"no")?;
    std::thread::sleep(b.env.quiet());
    same("migrate", b.client.drive().migrate(client, Some(first), Time::NEVER)?, Progress::Done)?;
    b.frozen = None;
    b.expect_on(Side::Client, first, client, CmEvent::Rejected, RESET, 2).map(drop)
}

/// The requests wait in the kernel, and are delivered on the listener's new channel.
fn iwarp_a_listener_moves_with_unread_requests<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let listener = b.listen()?;
    let clients = [b.resolved()?, b.resolved()?];
    b.frozen = Some(Side::Server);
    for client in clients {
        b.attach_qp(Side::Client, client)?;
        b.connect(client, &[])?;
    }
    std::thread::sleep(b.env.quiet());
    let new = b.server.drive().open_channel(Acks::OnDelivery)?;
    same("migrate", b.server.drive().migrate(listener, Some(new), Time::NEVER)?, Progress::Done)?;
    b.frozen = None;
    let mut servers = Vec::new();
    for _ in clients {
        let event = b.next(Side::Server, new, &"a request")?;
        same("the request", (event.kind, event.listener), (EventKind::Cm(CmEvent::ConnectRequest), Some(listener)))?;
        servers.push(event.id);
    }
    for (client, server) in clients.into_iter().zip(servers) {
        b.attach_qp(Side::Server, server)?;
        b.accept(server, &[])?;
        b.expect(Side::Client, client, CmEvent::Established, 0, pdl::NONE)?;
        b.expect_on(Side::Server, new, server, CmEvent::Established, 0, pdl::NONE)?;
    }
    Ok(())
}

/// MPA lets the connecting side send first (RFC 5044). An accepting side that has ESTABLISHED may send too: siw answers
/// before it reports that.
fn iwarp_either_side_sends_first<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let pds = (b.pd(Side::Client)?, b.pd(Side::Server)?);
    let access = Access::LOCAL_WRITE;
    let mrs = (register(&pds.0, vec![1; 8], access)?, register(&pds.1, vec![2; 8], access)?);
    for client_first in [true, false] {
        let (mut client, mut server) = b.join(&pds.0, &pds.1)?;
        let (first, second, from, to) = if client_first {
            (&mut client, &mut server, &mrs.0, &mrs.1)
        } else {
            (&mut server, &mut client, &mrs.1, &mrs.0)
        };
        second.qp.post_recv(2, to.sge(0..8))?;
        first.qp.post_send(SendWr::send(1, from.sge(0..8)))?;
        b.ends(second, 2, WcStatus::SUCCESS)?;
        b.ends(first, 1, WcStatus::SUCCESS)?;
        b.part((client, server))?;
    }
    Ok(())
}

/// The core refuses them. The kernel takes a listener for datagrams, and listens for connections.
fn iwarp_there_are_no_datagrams<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let refused = |result: Result<(), Error>| {
        let reason =
            |error| matches!(error, Error::Refused(Refused::Request { reason: RefuseReason::NoDatagrams, .. }));
        ensure(result.is_err_and(reason), || "not refused for lack of datagrams".into())
    };
    let (channel, address) = (b.server.channel, b.address);
    let drive = b.server.drive();
    let service = drive.create_id(Some(channel), PortSpace::Udp)?;
    drive.bind(service, address)?;
    same("the transport", drive.transport(service), Some(Transport::Iwarp))?;
    refused(drive.listen(service, 1))?;
    let group = (std::net::Ipv4Addr::new(239, 1, 1, 1), 0).into();
    refused(drive.join(service, group, false, Time::NEVER).map(drop))?;
    let client = b.resolved_in(PortSpace::Udp, address)?;
    match b.client.attach_qp(client) {
        Ok(()) => return Err(cmid_harness::Failure("a datagram QP".into())),
        Err(error) => refused(Err(error))?,
    }
    let drive = b.client.drive();
    let now = drive.now();
    let connect = Request::Connect { param: ConnParam { qp_num: 7, ..ConnParam::default() }, private_data: &[] };
    let connect = drive.core().would_refuse(now, client, &connect, Time::NEVER);
    refused(connect.map_err(Error::Refused))
}

fn iwarp_the_loopback_address_cannot_be_resolved<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    bound_by(b, None, (std::net::Ipv4Addr::LOCALHOST, 7471).into(), Errno::EINVAL).map(drop)
}

/// There is no message for "wait longer": `MPAREQ_TIMEOUT` of siw.
fn iwarp_an_unanswered_request_ends_after_ten_seconds<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    b.listen()?;
    let (client, server) = requested(b, &[])?;
    b.be_patient(Duration::from_secs(60));
    b.expect(Side::Client, client, CmEvent::Unreachable, -Errno::ETIMEDOUT.0, pdl::NONE)?;
    same("client", b.client.drive().core().state(client), Some(State::Failed))?;
    // An accept at this moment may succeed or not: the end of TCP is still under way.
    b.destroy(Side::Server, server)?;
    b.quiet(Side::Client)
}

fn iwarp_the_device_goes<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let (client, server) = b.connected_with_qps()?;
    b.env.disturb(Disturbance::DeviceGoes)?;
    for (side, id) in [(Side::Client, client), (Side::Server, server)] {
        let channel = b.endpoint(side).channel;
        while b.endpoint(side).drive().core().state(id) != Some(State::Removed) {
            let _event = b.next(side, channel, &CmEvent::DeviceRemoval)?;
        }
        is_ended(b, side, id)?;
    }
    Ok(())
}
