//! Faults of the host: behaviours 10, 36, 78 and 79.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use cmid_harness::failure::{ensure, fails, same};
use cmid_harness::fixture::{Side, pdl};
use cmid_harness::{Check, Disturbance, Env, Fixture};
use cmid_proto::{Acks, Call, CmEvent, ConnParam, Errno, Error, IdKey, PortSpace, Progress, State, Time};

pub(super) fn behaviour_36_a_neighbour_moves<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    b.env.disturb(Disturbance::SilentHost)?;
    let there = SocketAddr::new(b.net().silent, b.address.port());
    let client = b.resolved_in(PortSpace::Tcp, there)?;
    b.env.disturb(Disturbance::NeighbourMoves)?;
    b.expect(Side::Client, client, CmEvent::Unreachable, -Errno::ETIMEDOUT.0, pdl::NONE)?;
    same("client", b.client.drive().core().state(client), Some(State::RouteResolved))?;
    b.connect(client, &[])?;
    b.destroy(Side::Client, client)
}

pub(super) fn behaviour_10_a_client_process_is_killed<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    b.listen()?;
    let mut process = b.env.client_process(b.address)?;
    let established = accept_and_keep_waiting(b).and_then(|server| b.quiet(Side::Server).map(|()| server));
    // SIGKILL: the process cannot end its connection.
    process.kill()?;
    process.wait()?;
    let server = established?;
    b.expect(Side::Server, server, CmEvent::Disconnected, 0, pdl::NONE)?;
    b.server.drive().disconnect(server, Time::NEVER)?;
    b.expect(Side::Server, server, CmEvent::TimewaitExit, 0, pdl::NONE).map(drop)
}

/// The peer's message finds no posted receive. With unlimited retries it is retried until the process is killed.
fn accept_and_keep_waiting<L: Env>(b: &mut Fixture<'_, L>) -> Check<IdKey> {
    let server = b.expect_any(Side::Server, CmEvent::ConnectRequest)?.id;
    b.attach_qp(Side::Server, server)?;
    let param = ConnParam { rnr_retry_count: 7, ..b.param() };
    b.server.drive().accept(server, param, &[], Time::NEVER)?;
    b.expect(Side::Server, server, CmEvent::Established, 0, pdl::NONE)?;
    Ok(server)
}

/// A wildcard listener of the server.
fn wildcard<L: Env>(b: &mut Fixture<'_, L>) -> Check<IdKey> {
    let channel = b.server.channel;
    let drive = b.server.drive();
    let id = drive.create_id(Some(channel), PortSpace::Tcp)?;
    drive.bind(id, SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0))?;
    drive.listen(id, 10)?;
    Ok(id)
}

/// An id that is only bound to this address.
fn bound<L: Env>(b: &mut Fixture<'_, L>, side: Side, ip: std::net::IpAddr) -> Check<IdKey> {
    let channel = b.endpoint(side).channel;
    let drive = b.endpoint(side).drive();
    let id = drive.create_id(Some(channel), PortSpace::Tcp)?;
    drive.bind(id, SocketAddr::new(ip, 0))?;
    Ok(id)
}

/// Expects one event of this kind for each of these ids, in any order, and nothing afterwards. An id may get an event
/// of `before` first, caused by the end of its peer, which is affected in the same way.
fn each_once<L: Env>(b: &mut Fixture<'_, L>, side: Side, kind: CmEvent, ids: &[IdKey], before: &[CmEvent]) -> Check {
    let channel = b.endpoint(side).channel;
    let mut left = ids.to_vec();
    while !left.is_empty() {
        let event = b.next(side, channel, &kind)?;
        if event.cm().is_some_and(|other| before.contains(&other)) && left.contains(&event.id) {
            continue;
        }
        let name = b.endpoint(side).name;
        same(name, (event.cm(), event.status), (Some(kind), 0))?;
        ensure(left.contains(&event.id), || format!("{name}: {kind} of {}, expected of {left:?}", event.id))?;
        left.retain(|id| *id != event.id);
    }
    b.quiet(side)
}

