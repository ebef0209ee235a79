//! Behaviours 50 to 58: events migrate with their id, and are delivered without a further trigger.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use cmid_harness::failure::{ensure, fails, same};
use cmid_harness::fixture::{SOON, Side, pdl};
use cmid_harness::{Check, Driver, Env, Failure, Fixture};
use cmid_proto::{Acks, ChannelKey, CmEvent, Errno, EventKind, PortSpace, Progress, Time};

use crate::scenarios::states::{Ids, IdsInState, all_states};

/// The place of an event when its id migrates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pending {
    /// It has not happened yet.
    Not,
    /// In the kernel, and not reported to the driver.
    InKernel,
    /// Reported to the driver: the application has not taken it. The request to a listener is in the core, other events
    /// are in the kernel.
    Reported,
}

pub(super) fn behaviour_50_in_every_state<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    each_stage(b, Pending::Not)
}

pub(super) fn behaviour_50_in_every_state_with_an_event_pending<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    each_stage(b, Pending::InKernel)?;
    each_stage(b, Pending::Reported)
}

fn each_stage<L: Env>(b: &mut Fixture<'_, L>, pending: Pending) -> Check {
    for ids_in_state in all_states::<L>() {
        let mut fresh = Fixture::new(b.env, Acks::OnDelivery)?;
        through(&mut fresh, &ids_in_state, pending)
            .and_then(|()| fresh.clean())
            .map_err(|Failure(text)| Failure(format!("{}, {pending:?}: {text}", ids_in_state.name)))?;
    }
    Ok(())
}

fn through<L: Env>(b: &mut Fixture<'_, L>, ids_in_state: &IdsInState<L>, pending: Pending) -> Check {
    let side = ids_in_state.side;
    let ids = (ids_in_state.make)(b)?;
    let old = b.endpoint(side).channel;
    let new = b.endpoint(side).drive().open_channel(Acks::OnDelivery)?;
    match (pending, ids_in_state.event) {
        (Pending::Not, _) | (_, None) => {}
        (Pending::InKernel, Some((event, _))) => {
            b.frozen = Some(side);
            (ids_in_state.trigger)(b, ids)?;
            let env = b.env;
            std::thread::sleep(if event == CmEvent::TimewaitExit { env.time_wait() } else { env.quiet() });
        }
        (Pending::Reported, Some(_)) => {
            // A channel that may have events is no report yet.
            same("an earlier event", b.endpoint(side).drive().next_event(old), None)?;
            (ids_in_state.trigger)(b, ids)?;
            let end = Instant::now() + SOON;
            while !b.endpoint(side).drive().core().may_have_event(old) {
                ensure(Instant::now() < end, || "the event never reached the driver".into())?;
                b.pump(Duration::from_millis(5))?;
            }
        }
    }
    let progress = b.endpoint(side).drive().migrate(ids.id, Some(new), Time::NEVER)?;
    same("migrate", progress, Progress::Done)?;
    b.frozen = None;
    if pending == Pending::Not {
        (ids_in_state.trigger)(b, ids)?;
    }
    arrives(b, ids_in_state, ids, old, new)
}

/// Expects the event on the new channel, once. The old channel stays empty.
fn arrives<L: Env>(
    b: &mut Fixture<'_, L>,
    ids_in_state: &IdsInState<L>,
    ids: Ids,
    old: ChannelKey,
    new: ChannelKey,
) -> Check {
    let side = ids_in_state.side;
    if let Some((kind, len)) = ids_in_state.event {
        let event = b.next(side, new, &kind)?;
        let seen = (event.kind, event.status, event.private_data.len());
        same("on the new channel", seen, (EventKind::Cm(kind), 0, len))?;
        same("the id of the event", event.listener.unwrap_or(event.id), ids.id)?;
    }
    b.quiet_on(side, old, Duration::from_millis(50))?;
    // A later TIMEWAIT_EXIT is another event; any other event would be a duplicate.
    let again = b.endpoint(side).drive().next_event(new);
    ensure(again.as_ref().is_none_or(|event| event.cm() == Some(CmEvent::TimewaitExit)), || {
        format!("a second event on the new channel: {again:?}")
    })
}

