//! Section "synchronous mode": calls complete in order, the completing event stays readable until the next call.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use cmid_harness::failure::{ensure, same};
use cmid_harness::fixture::{SOON, Side, pdl};
use cmid_harness::{Check, Env, Fixture};
use cmid_proto::{CmEvent, Errno, IdKey, PortSpace, State, Time};

/// Waits until the request on a synchronous id has ended. Returns its result, the completing event and its status.
pub(super) fn ended<L: Env>(
    b: &mut Fixture<'_, L>,
    side: Side,
    id: IdKey,
) -> Check<(Result<(), Errno>, Option<CmEvent>, i32)> {
    let end = Instant::now() + SOON;
    loop {
        let core = b.endpoint(side).drive().core();
        if let Some(result) = core.sync_result(id) {
            let event = core.sync_event(id);
            let again = core.sync_event(id);
            same("the completing event, read twice", again.as_ref(), event.as_ref())?;
            let status = event.as_ref().map_or(0, |event| event.status);
            return Ok((result, event.and_then(|event| event.cm()), status));
        }
        ensure(Instant::now() < end, || format!("the request on {id} has not ended"))?;
        b.pump(Duration::from_millis(5))?;
    }
}

/// A synchronous client id with its route resolved.
pub(super) fn resolved<L: Env>(b: &mut Fixture<'_, L>) -> Check<IdKey> {
    let (address, here) = (b.address, SocketAddr::new(b.net().client, 0));
    let drive = b.client.drive();
    let id = drive.create_id(None, PortSpace::Tcp)?;
    same("before the first request", drive.core().sync_result(id), None)?;
    drive.resolve_addr(id, Some(here), address, Time::NEVER)?;
    same("resolve_addr", ended(b, Side::Client, id)?, (Ok(()), Some(CmEvent::AddrResolved), 0))?;
    b.client.drive().resolve_route(id, Time::NEVER)?;
    same("resolve_route", ended(b, Side::Client, id)?, (Ok(()), Some(CmEvent::RouteResolved), 0))?;
    Ok(id)
}

fn connect<L: Env>(b: &mut Fixture<'_, L>, id: IdKey) -> Check {
    let param = b.param();
    Ok(b.client.drive().connect(id, param, &[], Time::NEVER)?)
}

pub(super) fn behaviour_59_a_child_is_accepted_synchronously<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let (client, server) = b.requested()?;
    b.server.drive().migrate(server, None, Time::NEVER)?;
    b.answer(client, server)?;
    same("still open", b.server.drive().core().sync_result(server), None)?;
    b.client.drive().establish(client)?;
    same("accept", ended(b, Side::Server, server)?, (Ok(()), Some(CmEvent::Established), 0))?;
    b.quiet(Side::Server)
}

pub(super) fn behaviour_61_refused_connections<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let nobody = resolved(b)?;
    connect(b, nobody)?;
    let no_listener = (Err(Errno::ECONNREFUSED), Some(CmEvent::Rejected), 8);
    same("no listener", ended(b, Side::Client, nobody)?, no_listener)?;
    b.listen()?;
    let id = resolved(b)?;
    connect(b, id)?;
    let server = b.expect_any(Side::Server, CmEvent::ConnectRequest)?.id;
    b.server.drive().reject(server, &[])?;
    same("rejected", ended(b, Side::Client, id)?, (Err(Errno::ECONNREFUSED), Some(CmEvent::Rejected), 28))
}

pub(super) fn behaviour_62_a_dead_address<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let nobody = SocketAddr::new(b.net().nobody, 1);
    let drive = b.client.drive();
    let id = drive.create_id(None, PortSpace::Tcp)?;
    let deadline = drive.within(Duration::from_secs(2));
    drive.resolve_addr(id, None, nobody, deadline)?;
    let dead = (Err(Errno::ETIMEDOUT), Some(CmEvent::AddrError), -Errno::ETIMEDOUT.0);
    same("resolve_addr", ended(b, Side::Client, id)?, dead)
}

pub(super) fn behaviour_63_connect_without_a_qp<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    b.listen()?;
    let id = resolved(b)?;
    connect(b, id)?;
    let server = b.expect_any(Side::Server, CmEvent::ConnectRequest)?.id;
    b.accept(server, &[])?;
    same("connect", ended(b, Side::Client, id)?, (Ok(()), Some(CmEvent::ConnectResponse), 0))?;
    b.confirm(id, server)?;
    same("client", b.client.drive().core().state(id), Some(State::Connected))
}

pub(super) fn behaviour_64_the_peer_was_first<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    b.listen()?;
    let id = resolved(b)?;
    connect(b, id)?;
    let server = b.expect_any(Side::Server, CmEvent::ConnectRequest)?.id;
    b.accept(server, &[])?;
    same("connect", ended(b, Side::Client, id)?.0, Ok(()))?;
    b.confirm(id, server)?;
    b.server.drive().disconnect(server, Time::NEVER)?;
    b.until(Side::Client, id, State::PeerClosed)?;
    b.client.drive().disconnect(id, Time::NEVER)?;
    same("disconnect", ended(b, Side::Client, id)?, (Ok(()), Some(CmEvent::Disconnected), 0))?;
    b.expect(Side::Server, server, CmEvent::Disconnected, 0, pdl::NONE)?;
    // A second disconnect completes at once: librdmacm's would return with whatever event arrives next.
    b.client.drive().disconnect(id, Time::NEVER)?;
    same("disconnect again", ended(b, Side::Client, id)?, (Ok(()), None, 0))?;
    b.destroy(Side::Client, id)
}

/// Migrates into synchronous mode with an event unread. The event neither completes the next call nor gets lost.
pub(super) fn in_and_out_with_an_event_pending<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    b.listen()?;
    let id = b.addr_resolved()?;
    b.frozen = Some(Side::Client);
    b.client.drive().resolve_route(id, Time::NEVER)?;
    std::thread::sleep(b.env.quiet());
    b.client.drive().migrate(id, None, Time::NEVER)?;
    b.frozen = None;
    b.until(Side::Client, id, State::RouteResolved)?;
    connect(b, id)?;
    let server = b.expect_any(Side::Server, CmEvent::ConnectRequest)?.id;
    same("connect is still open", b.client.drive().core().sync_result(id), None)?;
    b.accept(server, &[])?;
    same("connect", ended(b, Side::Client, id)?, (Ok(()), Some(CmEvent::ConnectResponse), 0))?;
    // Out again: ROUTE_RESOLVED, which completed no call, migrates along; the completing event has been read.
    let channel = b.client.channel;
    b.client.drive().migrate(id, Some(channel), Time::NEVER)?;
    b.expect(Side::Client, id, CmEvent::RouteResolved, 0, pdl::NONE)?;
    b.confirm(id, server)?;
    b.server.drive().disconnect(server, Time::NEVER)?;
    b.expect(Side::Client, id, CmEvent::Disconnected, 0, pdl::NONE)?;
    same("channels", b.client.drive().core().channels().count(), 1)
}
