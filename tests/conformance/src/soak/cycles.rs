//! Connect and disconnect, thousands of times.

use std::time::Instant;

use anyhow::{Result, anyhow};
use cmid_harness::{Bench, Check, Failure, Lab, Who};
use cmid_proto::{Acks, ChannelKey, CmEvent, IdKey, Progress, Time};

use crate::usage::Usage;

/// Tables, allocators and librdmacm grow to what they need.
const WARM_UP: u32 = 200;
/// Every so many cycles an id migrates, each time at another point of its life.
const MIGRATE_EVERY: u32 = 10;
const POINTS: u32 = 6;

/// The lengths of private data that RoCE delivers.
const RESPONSE: usize = 196;
const NONE: usize = 0;

/// Runs the cycles and compares what is in use before and after.
pub(crate) fn run<L: Lab>(lab: &L, count: u32, kernel: bool) -> Result<()> {
    let mut bench = Bench::new(lab, Acks::OnDelivery).map_err(told)?;
    bench.listen().map_err(told)?;
    let mut other = Vec::new();
    for who in [Who::Client, Who::Server] {
        other.push(bench.side(who).drive().open_channel(Acks::OnDelivery)?);
    }
    let rooms = Rooms { client: other[0], server: other[1] };
    for cycle in 0..WARM_UP {
        one(&mut bench, rooms, cycle).map_err(told)?;
    }
    // The first line makes the buffer that the others go through.
    println!("{WARM_UP} cycles to warm up, then {count}");
    let before = Usage::now(lab, kernel)?;
    let began = Instant::now();
    let mut migrations = 0;
    for cycle in 0..count {
        migrations += one(&mut bench, rooms, cycle).map_err(|failure| anyhow!("cycle {cycle}: {failure}"))?;
        if (cycle + 1).is_multiple_of(1000) {
            println!("{} cycles in {:.1} s", cycle + 1, began.elapsed().as_secs_f64());
        }
    }
    let after = Usage::now(lab, kernel)?;
    println!("before: {before}\nafter:  {after}");
    after.compare(&before)?;
    bench.clean().map_err(told)?;
    println!("{count} cycles with {migrations} migrations: nothing has grown");
    Ok(())
}

/// A few cycles on a fresh bench.
#[cfg(feature = "verbs")]
pub(crate) fn some<L: Lab>(lab: &L, count: u32) -> Result<()> {
    let mut bench = Bench::new(lab, Acks::OnDelivery).map_err(told)?;
    bench.listen().map_err(told)?;
    for cycle in 0..count {
        plain(&mut bench).map_err(|failure| anyhow!("cycle {cycle}: {failure}"))?;
    }
    bench.clean().map_err(told)
}

/// One connection that nobody migrates.
#[cfg(feature = "verbs")]
pub(crate) fn plain<L: Lab>(b: &mut Bench<'_, L>) -> Check {
    let rooms = Rooms { client: b.client.channel, server: b.server.channel };
    one(b, rooms, 1).map(drop)
}

fn told(failure: Failure) -> anyhow::Error {
    anyhow!("{failure}")
}

/// The channel of each side that ids migrate to.
#[derive(Clone, Copy)]
struct Rooms {
    client: ChannelKey,
    server: ChannelKey,
}

/// One connection; how many migrations were in it.
fn one<L: Lab>(b: &mut Bench<'_, L>, rooms: Rooms, cycle: u32) -> Check<u32> {
    let point = cycle.is_multiple_of(MIGRATE_EVERY).then_some(cycle / MIGRATE_EVERY % POINTS);
    let (mut client_on, mut server_on) = (b.client.channel, b.server.channel);
    let mut migrations = 0;
    let mut migrate = |b: &mut Bench<'_, L>, who: Who, id: IdKey, to: Option<ChannelKey>| -> Check {
        migrations += 1;
        let progress = b.side(who).drive().migrate(id, to, Time::NEVER)?;
        if progress == Progress::Done { Ok(()) } else { Err(Failure(format!("{id} has not migrated"))) }
    };
    let (client, server) = b.requested()?;
    if point == Some(0) {
        // Before it is answered.
        server_on = rooms.server;
        migrate(b, Who::Server, server, Some(server_on))?;
    }
    if point == Some(1) {
        // With the answer pending.
        b.frozen = Some(Who::Client);
    }
    b.accept(server, &[])?;
    if point == Some(1) {
        b.pump(std::time::Duration::from_millis(2))?;
        b.frozen = None;
        client_on = rooms.client;
        migrate(b, Who::Client, client, Some(client_on))?;
    }
    b.expect_on(Who::Client, client_on, client, CmEvent::ConnectResponse, 0, RESPONSE)?;
    b.client.drive().establish(client)?;
    if point == Some(2) {
        // With ESTABLISHED pending, perhaps still in the kernel.
        server_on = rooms.server;
        migrate(b, Who::Server, server, Some(server_on))?;
    }
    b.expect_on(Who::Server, server_on, server, CmEvent::Established, 0, NONE)?;
    if point == Some(3) {
        // Established, there and back again.
        migrate(b, Who::Client, client, Some(rooms.client))?;
        migrate(b, Who::Client, client, Some(client_on))?;
    }
    b.client.drive().disconnect(client, Time::NEVER)?;
    b.expect_on(Who::Server, server_on, server, CmEvent::Disconnected, 0, NONE)?;
    b.server.drive().disconnect(server, Time::NEVER)?;
    if point == Some(4) {
        // Into synchronous mode and out of it, with DISCONNECTED pending.
        migrate(b, Who::Client, client, None)?;
        client_on = rooms.client;
        migrate(b, Who::Client, client, Some(client_on))?;
    }
    b.expect_on(Who::Client, client_on, client, CmEvent::Disconnected, 0, NONE)?;
    if point == Some(5) {
        // In its time wait, and destroyed there.
        migrate(b, Who::Server, server, None)?;
    }
    b.destroy(Who::Client, client)?;
    b.destroy(Who::Server, server)?;
    Ok(migrations)
}
