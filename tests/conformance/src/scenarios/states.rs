//! Ids in each state, and the trigger of the next event from there.

use cmid_harness::fixture::{Side, pdl};
use cmid_harness::{Check, Env, Fixture};
use cmid_proto::{CmEvent, IdKey, Time};

/// The id under test, and the peer's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ids {
    pub(super) id: IdKey,
    pub(super) peer: IdKey,
}

/// A state, and functions to reach and to leave it.
pub(super) struct IdsInState<L: Env> {
    pub(super) name: &'static str,
    pub(super) side: Side,
    pub(super) make: fn(&mut Fixture<'_, L>) -> Check<Ids>,
    /// Causes the event, without running the driver of `side`.
    pub(super) trigger: fn(&mut Fixture<'_, L>, Ids) -> Check,
    /// `None`: the id gets no further event.
    pub(super) event: Option<(CmEvent, usize)>,
}

fn alone(id: IdKey) -> Ids {
    Ids { id, peer: id }
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

/// A function that makes a connection: the client's id and the server's.
type Pair<'env, L> = fn(&mut Fixture<'env, L>) -> Check<(IdKey, IdKey)>;

fn client<'env, L: Env>(b: &mut Fixture<'env, L>, pair: Pair<'env, L>) -> Check<Ids> {
    b.listen()?;
    pair(b).map(|(id, peer)| Ids { id, peer })
}

fn server<'env, L: Env>(b: &mut Fixture<'env, L>, pair: Pair<'env, L>) -> Check<Ids> {
    b.listen()?;
    pair(b).map(|(peer, id)| Ids { id, peer })
}

/// The client reads the answer and confirms it.
fn confirm<L: Env>(b: &mut Fixture<'_, L>, ids: Ids) -> Check {
    b.expect(Side::Client, ids.peer, CmEvent::ConnectResponse, 0, pdl::RESPONSE)?;
    Ok(b.client.drive().establish(ids.peer)?)
}

/// The server disconnects, or answers the client's disconnect.
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
        IdsInState {
            name: "idle",
            side: Client,
            make: |b| b.idle().map(alone),
            trigger: resolve_addr,
            event: Some((AddrResolved, 0)),
        },
        IdsInState {
            name: "bound",
            side: Client,
            make: |b| b.bound().map(alone),
            trigger: resolve_addr,
            event: Some((AddrResolved, 0)),
        },
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
            make: |b| client(b, Fixture::requested),
            trigger: |b, ids| b.accept(ids.peer, &[]),
            event: Some((ConnectResponse, pdl::RESPONSE)),
        },
        IdsInState {
            name: "responded",
            side: Client,
            make: |b| client(b, Fixture::responded),
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
            make: |b| server(b, Fixture::requested),
            trigger: |b, ids| b.accept(ids.id, &[]).and_then(|()| confirm(b, ids)),
            event: Some((Established, 0)),
        },
        IdsInState {
            name: "accepting",
            side: Server,
            make: |b| server(b, Fixture::accepting),
            trigger: confirm,
            event: Some((Established, 0)),
        },
        IdsInState {
            name: "connected",
            side: Client,
            make: |b| client(b, Fixture::connected),
            trigger: server_disconnects,
            event: Some((Disconnected, 0)),
        },
        IdsInState {
            name: "disconnecting",
            side: Client,
            make: |b| client(b, Fixture::disconnecting),
            trigger: server_disconnects,
            event: Some((Disconnected, 0)),
        },
        IdsInState {
            name: "closed by peer",
            side: Server,
            make: |b| server(b, Fixture::disconnecting),
            trigger: |b, ids| Ok(b.server.drive().disconnect(ids.id, Time::NEVER)?),
            event: Some((TimewaitExit, 0)),
        },
        IdsInState {
            name: "time wait",
            side: Client,
            make: |b| client(b, Fixture::time_wait),
            trigger: nothing,
            event: Some((TimewaitExit, 0)),
        },
        IdsInState {
            name: "closed",
            side: Client,
            make: |b| client(b, Fixture::closed),
            trigger: nothing,
            event: None,
        },
        IdsInState {
            name: "failed",
            side: Client,
            make: |b| client(b, Fixture::rejected),
            trigger: nothing,
            event: None,
        },
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
