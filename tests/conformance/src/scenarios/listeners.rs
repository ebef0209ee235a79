//! Requests that their listener has not read: behaviours 34, 35, 54 and 56.

use std::time::Instant;

use cmid_harness::failure::{ensure, fails, same};
use cmid_harness::fixture::{SOON, Side, pdl};
use cmid_harness::{Check, Env, Failure, Fixture};
use cmid_proto::{Acks, Call, CmEvent, Device, Errno, IdKey, PortSpace, Progress, RejectReason, Time};

/// A client that has sent its request to connect; the server has not read it.
fn unread<L: Env>(b: &mut Fixture<'_, L>) -> Check<IdKey> {
    let client = b.resolved()?;
    b.frozen = Some(Side::Server);
    b.connect(client, &[])?;
    std::thread::sleep(b.env.quiet());
    Ok(client)
}

pub(super) fn behaviour_34_a_second_listen_is_refused_and_the_backlog_stays<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let listener = b.listen_in(PortSpace::Tcp, -1)?;
    fails("listen again", b.server.drive().listen(listener, 1), Errno::EINVAL)?;
    unread(b)?;
    b.frozen = None;
    unread(b)?;
    b.frozen = None;
    b.expect_any(Side::Server, CmEvent::ConnectRequest)?;
    b.expect_any(Side::Server, CmEvent::ConnectRequest).map(drop)
}

/// Past the core: a listen that fails has overwritten the backlog (`ucma_listen`).
pub(super) fn behaviour_34_what_a_second_listen_does<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let listener = b.listen_in(PortSpace::Tcp, -1)?;
    let again = b.server.bare(&Call::Listen { id: listener, backlog: 1 }, &[]);
    same("listen again", again, Err(Errno::EINVAL))?;
    let clients = [b.resolved()?, b.resolved()?];
    b.frozen = Some(Side::Server);
    for client in clients {
        b.connect(client, &[])?;
    }
    std::thread::sleep(b.env.quiet());
    b.frozen = None;
    b.expect_any(Side::Server, CmEvent::ConnectRequest)?;
    b.quiet(Side::Server)
}

pub(super) fn behaviour_35_a_listener_goes_with_its_unread_requests<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let listener = b.listen()?;
    let client = unread(b)?;
    b.destroy(Side::Server, listener)?;
    b.frozen = None;
    b.expect(Side::Client, client, CmEvent::Rejected, 28, pdl::REJECTED)?;
    b.quiet(Side::Server)
}

/// The driver has read the request, but the application has not received it.
pub(super) fn behaviour_35_a_listener_goes_with_requests_that_were_not_taken<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let listener = b.listen()?;
    let client = b.resolved()?;
    b.connect(client, &[])?;
    let last = Instant::now() + SOON;
    while b.server.drive().core().ids().count() < 2 {
        ensure(Instant::now() < last, || "the request was not read".into())?;
        b.pump(b.env.quiet() / 10)?;
    }
    b.destroy(Side::Server, listener)?;
    same("ids after the listener", b.server.drive().core().ids().count(), 0)?;
    b.expect(Side::Client, client, CmEvent::Rejected, 28, pdl::REJECTED)?;
    b.quiet(Side::Server)
}

pub(super) fn behaviour_35_requests_that_were_read_outlive_their_listener<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let listener = b.listen()?;
    let (client, server) = b.requested()?;
    b.destroy(Side::Server, listener)?;
    b.quiet(Side::Client)?;
    b.answer(client, server)?;
    b.confirm(client, server)
}

pub(super) fn behaviour_54_a_listener_takes_its_unread_requests_along<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let listener = b.listen()?;
    let client = unread(b)?;
    let new = b.server.drive().open_channel(Acks::OnDelivery)?;
    let progress = b.server.drive().migrate(listener, Some(new), Time::NEVER)?;
    same("migrate", progress, Progress::Done)?;
    b.frozen = None;
    let request = b.next(Side::Server, new, &CmEvent::ConnectRequest)?;
    same("on the new channel", (request.cm(), request.listener), (Some(CmEvent::ConnectRequest), Some(listener)))?;
    b.answer(client, request.id)?;
    // Later requests go to the new channel too.
    let later = b.resolved()?;
    b.connect(later, &[])?;
    let request = b.next(Side::Server, new, &CmEvent::ConnectRequest)?;
    same("later", (request.cm(), request.listener), (Some(CmEvent::ConnectRequest), Some(listener)))?;
    b.quiet(Side::Server)
}