pub(super) fn behaviour_51_a_pending_event_is_delivered_without_another_wake_up<L: Env>(
    b: &mut Fixture<'_, L>,
) -> Check {
    let id = b.addr_resolved()?;
    let new = b.client.drive().open_channel(Acks::OnDelivery)?;
    // The driver has already waited on the new channel, like one that blocks there.
    b.pump(Duration::from_millis(10))?;
    b.frozen = Some(Side::Client);
    b.client.drive().resolve_route(id, Time::NEVER)?;
    std::thread::sleep(b.env.quiet());
    b.client.drive().migrate(id, Some(new), Time::NEVER)?;
    b.frozen = None;
    // The kernel does not wake waiters of the channel (semantics of ucma_migrate_id). One wait of the driver must
    // suffice all the same.
    let begun = Instant::now();
    b.client.driver.wait(Some(Duration::from_secs(5)))?;
    let event = b.client.drive().next_event(new);
    same("after one wait", event.and_then(|event| event.cm()), Some(CmEvent::RouteResolved))?;
    ensure(begun.elapsed() < Duration::from_secs(4), || format!("it took {:?}", begun.elapsed()))
}

pub(super) fn behaviour_53_to_the_same_channel_goes_last<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let (first, second) = (b.addr_resolved()?, b.addr_resolved()?);
    let channel = b.client.channel;
    b.frozen = Some(Side::Client);
    for id in [first, second] {
        b.client.drive().resolve_route(id, Time::NEVER)?;
        std::thread::sleep(b.env.quiet());
    }
    b.client.drive().migrate(first, Some(channel), Time::NEVER)?;
    b.frozen = None;
    b.expect(Side::Client, second, CmEvent::RouteResolved, 0, pdl::NONE)?;
    b.expect(Side::Client, first, CmEvent::RouteResolved, 0, pdl::NONE).map(drop)
}

pub(super) fn behaviour_57_to_a_channel_that_is_not_there<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let id = b.addr_resolved()?;
    let drive = b.client.drive();
    let gone = drive.open_channel(Acks::OnDelivery)?;
    drive.close_channel(gone)?;
    fails("to a closed channel", drive.migrate(id, Some(gone), Time::NEVER), Errno::EBADF)?;
    drive.migrate(id, None, Time::NEVER)?;
    fails("to synchronous mode, twice", drive.migrate(id, None, Time::NEVER), Errno::EINVAL)?;
    let channel = b.client.channel;
    let drive = b.client.drive();
    drive.migrate(id, Some(channel), Time::NEVER)?;
    drive.resolve_route(id, Time::NEVER)?;
    b.expect(Side::Client, id, CmEvent::RouteResolved, 0, pdl::NONE).map(drop)
}

pub(super) fn behaviour_58_a_child_before_its_accept<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let (client, server) = b.requested()?;
    let other = b.server.drive().open_channel(Acks::OnDelivery)?;
    b.server.drive().migrate(server, Some(other), Time::NEVER)?;
    b.answer(client, server)?;
    b.client.drive().establish(client)?;
    b.expect_on(Side::Server, other, server, CmEvent::Established, 0, pdl::NONE)?;
    b.quiet(Side::Server)?;
    // The listener stays on its channel and continues.
    let (address, here, channel) = (b.address, SocketAddr::new(b.net().client, 0), b.client.channel);
    let drive = b.client.drive();
    let second = drive.create_id(Some(channel), PortSpace::Tcp)?;
    drive.resolve_addr(second, Some(here), address, Time::NEVER)?;
    b.expect(Side::Client, second, CmEvent::AddrResolved, 0, pdl::NONE)?;
    b.client.drive().resolve_route(second, Time::NEVER)?;
    b.expect(Side::Client, second, CmEvent::RouteResolved, 0, pdl::NONE)?;
    b.connect(second, &[])?;
    b.expect_any(Side::Server, CmEvent::ConnectRequest).map(drop)
}