/// The kernel refuses calls on an id of a removed device. It ends the id after it has reported the removal
/// (`ucma_close_id`).
pub(super) fn is_ended<L: Env>(b: &mut Fixture<'_, L>, side: Side, id: IdKey) -> Check {
    let mut result = Ok(());
    for _ in 0..100 {
        result = b.endpoint(side).bare(&Call::Disconnect { id }, &[]);
        if result.is_err() {
            break;
        }
        // A wait for events ends at once while one is left.
        std::thread::sleep(Duration::from_millis(50));
        b.pump(Duration::ZERO)?;
    }
    same("bare disconnect", result, Err(Errno::ENXIO))
}

pub(super) fn behaviour_78_the_device_goes<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let listener = b.listen()?;
    let (client, server) = b.connected()?;
    let (connecting, unaccepted) = b.requested()?;
    let here = b.net().client;
    let bound = bound(b, Side::Client, here)?;
    let wildcard = wildcard(b)?;
    let channel = b.client.channel;
    let idle = b.client.drive().create_id(Some(channel), PortSpace::Tcp)?;
    let (other, elsewhere) =
        (b.client.drive().open_channel(Acks::OnDelivery)?, b.server.drive().open_channel(Acks::OnDelivery)?);
    b.env.disturb(Disturbance::DeviceGoes)?;
    // The kernel ends an id after it has reported the removal. The peer on the same device may observe that before
    // its own removal.
    let of_the_peer = [CmEvent::Disconnected, CmEvent::Rejected];
    each_once(b, Side::Client, CmEvent::DeviceRemoval, &[client, connecting, bound], &of_the_peer)?;
    each_once(b, Side::Server, CmEvent::DeviceRemoval, &[listener, server], &of_the_peer)?;
    // The core refuses requests on ids with a delivered removal itself, without a call.
    let param = b.param();
    for id in [client, bound] {
        same("state", b.client.drive().core().state(id), Some(State::Removed))?;
        let refused = b.client.drive().connect(id, param, &[], Time::NEVER);
        let is_refusal = matches!(refused, Err(Error::Refused(_)));
        ensure(is_refusal, || format!("connect: {refused:?}, expected a refusal"))?;
        fails("connect", refused, Errno::ENXIO)?;
        is_ended(b, Side::Client, id)?;
        same("bare connect", b.client.bare(&Call::Connect { id, param }, &[]), Err(Errno::ENXIO))?;
    }
    let accept = b.server.drive().accept(unaccepted, param, &[], Time::NEVER);
    fails("accept of what was not accepted", accept, Errno::ENXIO)?;
    fails("migrate", b.client.drive().migrate(client, Some(other), Time::NEVER), Errno::ENXIO)?;
    let progress = b.server.drive().migrate(wildcard, Some(elsewhere), Time::NEVER)?;
    same("migrate of a wildcard listener", progress, Progress::Done)?;
    for id in [client, connecting, bound, idle] {
        b.destroy(Side::Client, id)?;
    }
    for id in [listener, server, unaccepted, wildcard] {
        b.destroy(Side::Server, id)?;
    }
    Ok(())
}

pub(super) fn behaviour_79_a_bond_fails_over<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    // The first call sets up the bond.
    b.env.disturb(Disturbance::FailOver)?;
    let [one, two] = b.net().bonded;
    let bound_id = bound(b, Side::Client, one)?;
    let listener = bound(b, Side::Server, two)?;
    b.server.drive().listen(listener, 10)?;
    wildcard(b)?;
    let resolved = bound(b, Side::Client, one)?;
    b.client.drive().resolve_addr(resolved, None, SocketAddr::new(two, 1), Time::NEVER)?;
    b.expect(Side::Client, resolved, CmEvent::AddrResolved, 0, pdl::NONE)?;
    b.env.disturb(Disturbance::FailOver)?;
    each_once(b, Side::Client, CmEvent::AddrChange, &[bound_id, resolved], &[])?;
    each_once(b, Side::Server, CmEvent::AddrChange, &[listener], &[])?;
    b.client.drive().resolve_route(resolved, Time::NEVER)?;
    b.expect(Side::Client, resolved, CmEvent::RouteResolved, 0, pdl::NONE).map(drop)
}