/// Past the core, which does not know that the id listens. The event moves but the new connection does not. The kernel
/// backend moves it. librdmacm discards the event, and the client waits until the old channel is closed
/// (`ucma_migrate_id`).
pub(super) fn behaviour_54_what_the_kernel_does_to_unread_requests<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let (address, old) = (b.address, b.server.channel);
    let drive = b.server.drive();
    let listener = drive.create_id(Some(old), PortSpace::Tcp)?;
    drive.bind(listener, address)?;
    // A key that the core does not use again, for the children that the device makes.
    let child = drive.create_id(Some(old), PortSpace::Tcp)?;
    drive.destroy(child, Time::NEVER)?;
    let new = drive.open_channel(Acks::OnDelivery)?;
    same("listen", b.server.bare(&Call::Listen { id: listener, backlog: 10 }, &[]), Ok(()))?;
    let first = unread(b)?;
    same("migrate", b.server.bare(&Call::Migrate { id: listener, from: old, to: new }, &[]), Ok(()))?;
    let taken = b.env.takes_unread_requests_along();
    for channel in [old, new] {
        let read = b.server.drive().device_mut().fetch(channel, child)?.map(|raw| raw.kind);
        let there = (taken && channel == new).then_some(CmEvent::ConnectRequest);
        same("the event of the channel", read, there)?;
    }
    if taken {
        same("reject", b.server.bare(&Call::Reject { id: child, reason: RejectReason::Consumer }, &[]), Ok(()))?;
        same("destroy", b.server.bare(&Call::Destroy { id: child }, &[]), Ok(()))?;
        b.expect(Side::Client, first, CmEvent::Rejected, 28, pdl::REJECTED)?;
    } else {
        b.quiet(Side::Client)?;
    }
    let second = b.resolved()?;
    b.connect(second, &[])?;
    let end = Instant::now() + SOON;
    let read = loop {
        if let Some(raw) = b.server.drive().device_mut().fetch(new, child)? {
            break raw.kind;
        }
        ensure(Instant::now() < end, || "the second request never came".into())?;
        b.pump(std::time::Duration::from_millis(5))?;
    };
    same("the second request", read, CmEvent::ConnectRequest)?;
    b.frozen = None;
    b.restart(Side::Server)?;
    let channel = b.client.channel;
    let mut rejected = if taken { vec![first] } else { Vec::new() };
    while rejected.len() < 2 {
        let event = b.next(Side::Client, channel, &"REJECTED")?;
        same("client", (event.cm(), event.status), (Some(CmEvent::Rejected), 28))?;
        rejected.push(event.id);
    }
    rejected.sort_unstable();
    same("who is rejected", rejected, vec![first.min(second), first.max(second)])
}

pub(super) fn behaviour_56_a_synchronous_listener_takes_its_unread_requests_along<L: Env>(
    b: &mut Fixture<'_, L>,
) -> Check {
    let (address, channel) = (b.address, b.server.channel);
    let drive = b.server.drive();
    let listener = drive.create_id(None, PortSpace::Tcp)?;
    drive.bind(listener, address)?;
    drive.listen(listener, 10)?;
    let client = unread(b)?;
    let progress = b.server.drive().migrate(listener, Some(channel), Time::NEVER)?;
    same("migrate", progress, Progress::Done)?;
    b.quiet(Side::Client)?;
    b.frozen = None;
    let request = b.expect_any(Side::Server, CmEvent::ConnectRequest)?;
    let listens = request.listener.ok_or_else(|| Failure("a request without a listener".into()))?;
    same("the listener", listens, listener)?;
    b.answer(client, request.id)?;
    let later = b.resolved()?;
    b.connect(later, &[])?;
    b.expect_any(Side::Server, CmEvent::ConnectRequest).map(drop)
}
