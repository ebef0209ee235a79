//! The ack discipline of the man pages, kept by the core: an operation that needs acks is deferred without blocking a
//! thread.

use std::time::Duration;

use cmid_harness::failure::{ensure, fails, same};
use cmid_harness::fixture::{Side, pdl};
use cmid_harness::{Check, Env, Failure, Fixture};
use cmid_proto::datapath::DataPath;
use cmid_proto::{AckToken, Acks, Call, CmEvent, Device, Errno, EventKind, IdKey, PortSpace, Progress, State, Time};

/// An id of the client with ROUTE_RESOLVED delivered and not acked.
fn owing<L: Env>(b: &mut Fixture<'_, L>) -> Check<(IdKey, AckToken)> {
    let id = b.addr_resolved()?;
    b.client.drive().resolve_route(id, Time::NEVER)?;
    let channel = b.client.channel;
    let event = b.next(Side::Client, channel, &CmEvent::RouteResolved)?;
    same("owed", b.client.drive().core().id_info(id).map_or(0, |it| it.owed), 1)?;
    let ack_token = event.ack_token.ok_or_else(|| Failure("an event without an ack token".into()))?;
    Ok((id, ack_token))
}

pub(super) fn behaviour_48_destroy_waits_for_acks_and_nobody_waits<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let (id, ack_token) = owing(b)?;
    let progress = b.client.drive().destroy(id, Time::NEVER)?;
    same("destroy", progress, Progress::WhenAcked)?;
    same("client", b.client.drive().core().state(id), Some(State::Destroying))?;
    b.quiet(Side::Client)?;
    b.client.drive().ack(ack_token)?;
    let channel = b.client.channel;
    let event = b.next(Side::Client, channel, &EventKind::Destroyed)?;
    same("client", (event.id, event.kind, event.status), (id, EventKind::Destroyed, 0))?;
    same("ids", b.client.drive().core().ids().count(), 0)
}

pub(super) fn behaviour_49_a_request_counts_on_its_listener<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let listener = b.listen()?;
    let client = b.resolved()?;
    b.connect(client, &[])?;
    let channel = b.server.channel;
    let event = b.next(Side::Server, channel, &CmEvent::ConnectRequest)?;
    let (server, ack_token) = (event.id, event.ack_token.ok_or_else(|| Failure("no ack token".into()))?);
    b.destroy(Side::Server, server)?;
    b.expect(Side::Client, client, CmEvent::Rejected, 28, pdl::REJECTED)?;
    let progress = b.server.drive().destroy(listener, Time::NEVER)?;
    same("destroy of the listener", progress, Progress::WhenAcked)?;
    b.server.drive().ack(ack_token)?;
    let event = b.next(Side::Server, channel, &EventKind::Destroyed)?;
    same("server", (event.id, event.kind), (listener, EventKind::Destroyed))
}

pub(super) fn behaviour_52_migrate_waits_for_acks_and_nobody_waits<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    b.listen()?;
    let (id, ack_token) = owing(b)?;
    let new = b.client.drive().open_channel(Acks::OnDelivery)?;
    let progress = b.client.drive().migrate(id, Some(new), Time::NEVER)?;
    same("migrate", progress, Progress::WhenAcked)?;
    let param = b.param();
    let busy = b.client.drive().connect(id, param, &[], Time::NEVER);
    fails("connect meanwhile", busy, Errno::EBUSY)?;
    b.quiet(Side::Client)?;
    b.client.drive().ack(ack_token)?;
    let event = b.next(Side::Client, new, &EventKind::Migrated)?;
    same("client", (event.id, event.kind, event.status), (id, EventKind::Migrated, 0))?;
    b.connect(id, &[])?;
    let server = b.expect_any(Side::Server, CmEvent::ConnectRequest)?.id;
    b.accept(server, &[])?;
    b.expect_on(Side::Client, new, id, CmEvent::ConnectResponse, 0, pdl::RESPONSE).map(drop)
}

pub(super) fn behaviour_58_a_child_whose_request_is_not_acked<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    b.listen()?;
    let client = b.resolved()?;
    b.connect(client, &[])?;
    let channel = b.server.channel;
    let event = b.next(Side::Server, channel, &CmEvent::ConnectRequest)?;
    let (server, ack_token) = (event.id, event.ack_token.ok_or_else(|| Failure("no ack token".into()))?);
    let other = b.server.drive().open_channel(Acks::OnDelivery)?;
    same("migrate", b.server.drive().migrate(server, Some(other), Time::NEVER)?, Progress::Done)?;
    b.answer(client, server)?;
    b.client.drive().establish(client)?;
    b.expect_on(Side::Server, other, server, CmEvent::Established, 0, pdl::NONE)?;
    b.server.drive().ack(ack_token)?;
    b.quiet(Side::Server)
}

