//! Ids in every state, and listeners, move to the core of another thread.

use std::thread;
use std::time::Duration;

use cmid_harness::failure::{ensure, same};
use cmid_harness::fixture::{SOON, Side, pdl};
use cmid_harness::{Check, Driver, Env, Failure, Fixture};
use cmid_proto::{Acks, CmEvent, Error, RefuseReason, Refused, Time};

use crate::scenarios::states::all_states;
use crate::scenarios::threads::{next, on_another_thread};

/// Each state is preserved: the id leaves a core with a channel of its own, enters another thread's core, and
/// migrates to a channel there. Its life then continues as it would have on the first thread.
pub(super) fn every_state_changes_threads<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    for ids_in_state in all_states::<L>() {
        let mut fresh = Fixture::new(b.env, Acks::OnDelivery)?;
        let ids = (ids_in_state.make)(&mut fresh)?;
        let drive = fresh.endpoint(ids_in_state.side).drive();
        let state = drive.core().state(ids.id);
        drive.migrate(ids.id, None, Time::NEVER)?;
        let released_id = drive.release(ids.id)?;
        same(ids_in_state.name, (drive.core().state(ids.id), Some(released_id.state())), (None, state))?;
        on_another_thread(b.env, released_id, |_, _, _| Ok(()))
            .map_err(|failure| Failure(format!("{}: {failure}", ids_in_state.name)))?;
        fresh.clean()?;
    }
    Ok(())
}

/// The listener moves while requests wait in the kernel and more arrive. The other thread gets each of them once.
pub(super) fn a_listener_changes_threads_with_requests_unread<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let listener = b.listen()?;
    let clients = [b.resolved()?, b.resolved()?, b.resolved()?];
    // One is read and undelivered, one waits in the kernel, one arrives while the listener is in transit.
    b.connect(clients[0], b"0")?;
    let end = std::time::Instant::now() + SOON;
    while !b.server.drive().core().has_events() {
        ensure(std::time::Instant::now() < end, || "no request".into())?;
        b.pump(Duration::from_millis(5))?;
    }
    b.frozen = Some(Side::Server);
    b.connect(clients[1], b"1")?;
    thread::sleep(b.env.quiet());
    let drive = b.server.drive();
    drive.migrate(listener, None, Time::NEVER)?;
    let refused = drive.release(listener);
    let waits = |error| {
        matches!(
            error,
            Error::Refused(Refused::Request { reason: RefuseReason::Busy(_) | RefuseReason::SharesChannel, .. })
        )
    };
    ensure(refused.is_err_and(waits), || "released with a request that nobody has taken".into())?;
    let home = drive.core().channel(listener).ok_or_else(|| Failure("the listener is gone".into()))?;
    let first = drive.next_event(home).ok_or_else(|| Failure("the request that was read is lost".into()))?;
    same("the first", (first.cm(), first.private_data[0]), (Some(CmEvent::ConnectRequest), b'0'))?;
    let channel = b.server.channel;
    b.server.drive().migrate(first.id, Some(channel), Time::NEVER)?;
    let released_id = b.server.drive().release(listener)?;
    b.connect(clients[2], b"2")?;
    let quiet = b.env.quiet();
    on_another_thread(b.env, released_id, |driver, channel, _| {
        for number in *b"12" {
            let event = next(driver, channel, SOON)?.ok_or_else(|| Failure("a request is lost".into()))?;
            same("there", (event.cm(), event.private_data[0]), (Some(CmEvent::ConnectRequest), number))?;
            driver.drive().reject(event.id, &[number])?;
            driver.drive().destroy(event.id, Time::NEVER)?;
        }
        let more = next(driver, channel, quiet)?;
        ensure(more.is_none(), || format!("and another: {more:?}"))
    })?;
    b.frozen = None;
    for (client, number) in [(clients[1], b'1'), (clients[2], b'2')] {
        let event = b.expect(Side::Client, client, CmEvent::Rejected, 28, pdl::REJECTED)?;
        same("the reason", event.private_data[0], number)?;
    }
    b.answer(clients[0], first.id)
}
