//! Event channels: behaviours 46 and 47, and several ids on one channel.

use std::time::{Duration, Instant};

use cmid_harness::failure::{ensure, fails, same};
use cmid_harness::fixture::{SOON, Side, pdl};
use cmid_harness::{Check, Env, Fixture};
use cmid_proto::{CmEvent, Device, Errno, PortSpace, Time};

pub(super) fn two_ids_on_one_channel_keep_their_orders<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let one = b.connected()?;
    let two = b.connected()?;
    // The peer ends the second connection first. Events are not read in between, and both orders must still be right.
    b.frozen = Some(Side::Client);
    for (_, server) in [two, one] {
        b.server.drive().disconnect(server, Time::NEVER)?;
        std::thread::sleep(b.env.quiet());
    }
    for (client, _) in [two, one] {
        b.client.drive().disconnect(client, Time::NEVER)?;
    }
    std::thread::sleep(b.env.time_wait());
    b.frozen = None;
    let channel = b.client.channel;
    let mut seen = Vec::new();
    let end = Instant::now() + SOON;
    while seen.len() < 4 {
        ensure(Instant::now() < end, || format!("only {seen:?}"))?;
        b.pump(Duration::from_millis(5))?;
        while let Some(event) = b.client.drive().next_event(channel) {
            seen.push((event.id, event.cm()));
        }
    }
    same("the first to be ended comes first", seen[0], (two.0, Some(CmEvent::Disconnected)))?;
    for (client, _) in [one, two] {
        let own: Vec<_> = seen.iter().filter(|(id, _)| *id == client).map(|(_, kind)| *kind).collect();
        same("an id's own order", own, vec![Some(CmEvent::Disconnected), Some(CmEvent::TimewaitExit)])?;
    }
    Ok(())
}

pub(super) fn a_channel_in_use_is_not_closed<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let id = b.addr_resolved()?;
    let channel = b.client.channel;
    fails("with an id on it", b.client.drive().close_channel(channel), Errno::EBUSY)?;
    b.client.drive().resolve_route(id, Time::NEVER)?;
    b.expect(Side::Client, id, CmEvent::RouteResolved, 0, pdl::NONE)?;
    b.destroy(Side::Client, id)?;
    b.client.drive().close_channel(channel)?;
    fails("twice", b.client.drive().close_channel(channel), Errno::EBADF)?;
    same("channels", b.client.drive().core().channels().count(), 0)
}

pub(super) fn behaviour_46_reading_an_empty_channel_returns_at_once<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let channel = b.client.channel;
    let drive = b.client.drive();
    // A key that the core does not use again, for a child that does not arrive.
    let nobody = drive.create_id(Some(channel), PortSpace::Tcp)?;
    drive.destroy(nobody, Time::NEVER)?;
    let begun = Instant::now();
    let read = drive.device_mut().fetch(channel, nobody)?.map(|raw| raw.kind);
    same("what is there to be read", read, None)?;
    ensure(begun.elapsed() < Duration::from_secs(1), || format!("it took {:?}", begun.elapsed()))
}

/// The core closes no channel that has ids. A driver that is dropped closes all its channels, and the ids end with
/// them.
pub(super) fn behaviour_47_a_channel_is_closed_below_its_ids<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let (client, _) = b.connected()?;
    let channel = b.server.channel;
    fails("with ids on it", b.server.drive().close_channel(channel), Errno::EBUSY)?;
    b.restart(Side::Server)?;
    b.expect(Side::Client, client, CmEvent::Disconnected, 0, pdl::NONE)?;
    let late = b.resolved()?;
    b.connect(late, &[])?;
    b.expect(Side::Client, late, CmEvent::Rejected, 8, pdl::REJECTED).map(drop)
}
