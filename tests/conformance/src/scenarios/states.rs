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

fn row<L: Env>(
    name: &'static str,
    side: Side,
    make: fn(&mut Fixture<'_, L>) -> Check<Ids>,
    trigger: fn(&mut Fixture<'_, L>, Ids) -> Check,
    event: Option<(CmEvent, usize)>,
) -> IdsInState<L> {
    IdsInState { name, side, make, trigger, event }
}

/// Every state that an id can rest in.
pub(super) fn all_states<L: Env>() -> Vec<IdsInState<L>> {
    use CmEvent::{
        AddrResolved, ConnectRequest, ConnectResponse, Disconnected, Established, RouteResolved, TimewaitExit,
    };
    use Side::{Client, Server};
    vec![
        row("idle", Client, |b| b.idle().map(alone), resolve_addr, Some((AddrResolved, 0))),
        row("bound", Client, |b| b.bound().map(alone), resolve_addr, Some((AddrResolved, 0))),
        row("address resolved", Client, |b| b.addr_resolved().map(alone), resolve_route, Some((RouteResolved, 0))),
        row(
            "route resolved",
            Client,
            |b| b.listen().and_then(|_| b.resolved()).map(alone),
            connect_and_accept,
            Some((ConnectResponse, pdl::RESPONSE)),
        ),
        row(
            "connecting",
            Client,
            |b| client(b, Fixture::requested),
            |b, ids| b.accept(ids.peer, &[]),
            Some((ConnectResponse, pdl::RESPONSE)),
        ),
        row(
            "responded",
            Client,
            |b| client(b, Fixture::responded),
            |b, ids| {
                b.client.drive().establish(ids.id)?;
                b.expect(Server, ids.peer, Established, 0, 0)?;
                server_disconnects(b, ids)
            },
            Some((Disconnected, 0)),
        ),
        row(
            "requested",
            Server,
            |b| server(b, Fixture::requested),
            |b, ids| b.accept(ids.id, &[]).and_then(|()| confirm(b, ids)),
            Some((Established, 0)),
        ),
        row("accepting", Server, |b| server(b, Fixture::accepting), confirm, Some((Established, 0))),
        row("connected", Client, |b| client(b, Fixture::connected), server_disconnects, Some((Disconnected, 0))),
        row(
            "disconnecting",
            Client,
            |b| client(b, Fixture::disconnecting),
            server_disconnects,
            Some((Disconnected, 0)),
        ),
        row(
            "closed by peer",
            Server,
            |b| server(b, Fixture::disconnecting),
            |b, ids| Ok(b.server.drive().disconnect(ids.id, Time::NEVER)?),
            Some((TimewaitExit, 0)),
        ),
        row("time wait", Client, |b| client(b, Fixture::time_wait), nothing, Some((TimewaitExit, 0))),
        row("closed", Client, |b| client(b, Fixture::closed), nothing, None),
        row("failed", Client, |b| client(b, Fixture::rejected), nothing, None),
        row(
            "listening",
            Server,
            |b| b.listen().map(alone),
            |b, _| {
                let id = b.resolved()?;
                b.connect(id, &[])
            },
            Some((ConnectRequest, pdl::REQUEST)),
        ),
    ]
}
