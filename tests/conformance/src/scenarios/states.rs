//! Ids brought into each state, and what makes the next event come from there.

use std::net::SocketAddr;

use cmid_harness::bench::{Who, pdl};
use cmid_harness::{Bench, Check, Lab};
use cmid_proto::{CmEvent, IdKey, PortSpace, Time};

/// The id that is looked at, and the peer's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ids {
    pub(super) id: IdKey,
    pub(super) peer: IdKey,
}

/// A state, how to get there and how to leave it.
pub(super) struct Stage<L: Lab> {
    pub(super) name: &'static str,
    pub(super) who: Who,
    pub(super) make: fn(&mut Bench<'_, L>) -> Check<Ids>,
    /// Causes the event, without running the driver of `who`.
    pub(super) trigger: fn(&mut Bench<'_, L>, Ids) -> Check,
    /// `None`: nothing ever happens to the id again.
    pub(super) event: Option<(CmEvent, usize)>,
}

fn alone(id: IdKey) -> Ids {
    Ids { id, peer: id }
}

fn idle<L: Lab>(b: &mut Bench<'_, L>) -> Check<Ids> {
    let channel = b.client.channel;
    Ok(alone(b.client.drive().create_id(Some(channel), PortSpace::Tcp)?))
}

fn bound<L: Lab>(b: &mut Bench<'_, L>) -> Check<Ids> {
    let (ids, here) = (idle(b)?, SocketAddr::new(b.net().client, 0));
    b.client.drive().bind(ids.id, here)?;
    Ok(ids)
}

fn resolve_addr<L: Lab>(b: &mut Bench<'_, L>, ids: Ids) -> Check {
    let address = b.address;
    Ok(b.client.drive().resolve_addr(ids.id, None, address, Time::NEVER)?)
}

fn resolve_route<L: Lab>(b: &mut Bench<'_, L>, ids: Ids) -> Check {
    Ok(b.client.drive().resolve_route(ids.id, Time::NEVER)?)
}

fn connect_and_accept<L: Lab>(b: &mut Bench<'_, L>, ids: Ids) -> Check {
    b.connect(ids.id, &[])?;
    let server = b.expect_any(Who::Server, CmEvent::ConnectRequest)?.id;
    b.accept(server, &[])
}

fn requested<L: Lab>(b: &mut Bench<'_, L>) -> Check<(IdKey, IdKey)> {
    b.listen()?;
    b.requested()
}

fn accepting<L: Lab>(b: &mut Bench<'_, L>) -> Check<(IdKey, IdKey)> {
    let (client, server) = requested(b)?;
    b.accept(server, &[])?;
    Ok((client, server))
}

fn responded<L: Lab>(b: &mut Bench<'_, L>) -> Check<(IdKey, IdKey)> {
    let (client, server) = accepting(b)?;
    b.expect(Who::Client, client, CmEvent::ConnectResponse, 0, pdl::RESPONSE)?;
    Ok((client, server))
}

fn connected<L: Lab>(b: &mut Bench<'_, L>) -> Check<(IdKey, IdKey)> {
    b.listen()?;
    b.connected()
}

fn disconnecting<L: Lab>(b: &mut Bench<'_, L>) -> Check<(IdKey, IdKey)> {
    let (client, server) = connected(b)?;
    b.client.drive().disconnect(client, Time::NEVER)?;
    b.expect(Who::Server, server, CmEvent::Disconnected, 0, pdl::NONE)?;
    Ok((client, server))
}

fn time_wait<L: Lab>(b: &mut Bench<'_, L>) -> Check<(IdKey, IdKey)> {
    let (client, server) = disconnecting(b)?;
    b.server.drive().disconnect(server, Time::NEVER)?;
    b.expect(Who::Client, client, CmEvent::Disconnected, 0, pdl::NONE)?;
    Ok((client, server))
}

fn closed<L: Lab>(b: &mut Bench<'_, L>) -> Check<(IdKey, IdKey)> {
    let (client, server) = time_wait(b)?;
    b.expect(Who::Client, client, CmEvent::TimewaitExit, 0, pdl::NONE)?;
    Ok((client, server))
}

fn failed<L: Lab>(b: &mut Bench<'_, L>) -> Check<Ids> {
    let (client, server) = requested(b)?;
    b.server.drive().reject(server, &[])?;
    b.expect(Who::Client, client, CmEvent::Rejected, 28, pdl::REJECTED)?;
    Ok(Ids { id: client, peer: server })
}

fn client<L: Lab>(b: &mut Bench<'_, L>, pair: fn(&mut Bench<'_, L>) -> Check<(IdKey, IdKey)>) -> Check<Ids> {
    pair(b).map(|(id, peer)| Ids { id, peer })
}

fn server<L: Lab>(b: &mut Bench<'_, L>, pair: fn(&mut Bench<'_, L>) -> Check<(IdKey, IdKey)>) -> Check<Ids> {
    pair(b).map(|(peer, id)| Ids { id, peer })
}

