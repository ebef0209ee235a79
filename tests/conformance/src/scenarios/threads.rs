//! An id moves to another thread.

use std::thread;
use std::time::{Duration, Instant};

use cmid_harness::failure::{ensure, same};
use cmid_harness::fixture::{SOON, Side, pdl};
use cmid_harness::{Check, Driver, Env, Failure, Fixture};
use cmid_proto::drive::ReleasedId;
use cmid_proto::{Acks, ChannelKey, CmEvent, Device, Event, IdKey, Time};

/// Accepted on one thread; released while its ESTABLISHED is pending in the kernel; adopted by another thread's core
/// and migrated to one of its channels, where the event arrives once.
pub(super) fn an_accepted_id_goes_to_another_thread<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let (client, server) = b.requested()?;
    b.accept(server, &[])?;
    b.frozen = Some(Side::Server);
    b.expect(Side::Client, client, CmEvent::ConnectResponse, 0, pdl::RESPONSE)?;
    b.client.drive().establish(client)?;
    thread::sleep(b.env.quiet());
    // ESTABLISHED is in the kernel now, on the channel of this thread.
    b.server.drive().migrate(server, None, Time::NEVER)?;
    let released_id = b.server.drive().release(server)?;
    same("the old key", b.server.drive().core().state(server), None)?;
    let quiet = b.env.quiet();
    on_another_thread(b.env, released_id, |driver, channel, id| {
        let event = next(driver, channel, SOON)?.ok_or_else(|| Failure("no event after the adoption".into()))?;
        same("on the other thread", (event.id, event.cm(), event.status), (id, Some(CmEvent::Established), 0))?;
        let again = next(driver, channel, quiet)?;
        ensure(again.is_none(), || format!("and again: {again:?}"))?;
        // The client answers once this thread has ended. Only the destruction is left to do here.
        Ok(driver.drive().disconnect(id, Time::NEVER)?)
    })?;
    b.frozen = None;
    b.expect(Side::Client, client, CmEvent::Disconnected, 0, pdl::NONE)?;
    b.quiet(Side::Server)
}

/// An id in transit between two drivers of an environment.
type InTransit<L> = ReleasedId<<<<L as Env>::Driver as Driver>::Device as Device>::Handle>;

/// Starts a fresh driver on a thread of its own. It adopts an id in the state in which it was released, migrates it
/// to a channel, runs the steps, destroys the id, and checks the driver.
pub(super) fn on_another_thread<L: Env>(
    env: &L,
    released_id: InTransit<L>,
    steps: impl FnOnce(&mut L::Driver, ChannelKey, IdKey) -> Check + Send,
) -> Check {
    thread::scope(|scope| {
        let thread = scope.spawn(move || -> Check {
            let mut driver = env.driver()?;
            let channel = driver.drive().open_channel(Acks::OnDelivery)?;
            let state = Some(released_id.state());
            let id = driver.drive().adopt(released_id)?;
            same("adopted", driver.drive().core().state(id), state)?;
            driver.drive().migrate(id, Some(channel), Time::NEVER)?;
            same("migrated", driver.drive().core().state(id), state)?;
            steps(&mut driver, channel, id)?;
            driver.drive().destroy(id, Time::NEVER)?;
            driver.drive().core().check();
            let fault = driver.drive().next_fault();
            ensure(fault.is_none(), || format!("{fault:?}"))
        });
        thread.join().map_err(|_| Failure("the other thread panicked".into()))?
    })
}

/// Returns the next event of a channel, or `None` if none arrives within this time.
pub(super) fn next<S: Driver>(driver: &mut S, on: ChannelKey, at_most: Duration) -> Check<Option<Event>> {
    let end = Instant::now() + at_most;
    loop {
        if let Some(event) = driver.drive().next_event(on) {
            return Ok(Some(event));
        }
        if Instant::now() >= end {
            return Ok(None);
        }
        driver.wait(Some(Duration::from_millis(20)))?;
    }
}
