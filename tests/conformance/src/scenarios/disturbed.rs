//! What happens to the host below: rows 10, 36, 78 and 79.

use std::net::{Ipv4Addr, SocketAddr};

use cmid_harness::bench::{Who, pdl};
use cmid_harness::failure::{ensure, fails, same};
use cmid_harness::{Bench, Check, Disturbance, Lab};
use cmid_proto::{Acks, Call, CmEvent, ConnParam, Errno, Error, IdKey, PortSpace, Progress, State, Time};

pub(super) fn row_36_a_neighbour_moves<L: Lab>(b: &mut Bench<'_, L>) -> Check {
    b.lab.disturb(Disturbance::SilentHost)?;
    let there = SocketAddr::new(b.net().silent, b.address.port());
    let client = b.resolved_in(PortSpace::Tcp, there)?;
    b.lab.disturb(Disturbance::NeighbourMoves)?;
    b.expect(Who::Client, client, CmEvent::Unreachable, -Errno::ETIMEDOUT.0, pdl::NONE)?;
    same("client", b.client.drive().core().state(client), Some(State::RouteResolved))?;
    b.connect(client, &[])?;
    b.destroy(Who::Client, client)
}

pub(super) fn row_10_a_client_process_is_killed<L: Lab>(b: &mut Bench<'_, L>) -> Check {
    b.listen()?;
    let mut process = b.lab.client_process(b.address)?;
    let established = accept_and_keep_waiting(b).and_then(|server| b.quiet(Who::Server).map(|()| server));
    // SIGKILL: it has no chance to say anything.
    process.kill()?;
    process.wait()?;
    let server = established?;
    b.expect(Who::Server, server, CmEvent::Disconnected, 0, pdl::NONE)?;
    b.server.drive().disconnect(server, Time::NEVER)?;
    b.expect(Who::Server, server, CmEvent::TimewaitExit, 0, pdl::NONE).map(drop)
}

/// What the process sends finds no receive; with retries without end it waits until it is killed.
fn accept_and_keep_waiting<L: Lab>(b: &mut Bench<'_, L>) -> Check<IdKey> {
    let server = b.expect_any(Who::Server, CmEvent::ConnectRequest)?.id;
    b.attach_qp(Who::Server, server)?;
    let param = ConnParam { rnr_retry_count: 7, ..b.param() };
    b.server.drive().accept(server, param, &[], Time::NEVER)?;
    b.expect(Who::Server, server, CmEvent::Established, 0, pdl::NONE)?;
    Ok(server)
}

/// A wildcard listener of the server.
fn wildcard<L: Lab>(b: &mut Bench<'_, L>) -> Check<IdKey> {
    let channel = b.server.channel;
    let drive = b.server.drive();
    let id = drive.create_id(Some(channel), PortSpace::Tcp)?;
    drive.bind(id, SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0))?;
    drive.listen(id, 10)?;
    Ok(id)
}

/// An id that is bound to this address and nothing else.
fn bound<L: Lab>(b: &mut Bench<'_, L>, who: Who, ip: std::net::IpAddr) -> Check<IdKey> {
    let channel = b.side(who).channel;
    let drive = b.side(who).drive();
    let id = drive.create_id(Some(channel), PortSpace::Tcp)?;
    drive.bind(id, SocketAddr::new(ip, 0))?;
    Ok(id)
}

/// One event of this kind comes for each of these ids, in any order, and nothing afterwards. Before it an id may be told what
/// the end of its peer, which the same thing happens to, does to it.
fn each_once<L: Lab>(b: &mut Bench<'_, L>, who: Who, kind: CmEvent, ids: &[IdKey], before: &[CmEvent]) -> Check {
    let channel = b.side(who).channel;
    let mut left = ids.to_vec();
    while !left.is_empty() {
        let event = b.next(who, channel, &kind)?;
        if event.cm().is_some_and(|other| before.contains(&other)) && left.contains(&event.id) {
            continue;
        }
        let name = b.side(who).name;
        same(name, (event.cm(), event.status), (Some(kind), 0))?;
        ensure(left.contains(&event.id), || format!("{name}: {kind} of {}, expected of {left:?}", event.id))?;
        left.retain(|id| *id != event.id);
    }
    b.quiet(who)
}

