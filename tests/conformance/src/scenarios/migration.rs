//! Rows 50 to 58: events move with their id, and are delivered without anything else having to happen.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use cmid_harness::bench::{SOON, Who, pdl};
use cmid_harness::failure::{ensure, fails, same};
use cmid_harness::{Bench, Check, Failure, Lab, Subject};
use cmid_proto::{Acks, ChannelKey, CmEvent, Errno, EventKind, PortSpace, Progress, Time};

use crate::scenarios::states::{Ids, Stage, stages};

/// Where an event is when its id migrates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pending {
    /// It has not happened yet.
    Not,
    /// In the kernel: the driver has not read it.
    InKernel,
    /// In the core: the application has not taken it.
    InCore,
}

pub(super) fn row_50_in_every_state<L: Lab>(b: &mut Bench<'_, L>) -> Check {
    each_stage(b, Pending::Not)
}

pub(super) fn row_50_in_every_state_with_an_event_pending<L: Lab>(b: &mut Bench<'_, L>) -> Check {
    each_stage(b, Pending::InKernel)?;
    each_stage(b, Pending::InCore)
}

fn each_stage<L: Lab>(b: &mut Bench<'_, L>, pending: Pending) -> Check {
    for stage in stages::<L>() {
        let mut fresh = Bench::new(b.lab, Acks::OnDelivery)?;
        through(&mut fresh, &stage, pending)
            .and_then(|()| fresh.clean())
            .map_err(|Failure(text)| Failure(format!("{}, {pending:?}: {text}", stage.name)))?;
    }
    Ok(())
}

fn through<L: Lab>(b: &mut Bench<'_, L>, stage: &Stage<L>, pending: Pending) -> Check {
    let who = stage.who;
    let ids = (stage.make)(b)?;
    let old = b.side(who).channel;
    let new = b.side(who).drive().open_channel(Acks::OnDelivery)?;
    match (pending, stage.event) {
        (Pending::Not, _) | (_, None) => {}
        (Pending::InKernel, Some((event, _))) => {
            b.frozen = Some(who);
            (stage.trigger)(b, ids)?;
            let lab = b.lab;
            std::thread::sleep(if event == CmEvent::TimewaitExit { lab.time_wait() } else { lab.quiet() });
        }
        (Pending::InCore, Some(_)) => {
            let news = b.side(who).drive().core().news();
            (stage.trigger)(b, ids)?;
            let end = Instant::now() + SOON;
            while b.side(who).drive().core().news() == news {
                ensure(Instant::now() < end, || "the event never reached the driver".into())?;
                b.pump(Duration::from_millis(5))?;
            }
        }
    }
    let progress = b.side(who).drive().migrate(ids.id, Some(new), Time::NEVER)?;
    same("migrate", progress, Progress::Done)?;
    b.frozen = None;
    if pending == Pending::Not {
        (stage.trigger)(b, ids)?;
    }
    arrives(b, stage, ids, old, new)
}

/// The event arrives on the new channel, once, and the old one stays empty.
fn arrives<L: Lab>(b: &mut Bench<'_, L>, stage: &Stage<L>, ids: Ids, old: ChannelKey, new: ChannelKey) -> Check {
    let who = stage.who;
    if let Some((kind, len)) = stage.event {
        let event = b.next(who, new, &kind)?;
        let seen = (event.kind, event.status, event.private_data.len());
        same("on the new channel", seen, (EventKind::Cm(kind), 0, len))?;
        same("the id of the event", event.listener.unwrap_or(event.id), ids.id)?;
    }
    b.quiet_on(who, old, Duration::from_millis(50))?;
    // A later TIMEWAIT_EXIT is another event; everything else would be the same one twice.
    let again = b.side(who).drive().next_event(new);
    ensure(again.as_ref().is_none_or(|event| event.cm() == Some(CmEvent::TimewaitExit)), || {
        format!("a second event on the new channel: {again:?}")
    })
}

pub(super) fn row_51_a_pending_event_is_delivered_without_another_wake_up<L: Lab>(b: &mut Bench<'_, L>) -> Check {
    let id = b.addr_resolved()?;
    let new = b.client.drive().open_channel(Acks::OnDelivery)?;
    // The driver has waited for the new channel before, as one that is blocked there would.
    b.pump(Duration::from_millis(10))?;
    b.frozen = Some(Who::Client);
    b.client.drive().resolve_route(id, Time::NEVER)?;
    std::thread::sleep(b.lab.quiet());
    b.client.drive().migrate(id, Some(new), Time::NEVER)?;
    b.frozen = None;
    // The kernel wakes nobody (semantics of ucma_migrate_id); one wait of the driver must do all the same.
    let begun = Instant::now();
    b.client.driver.wait(Some(Duration::from_secs(5)))?;
    let event = b.client.drive().next_event(new);
    same("after one wait", event.and_then(|event| event.cm()), Some(CmEvent::RouteResolved))?;
    ensure(begun.elapsed() < Duration::from_secs(4), || format!("it took {:?}", begun.elapsed()))
}

pub(super) fn row_53_to_the_same_channel_goes_last<L: Lab>(b: &mut Bench<'_, L>) -> Check {
    let (first, second) = (b.addr_resolved()?, b.addr_resolved()?);
    let channel = b.client.channel;
    b.frozen = Some(Who::Client);
    for id in [first, second] {
        b.client.drive().resolve_route(id, Time::NEVER)?;
        std::thread::sleep(b.lab.quiet());
    }
    b.client.drive().migrate(first, Some(channel), Time::NEVER)?;
    b.frozen = None;
    b.expect(Who::Client, second, CmEvent::RouteResolved, 0, pdl::NONE)?;
    b.expect(Who::Client, first, CmEvent::RouteResolved, 0, pdl::NONE).map(drop)
}

pub(super) fn row_57_to_a_channel_that_is_not_there<L: Lab>(b: &mut Bench<'_, L>) -> Check {
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
    b.expect(Who::Client, id, CmEvent::RouteResolved, 0, pdl::NONE).map(drop)
}

pub(super) fn row_58_a_child_before_its_accept<L: Lab>(b: &mut Bench<'_, L>) -> Check {
    b.listen()?;
    let (client, server) = b.requested()?;
    let other = b.server.drive().open_channel(Acks::OnDelivery)?;
    b.server.drive().migrate(server, Some(other), Time::NEVER)?;
    b.accept(server, &[])?;
    b.expect(Who::Client, client, CmEvent::ConnectResponse, 0, pdl::RESPONSE)?;
    b.client.drive().establish(client)?;
    b.expect_on(Who::Server, other, server, CmEvent::Established, 0, pdl::NONE)?;
    b.quiet(Who::Server)?;
    // The listener stays where it is, and goes on.
    let (address, here, channel) = (b.address, SocketAddr::new(b.net().client, 0), b.client.channel);
    let drive = b.client.drive();
    let second = drive.create_id(Some(channel), PortSpace::Tcp)?;
    drive.resolve_addr(second, Some(here), address, Time::NEVER)?;
    b.expect(Who::Client, second, CmEvent::AddrResolved, 0, pdl::NONE)?;
    b.client.drive().resolve_route(second, Time::NEVER)?;
    b.expect(Who::Client, second, CmEvent::RouteResolved, 0, pdl::NONE)?;
    b.connect(second, &[])?;
    b.expect_any(Who::Server, CmEvent::ConnectRequest).map(drop)
}
