//! Records the life of two ids from creation to destruction. `recorded_life sim|verbs FILE` writes FILE (the client),
//! FILE.2 (the server) and FILE.3 (the driver that adopts the server's id). `trace/tests/recorded/` is made with it.
//!
//! The life contains migrations with events pending in the kernel and acks owed, a listener that migrates with a
//! request unread, an id that moves to another driver, a refused request, a failing call, and a deadline that passes.
#![forbid(unsafe_code)]

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use cmid_harness::{Check, Devices, Driver, Env, Failure, Fixture, OnEpoll, Side, SimEnv, TracedEnv};
use cmid_proto::{Acks, CmEvent, Error, EventKind, IdKey, PortSpace, Progress, RequestKind, Time};
use cmid_trace::Files;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let result = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["sim", file] => record(SimEnv::<OnEpoll<_, _>>::new(), file),
        #[cfg(feature = "verbs")]
        ["verbs", file] => record(cmid_harness::VerbsEnv::<OnEpoll<_, _>>::new(), file),
        _ => Err(Failure("usage: recorded_life sim|verbs FILE".into())),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}

fn record<L: Devices>(env: L, file: &str) -> Check
where
    L::Device: Send,
{
    let env = TracedEnv::<_, OnEpoll<_, _>>::new(env, Arc::new(Files::at(Path::new(file))));
    let mut fixture = Fixture::new(&env, Acks::Explicit)?;
    life(&mut fixture)?;
    fixture.clean()
}

fn life<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let listener = b.listen()?;
    let client = resolved_on_the_way(b)?;
    let new = b.client.drive().core().channel(client).ok_or_else(|| Failure("it is gone".into()))?;

    // The request is unread when its listener moves.
    let other = b.server.drive().open_channel(Acks::OnDelivery)?;
    b.frozen = Some(Side::Server);
    b.connect(client, b"hello")?;
    std::thread::sleep(b.env.quiet());
    is(b.server.drive().migrate(listener, Some(other), Time::NEVER)?, Progress::Done)?;
    b.frozen = None;
    let server = b.next(Side::Server, other, &CmEvent::ConnectRequest)?.id;
    b.accept(server, b"welcome")?;
    b.expect_on(Side::Client, new, client, CmEvent::ConnectResponse, 0, 196)?;

    // ESTABLISHED is unread when the id leaves for another driver.
    b.frozen = Some(Side::Server);
    b.client.drive().establish(client)?;
    std::thread::sleep(b.env.quiet());
    let mut third = b.env.driver()?;
    let channel = third.drive().open_channel(Acks::Explicit)?;
    is(b.server.drive().migrate(server, None, Time::NEVER)?, Progress::Done)?;
    let released_id = b.server.drive().release(server)?;
    b.frozen = None;
    let server = third.drive().adopt(released_id)?;
    is(third.drive().migrate(server, Some(channel), Time::NEVER)?, Progress::Done)?;
    comes(&mut third, server, CmEvent::Established)?;

    b.client.drive().disconnect(client, Time::NEVER)?;
    comes(&mut third, server, CmEvent::Disconnected)?;
    third.drive().disconnect(server, Time::NEVER)?;
    b.expect_on(Side::Client, new, client, CmEvent::Disconnected, 0, 0)?;
    b.expect_on(Side::Client, new, client, CmEvent::TimewaitExit, 0, 0)?;

    goes_wrong(b)?;
    third.drive().destroy(server, Time::NEVER)?;
    b.destroy(Side::Client, client)?;
    b.destroy(Side::Server, listener)?;
    b.client.drive().close_channel(new)?;
    Ok(b.server.drive().close_channel(other)?)
}

/// A client id with its route resolved. An ack is owed and ROUTE_RESOLVED is in the kernel when it migrates.
fn resolved_on_the_way<L: Env>(b: &mut Fixture<'_, L>) -> Check<IdKey> {
    let (old, there) = (b.client.channel, b.address);
    let id = b.client.drive().create_id(Some(old), PortSpace::Tcp)?;
    let deadline = b.client.drive().within(Duration::from_secs(20));
    b.client.drive().resolve_addr(id, None, there, deadline)?;
    let mut first = b.next(Side::Client, old, &CmEvent::AddrResolved)?;
    let new = b.client.drive().open_channel(Acks::OnDelivery)?;
    b.frozen = Some(Side::Client);
    b.client.drive().resolve_route(id, deadline)?;
    std::thread::sleep(b.env.quiet());
    is(b.client.drive().migrate(id, Some(new), deadline)?, Progress::WhenAcked)?;
    b.ack(Side::Client, &mut first)?;
    b.frozen = None;
    let migrated = b.next(Side::Client, new, &EventKind::Migrated)?;
    is((migrated.id, migrated.kind, migrated.status), (id, EventKind::Migrated, 0))?;
    b.expect_on(Side::Client, new, id, CmEvent::RouteResolved, 0, 0)?;
    Ok(id)
}

/// A refused request, a failing call, and a deadline that passes.
fn goes_wrong<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let (channel, taken) = (b.server.channel, b.address);
    let id = b.server.drive().create_id(Some(channel), PortSpace::Tcp)?;
    is(matches!(b.server.drive().establish(id), Err(Error::Refused(_))), true)?;
    is(matches!(b.server.drive().bind(id, taken), Err(Error::Failed(_))), true)?;
    // The kernel's answer arrives after the deadline.
    let (nobody, deadline) = (b.net().nobody, b.server.drive().within(Duration::from_millis(1)));
    b.server.drive().resolve_addr(id, None, (nobody, 7471).into(), deadline)?;
    std::thread::sleep(Duration::from_millis(5));
    let event = b.next(Side::Server, channel, &EventKind::DeadlinePassed(RequestKind::ResolveAddr))?;
    is(event.kind, EventKind::DeadlinePassed(RequestKind::ResolveAddr))?;
    b.destroy(Side::Server, id)
}

/// Waits for the next event of an id and acks it.
fn comes<S: Driver>(driver: &mut S, id: IdKey, kind: CmEvent) -> Check {
    let end = std::time::Instant::now() + Duration::from_secs(20);
    loop {
        let home = driver.drive().core().channel(id).ok_or_else(|| Failure(format!("{id} is gone")))?;
        if let Some(event) = driver.drive().next_event(home) {
            event.ack_token.map_or(Ok(()), |ack_token| driver.drive().ack(ack_token))?;
            return is((event.id, event.kind, event.status), (id, EventKind::Cm(kind), 0));
        }
        is(std::time::Instant::now() < end, true)?;
        driver.wait(Some(Duration::from_millis(20)))?;
    }
}

fn is<T: PartialEq + std::fmt::Debug>(seen: T, expected: T) -> Check {
    if seen == expected { Ok(()) } else { Err(Failure(format!("{seen:?}, expected {expected:?}"))) }
}