/// The client reads the answer and confirms it.
fn confirm<L: Lab>(b: &mut Bench<'_, L>, ids: Ids) -> Check {
    b.expect(Who::Client, ids.peer, CmEvent::ConnectResponse, 0, pdl::RESPONSE)?;
    Ok(b.client.drive().establish(ids.peer)?)
}

/// The server ends the connection, or answers its end.
fn server_disconnects<L: Lab>(b: &mut Bench<'_, L>, ids: Ids) -> Check {
    Ok(b.server.drive().disconnect(ids.peer, Time::NEVER)?)
}

fn nothing<L: Lab>(_: &mut Bench<'_, L>, _: Ids) -> Check {
    Ok(())
}

/// Every state that an id can rest in.
pub(super) fn stages<L: Lab>() -> Vec<Stage<L>> {
    use CmEvent::{
        AddrResolved, ConnectRequest, ConnectResponse, Disconnected, Established, RouteResolved, TimewaitExit,
    };
    use Who::{Client, Server};
    vec![
        Stage { name: "idle", who: Client, make: idle, trigger: resolve_addr, event: Some((AddrResolved, 0)) },
        Stage { name: "bound", who: Client, make: bound, trigger: resolve_addr, event: Some((AddrResolved, 0)) },
        Stage {
            name: "address resolved",
            who: Client,
            make: |b| b.addr_resolved().map(alone),
            trigger: resolve_route,
            event: Some((RouteResolved, 0)),
        },
        Stage {
            name: "route resolved",
            who: Client,
            make: |b| b.listen().and_then(|_| b.resolved()).map(alone),
            trigger: connect_and_accept,
            event: Some((ConnectResponse, pdl::RESPONSE)),
        },
        Stage {
            name: "connecting",
            who: Client,
            make: |b| client(b, requested),
            trigger: |b, ids| b.accept(ids.peer, &[]),
            event: Some((ConnectResponse, pdl::RESPONSE)),
        },
        Stage {
            name: "responded",
            who: Client,
            make: |b| client(b, responded),
            trigger: |b, ids| {
                b.client.drive().establish(ids.id)?;
                b.expect(Server, ids.peer, Established, 0, 0)?;
                server_disconnects(b, ids)
            },
            event: Some((Disconnected, 0)),
        },
        Stage {
            name: "requested",
            who: Server,
            make: |b| server(b, requested),
            trigger: |b, ids| b.accept(ids.id, &[]).and_then(|()| confirm(b, ids)),
            event: Some((Established, 0)),
        },
        Stage {
            name: "accepting",
            who: Server,
            make: |b| server(b, accepting),
            trigger: confirm,
            event: Some((Established, 0)),
        },
        Stage {
            name: "connected",
            who: Client,
            make: |b| client(b, connected),
            trigger: server_disconnects,
            event: Some((Disconnected, 0)),
        },
        Stage {
            name: "disconnecting",
            who: Client,
            make: |b| client(b, disconnecting),
            trigger: server_disconnects,
            event: Some((Disconnected, 0)),
        },
        Stage {
            name: "closed by peer",
            who: Server,
            make: |b| server(b, disconnecting),
            trigger: |b, ids| Ok(b.server.drive().disconnect(ids.id, Time::NEVER)?),
            event: Some((TimewaitExit, 0)),
        },
        Stage {
            name: "time wait",
            who: Client,
            make: |b| client(b, time_wait),
            trigger: nothing,
            event: Some((TimewaitExit, 0)),
        },
        Stage { name: "closed", who: Client, make: |b| client(b, closed), trigger: nothing, event: None },
        Stage { name: "failed", who: Client, make: failed, trigger: nothing, event: None },
        Stage {
            name: "listening",
            who: Server,
            make: |b| b.listen().map(alone),
            trigger: |b, _| {
                let id = b.resolved()?;
                b.connect(id, &[])
            },
            event: Some((ConnectRequest, pdl::REQUEST)),
        },
    ]
}