pub(super) fn row_78_the_device_goes<L: Lab>(b: &mut Bench<'_, L>) -> Check {
    let listener = b.listen()?;
    let (client, server) = b.connected()?;
    let (connecting, unaccepted) = b.requested()?;
    let here = b.net().client;
    let bound = bound(b, Who::Client, here)?;
    let wildcard = wildcard(b)?;
    let channel = b.client.channel;
    let idle = b.client.drive().create_id(Some(channel), PortSpace::Tcp)?;
    let (other, elsewhere) =
        (b.client.drive().open_channel(Acks::OnDelivery)?, b.server.drive().open_channel(Acks::OnDelivery)?);
    b.lab.disturb(Disturbance::DeviceGoes)?;
    // The kernel ends an id when it has told it, and its peer on the same device may hear of that before its own turn comes.
    let of_the_peer = [CmEvent::Disconnected, CmEvent::Rejected];
    each_once(b, Who::Client, CmEvent::DeviceRemoval, &[client, connecting, bound], &of_the_peer)?;
    each_once(b, Who::Server, CmEvent::DeviceRemoval, &[listener, server], &of_the_peer)?;
    // The core need not ask the kernel about those whose event it has seen.
    let param = b.param();
    for id in [client, bound] {
        same("state", b.client.drive().core().state(id), Some(State::Removed))?;
        let refused = b.client.drive().connect(id, param, &[], Time::NEVER);
        let is_refusal = matches!(refused, Err(Error::Refused(_)));
        ensure(is_refusal, || format!("connect: {refused:?}, expected a refusal"))?;
        fails("connect", refused, Errno::ENXIO)?;
        same("bare disconnect", b.client.bare(&Call::Disconnect { id }, &[]), Err(Errno::ENXIO))?;
        same("bare connect", b.client.bare(&Call::Connect { id, param }, &[]), Err(Errno::ENXIO))?;
    }
    let accept = b.server.drive().accept(unaccepted, param, &[], Time::NEVER);
    fails("accept of what was not accepted", accept, Errno::ENXIO)?;
    fails("migrate", b.client.drive().migrate(client, Some(other), Time::NEVER), Errno::ENXIO)?;
    let progress = b.server.drive().migrate(wildcard, Some(elsewhere), Time::NEVER)?;
    same("migrate of a wildcard listener", progress, Progress::Done)?;
    for id in [client, connecting, bound, idle] {
        b.destroy(Who::Client, id)?;
    }
    for id in [listener, server, unaccepted, wildcard] {
        b.destroy(Who::Server, id)?;
    }
    Ok(())
}

pub(super) fn row_79_a_bond_fails_over<L: Lab>(b: &mut Bench<'_, L>) -> Check {
    // The first one makes the bond.
    b.lab.disturb(Disturbance::FailOver)?;
    let [one, two] = b.net().bonded;
    let bound_id = bound(b, Who::Client, one)?;
    let listener = bound(b, Who::Server, two)?;
    b.server.drive().listen(listener, 10)?;
    wildcard(b)?;
    let resolved = bound(b, Who::Client, one)?;
    b.client.drive().resolve_addr(resolved, None, SocketAddr::new(two, 1), Time::NEVER)?;
    b.expect(Who::Client, resolved, CmEvent::AddrResolved, 0, pdl::NONE)?;
    b.lab.disturb(Disturbance::FailOver)?;
    each_once(b, Who::Client, CmEvent::AddrChange, &[bound_id, resolved], &[])?;
    each_once(b, Who::Server, CmEvent::AddrChange, &[listener], &[])?;
    b.client.drive().resolve_route(resolved, Time::NEVER)?;
    b.expect(Who::Client, resolved, CmEvent::RouteResolved, 0, pdl::NONE).map(drop)
}