pub(super) fn deadlines_end_what_waits_for_acks<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let (id, ack_token) = owing(b)?;
    let channel = b.client.channel;
    let new = b.client.drive().open_channel(Acks::OnDelivery)?;
    let deadline = b.client.drive().within(Duration::from_millis(100));
    b.client.drive().migrate(id, Some(new), deadline)?;
    let event = b.next(Side::Client, channel, &EventKind::Migrated)?;
    same("migrate", (event.kind, event.status), (EventKind::Migrated, -Errno::ETIMEDOUT.0))?;
    same("still", b.client.drive().core().channel(id), Some(channel))?;
    let deadline = b.client.drive().within(Duration::from_millis(100));
    b.client.drive().destroy(id, deadline)?;
    let event = b.next(Side::Client, channel, &EventKind::Destroyed)?;
    same("destroy", (event.kind, event.status), (EventKind::Destroyed, -Errno::ETIMEDOUT.0))?;
    b.client.drive().ack(ack_token)?;
    same("destroy", b.client.drive().destroy(id, Time::NEVER)?, Progress::Done)
}

pub(super) fn a_driver_refuses_keys_and_receipts_of_another<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let (id, ack_token) = owing(b)?;
    let (listener, channel, address) = (b.listen()?, b.client.channel, b.address);
    same("slots", (id.slot(), id.generation()), (listener.slot(), listener.generation()))?;
    let numbers = [id.core(), listener.core()];
    ensure(numbers[0] != numbers[1], || format!("both drivers have the number {}", numbers[0]))?;

    let server = b.server.drive();
    fails("bind", server.bind(id, address), Errno::ENOENT)?;
    fails("migrate", server.migrate(id, None, Time::NEVER), Errno::ENOENT)?;
    fails("destroy", server.destroy(id, Time::NEVER), Errno::ENOENT)?;
    fails("create", server.create_id(Some(channel), PortSpace::Tcp), Errno::EBADF)?;
    fails("migrate to", server.migrate(listener, Some(channel), Time::NEVER), Errno::EBADF)?;
    fails("close", server.close_channel(channel), Errno::EBADF)?;
    same("its address", server.device().local_addr(id), Err(Errno::ENOENT))?;
    same("a PD on it", server.device_mut().alloc_pd(id).map(drop).map_err(Errno::from), Err(Errno::ENOENT))?;
    same("a bare call", b.server.bare(&Call::Listen { id, backlog: 1 }, &[]), Err(Errno::ENOENT))?;
    same("a bare close", b.server.bare(&Call::CloseChannel { channel }, &[]), Err(Errno::EBADF))?;

    let server = b.server.drive();
    let refused =
        server.ack(ack_token).err().ok_or_else(|| Failure("it took an ack token of another driver".into()))?;
    same("listener", server.core().state(listener), Some(State::Listening))?;
    same("owed", b.client.drive().core().id_info(id).map_or(0, |it| it.owed), 1)?;
    b.client.drive().ack(refused.ack_token)?;
    b.destroy(Side::Client, id)?;
    b.destroy(Side::Server, listener)
}

pub(super) fn a_lost_receipt_does_not_make_an_id_immortal<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let (connected, lost) = owing(b)?;
    let (waiting, lost_too) = owing(b)?;
    same("destroy", b.client.drive().destroy(waiting, Time::NEVER)?, Progress::WhenAcked)?;
    let core = b.client.drive().core();
    let owing = [connected, waiting].map(|id| core.id_info(id).map(|it| it.owed));
    same("acks that the ids owe", owing, [Some(1), Some(1)])?;

    // The listener owes the ack of a request. Its destruction is reported to the peer.
    let listener = b.listen()?;
    b.connect(connected, &[])?;
    let channel = b.server.channel;
    let event = b.next(Side::Server, channel, &CmEvent::ConnectRequest)?;
    let (server, of_listener) = (event.id, event.ack_token.ok_or_else(|| Failure("no ack token".into()))?);
    same("destroy of the listener", b.server.drive().destroy(listener, Time::NEVER)?, Progress::WhenAcked)?;
    b.server.drive().destroy_now(listener)?;
    b.destroy(Side::Server, server)?;
    same("ids of the server", b.server.drive().core().ids().count(), 0)?;
    b.expect(Side::Client, connected, CmEvent::Rejected, 28, pdl::REJECTED)?;

    b.client.drive().destroy_now(connected)?;
    b.client.drive().destroy_now(waiting)?;
    same("ids of the client", b.client.drive().core().ids().count(), 0)?;
    b.quiet(Side::Client)?;
    for (side, ack_token) in [(Side::Client, lost), (Side::Client, lost_too), (Side::Server, of_listener)] {
        let owner = ack_token.owner();
        let refused = b.endpoint(side).drive().ack(ack_token).err().map(|refused| refused.ack_token.owner());
        same("an ack token that comes too late is given back", refused, Some(owner))?;
    }
    Ok(())
}
