//! Connect and disconnect, thousands of times.

use std::time::Instant;

use anyhow::{Result, anyhow};
use cmid_harness::{Check, Env, Failure, Fixture, Side};
use cmid_proto::{Acks, ChannelKey, CmEvent, IdKey, Progress, Time};

use crate::usage::Usage;

/// Cycles in which tables, allocators and librdmacm grow to their final size.
const WARM_UP: u32 = 200;
/// An id migrates once in this many cycles, each time at another point of its life.
const MIGRATE_EVERY: u32 = 10;
const POINTS: u32 = 6;

/// The lengths of private data that RoCE delivers.
const RESPONSE: usize = 196;
const NONE: usize = 0;

/// Runs the cycles and compares what is in use before and after.
pub(crate) fn run<L: Env>(env: &L, count: u32, kernel: bool) -> Result<()> {
    let mut fixture = Fixture::new(env, Acks::OnDelivery).map_err(observed)?;
    fixture.listen().map_err(observed)?;
    let mut other = Vec::new();
    for side in [Side::Client, Side::Server] {
        other.push(fixture.endpoint(side).drive().open_channel(Acks::OnDelivery)?);
    }
    let rooms = Rooms { client: other[0], server: other[1] };
    for cycle in 0..WARM_UP {
        one(&mut fixture, rooms, cycle).map_err(observed)?;
    }
    // The first line allocates the output buffer that later lines use.
    println!("{WARM_UP} cycles to warm up, then {count}");
    let before = Usage::now(env, kernel)?;
    let began = Instant::now();
    let mut migrations = 0;
    for cycle in 0..count {
        migrations += one(&mut fixture, rooms, cycle).map_err(|failure| anyhow!("cycle {cycle}: {failure}"))?;
        if (cycle + 1).is_multiple_of(1000) {
            println!("{} cycles in {:.1} s", cycle + 1, began.elapsed().as_secs_f64());
        }
    }
    let after = Usage::now(env, kernel)?;
    println!("before: {before}\nafter:  {after}");
    after.compare(&before)?;
    fixture.clean().map_err(observed)?;
    println!("{count} cycles with {migrations} migrations: nothing has grown");
    Ok(())
}

/// A few cycles on a fresh fixture.
#[cfg(feature = "verbs")]
pub(crate) fn some<L: Env>(env: &L, count: u32) -> Result<()> {
    let mut fixture = Fixture::new(env, Acks::OnDelivery).map_err(observed)?;
    fixture.listen().map_err(observed)?;
    for cycle in 0..count {
        plain(&mut fixture).map_err(|failure| anyhow!("cycle {cycle}: {failure}"))?;
    }
    fixture.clean().map_err(observed)
}

/// One connection without migrations.
#[cfg(feature = "verbs")]
pub(crate) fn plain<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let rooms = Rooms { client: b.client.channel, server: b.server.channel };
    one(b, rooms, 1).map(drop)
}

fn observed(failure: Failure) -> anyhow::Error {
    anyhow!("{failure}")
}

/// The channel of each side that ids migrate to.
#[derive(Clone, Copy)]
struct Rooms {
    client: ChannelKey,
    server: ChannelKey,
}

/// Makes one connection. Returns the number of migrations.
fn one<L: Env>(b: &mut Fixture<'_, L>, rooms: Rooms, cycle: u32) -> Check<u32> {
    let point = cycle.is_multiple_of(MIGRATE_EVERY).then_some(cycle / MIGRATE_EVERY % POINTS);
    let (mut client_on, mut server_on) = (b.client.channel, b.server.channel);
    let mut migrations = 0;
    let mut migrate = |b: &mut Fixture<'_, L>, side: Side, id: IdKey, to: Option<ChannelKey>| -> Check {
        migrations += 1;
        let progress = b.endpoint(side).drive().migrate(id, to, Time::NEVER)?;
        if progress == Progress::Done { Ok(()) } else { Err(Failure(format!("{id} has not migrated"))) }
    };
    let (client, server) = b.requested()?;
    if point == Some(0) {
        // Before the request is answered.
        server_on = rooms.server;
        migrate(b, Side::Server, server, Some(server_on))?;
    }
    if point == Some(1) {
        // With the answer pending.
        b.frozen = Some(Side::Client);
    }
    b.accept(server, &[])?;
    if point == Some(1) {
        b.pump(std::time::Duration::from_millis(2))?;
        b.frozen = None;
        client_on = rooms.client;
        migrate(b, Side::Client, client, Some(client_on))?;
    }
    b.expect_on(Side::Client, client_on, client, CmEvent::ConnectResponse, 0, RESPONSE)?;
    b.client.drive().establish(client)?;
    if point == Some(2) {
        // With ESTABLISHED pending, perhaps still in the kernel.
        server_on = rooms.server;
        migrate(b, Side::Server, server, Some(server_on))?;
    }
    b.expect_on(Side::Server, server_on, server, CmEvent::Established, 0, NONE)?;
    if point == Some(3) {
        // Established, to the other channel and back.
        migrate(b, Side::Client, client, Some(rooms.client))?;
        migrate(b, Side::Client, client, Some(client_on))?;
    }
    b.client.drive().disconnect(client, Time::NEVER)?;
    b.expect_on(Side::Server, server_on, server, CmEvent::Disconnected, 0, NONE)?;
    b.server.drive().disconnect(server, Time::NEVER)?;
    if point == Some(4) {
        // Into synchronous mode and out of it, with DISCONNECTED pending.
        migrate(b, Side::Client, client, None)?;
        client_on = rooms.client;
        migrate(b, Side::Client, client, Some(client_on))?;
    }
    b.expect_on(Side::Client, client_on, client, CmEvent::Disconnected, 0, NONE)?;
    if point == Some(5) {
        // In its time wait, and destroyed there.
        migrate(b, Side::Server, server, None)?;
    }
    b.destroy(Side::Client, client)?;
    b.destroy(Side::Server, server)?;
    Ok(migrations)
}
