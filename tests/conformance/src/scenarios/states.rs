//! Ids brought into each state, and what makes the next event come from there.

use std::net::SocketAddr;

use cmid_proto::{CmEvent, IdKey, PortSpace, Time};

use crate::fixture::{Side, pdl};
use crate::{Check, Env, Fixture};

/// The id that is looked at, and the peer's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ids {
    pub(super) id: IdKey,
    pub(super) peer: IdKey,
}

/// A state, how to get there and how to leave it.
pub(super) struct IdsInState<L: Env> {
    pub(super) name: &'static str,
    pub(super) side: Side,
    pub(super) make: fn(&mut Fixture<'_, L>) -> Check<Ids>,
    /// Causes the event, without running the driver of `side`.
    pub(super) trigger: fn(&mut Fixture<'_, L>, Ids) -> Check,
    /// `None`: nothing ever happens to the id again.
    pub(super) event: Option<(CmEvent, usize)>,
}

fn alone(id: IdKey) -> Ids {
    Ids { id, peer: id }
}

fn idle<L: Env>(b: &mut Fixture<'_, L>) -> Check<Ids> {
    let channel = b.client.channel;
    Ok(alone(b.client.drive().create_id(Some(channel), PortSpace::Tcp)?))
}

fn bound<L: Env>(b: &mut Fixture<'_, L>) -> Check<Ids> {
    let (ids, here) = (idle(b)?, SocketAddr::new(b.net().client, 0));
    b.client.drive().bind(ids.id, here)?;
    Ok(ids)
}

fn resolve_addr<L: Env>(b: &mut Fixture<'_, L>, ids: Ids) -> Check {
    let address = b.address;
    Ok(b.client.drive().resolve_addr(ids.id, None, address, Time::NEVER)?)
}

fn resolve_route<L: Env>(b: &mut Fixture<'_, L>, ids: Ids) -> Check {
    Ok(b.client.drive().resolve_route(ids.id, Time::NEVER)?)
}

fn connect_and_accept<L: Env>(b: &mut Fixture<'_, L>, ids: Ids) -> Check {
    b.connect(ids.id, &[])?;
    let server = b.expect_any(Side::Server, CmEvent::ConnectRequest)?.id;
    b.accept(server, &[])
}

fn requested<L: Env>(b: &mut Fixture<'_, L>) -> Check<(IdKey, IdKey)> {
    b.listen()?;
    b.requested()
}

fn accepting<L: Env>(b: &mut Fixture<'_, L>) -> Check<(IdKey, IdKey)> {
    let (client, server) = requested(b)?;
    b.accept(server, &[])?;
    Ok((client, server))
}

fn responded<L: Env>(b: &mut Fixture<'_, L>) -> Check<(IdKey, IdKey)> {
    let (client, server) = accepting(b)?;
    b.expect(Side::Client, client, CmEvent::ConnectResponse, 0, pdl::RESPONSE)?;
    Ok((client, server))
}

fn connected<L: Env>(b: &mut Fixture<'_, L>) -> Check<(IdKey, IdKey)> {
    b.listen()?;
    b.connected()
}

fn disconnecting<L: Env>(b: &mut Fixture<'_, L>) -> Check<(IdKey, IdKey)> {
    let (client, server) = connected(b)?;
    b.client.drive().disconnect(client, Time::NEVER)?;
    b.expect(Side::Server, server, CmEvent::Disconnected, 0, pdl::NONE)?;
    Ok((client, server))
}

fn time_wait<L: Env>(b: &mut Fixture<'_, L>) -> Check<(IdKey, IdKey)> {
    let (client, server) = disconnecting(b)?;
    b.server.drive().disconnect(server, Time::NEVER)?;
    b.expect(Side::Client, client, CmEvent::Disconnected, 0, pdl::NONE)?;
    Ok((client, server))
}

fn closed<L: Env>(b: &mut Fixture<'_, L>) -> Check<(IdKey, IdKey)> {
    let (client, server) = time_wait(b)?;
    b.expect(Side::Client, client, CmEvent::TimewaitExit, 0, pdl::NONE)?;
    Ok((client, server))
}

fn failed<L: Env>(b: &mut Fixture<'_, L>) -> Check<Ids> {
    let (client, server) = requested(b)?;
    b.server.drive().reject(server, &[])?;
    b.expect(Side::Client, client, CmEvent::Rejected, 28, pdl::REJECTED)?;
    Ok(Ids { id: client, peer: server })
}

fn client<L: Env>(b: &mut Fixture<'_, L>, pair: fn(&mut Fixture<'_, L>) -> Check<(IdKey, IdKey)>) -> Check<Ids> {
    pair(b).map(|(id, peer)| Ids { id, peer })
}

fn server<L: Env>(b: &mut Fixture<'_, L>, pair: fn(&mut Fixture<'_, L>) -> Check<(IdKey, IdKey)>) -> Check<Ids> {
    pair(b).map(|(peer, id)| Ids { id, peer })
}

/// The client reads the answer and confirms it.
fn confirm<L: Env>(b: &mut Fixture<'_, L>, ids: Ids) -> Check {
    b.expect(Side::Client, ids.peer, CmEvent::ConnectResponse, 0, pdl::RESPONSE)?;
    Ok(b.client.drive().establish(ids.peer)?)
}

/// The server ends the connection, or answers its end.
fn server_disconnects<L: Env>(b: &mut Fixture<'_, L>, ids: Ids) -> Check {
    Ok(b.server.drive().disconnect(ids.peer, Time::NEVER)?)
}

fn nothing<L: Env>(_: &mut Fixture<'_, L>, _: Ids) -> Check {
    Ok(())
}

/// Every state that an id can rest in.
pub(super) fn all_states<L: Env>() -> Vec<IdsInState<L>> {
    use CmEvent::{
        AddrResolved, ConnectRequest, ConnectResponse, Disconnected, Established, RouteResolved, TimewaitExit,
    };
    use Side::{Client, Server};
    vec![
        IdsInState { name: "idle", side: Client, make: idle, trigger: resolve_addr, event: Some((AddrResolved, 0)) },
        IdsInState { name: "bound", side: Client, make: bound, trigger: resolve_addr, event: Some((AddrResolved, 0)) },
        IdsInState {
            name: "address resolved",
            side: Client,
            make: |b| b.addr_resolved().map(alone),
            trigger: resolve_route,
            event: Some((RouteResolved, 0)),
        },
        IdsInState {
            name: "route resolved",
            side: Client,
            make: |b| b.listen().and_then(|_| b.resolved()).map(alone),
            trigger: connect_and_accept,
            event: Some((ConnectResponse, pdl::RESPONSE)),
        },
        IdsInState {
            name: "connecting",
            side: Client,
            make: |b| client(b, requested),
            trigger: |b, ids| b.accept(ids.peer, &[]),
            event: Some((ConnectResponse, pdl::RESPONSE)),
        },
        IdsInState {
            name: "responded",
            side: Client,
            make: |b| client(b, responded),
            trigger: |b, ids| {
                b.client.drive().establish(ids.id)?;
                b.expect(Server, ids.peer, Established, 0, 0)?;
                server_disconnects(b, ids)
            },
            event: Some((Disconnected, 0)),
        },
        IdsInState {
            name: "requested",
            side: Server,
            make: |b| server(b, requested),
            trigger: |b, ids| b.accept(ids.id, &[]).and_then(|()| confirm(b, ids)),
            event: Some((Established, 0)),
        },
        IdsInState {
            name: "accepting",
            side: Server,
            make: |b| server(b, accepting),
            trigger: confirm,
            event: Some((Established, 0)),
        },
        IdsInState {
            name: "connected",
            side: Client,
            make: |b| client(b, connected),
            trigger: server_disconnects,
            event: Some((Disconnected, 0)),
        },
        IdsInState {
            name: "disconnecting",
            side: Client,
            make: |b| client(b, disconnecting),
            trigger: server_disconnects,
            event: Some((Disconnected, 0)),
        },
        IdsInState {
            name: "closed by peer",
            side: Server,
            make: |b| server(b, disconnecting),
            trigger: |b, ids| Ok(b.server.drive().disconnect(ids.id, Time::NEVER)?),
            event: Some((TimewaitExit, 0)),
        },
        IdsInState {
            name: "time wait",
            side: Client,
            make: |b| client(b, time_wait),
            trigger: nothing,
            event: Some((TimewaitExit, 0)),
        },
        IdsInState { name: "closed", side: Client, make: |b| client(b, closed), trigger: nothing, event: None },
        IdsInState { name: "failed", side: Client, make: failed, trigger: nothing, event: None },
        IdsInState {
            name: "listening",
            side: Server,
            make: |b| b.listen().map(alone),
            trigger: |b, _| {
                let id = b.resolved()?;
                b.connect(id, &[])
            },
            event: Some((ConnectRequest, pdl::REQUEST)),
        },
    ]
}
