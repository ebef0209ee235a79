//! Ids in every state, and listeners, go to another thread's core.

use std::thread;
use std::time::Duration;

use cmid_harness::bench::{SOON, Who, pdl};
use cmid_harness::failure::{ensure, same};
use cmid_harness::{Bench, Check, Failure, Lab, Subject};
use cmid_proto::{Acks, CmEvent, Error, Refused, Time, Why};

use crate::scenarios::states::stages;
use crate::scenarios::threads::{next, on_another_thread};

/// Each state survives the way: out of a core with a channel of its own, into another thread's, and onto a channel there.
/// The id then goes as it would have gone at home.
pub(super) fn every_state_changes_threads<L: Lab>(b: &mut Bench<'_, L>) -> Check {
    for stage in stages::<L>() {
        let mut fresh = Bench::new(b.lab, Acks::OnDelivery)?;
        let ids = (stage.make)(&mut fresh)?;
        let drive = fresh.side(stage.who).drive();
        let state = drive.core().state(ids.id);
        drive.migrate(ids.id, None, Time::NEVER)?;
        let loose = drive.release(ids.id)?;
        same(stage.name, (drive.core().state(ids.id), Some(loose.state())), (None, state))?;
        on_another_thread(b.lab, loose, |_, _, _| Ok(()))
            .map_err(|failure| Failure(format!("{}: {failure}", stage.name)))?;
        fresh.clean()?;
    }
    Ok(())
}

/// The listener goes while requests wait in the kernel and more come; the other thread gets every one of them, once.
pub(super) fn a_listener_changes_threads_with_requests_unread<L: Lab>(b: &mut Bench<'_, L>) -> Check {
    let listener = b.listen()?;
    let clients = [b.resolved()?, b.resolved()?, b.resolved()?];
    // One is read and not taken, one waits in the kernel, one comes when the listener is on its way.
    b.connect(clients[0], b"0")?;
    let end = std::time::Instant::now() + SOON;
    while b.server.drive().core().news() == 0 {
        ensure(std::time::Instant::now() < end, || "no request".into())?;
        b.pump(Duration::from_millis(5))?;
    }
    b.frozen = Some(Who::Server);
    b.connect(clients[1], b"1")?;
    thread::sleep(b.lab.quiet());
    let drive = b.server.drive();
    drive.migrate(listener, None, Time::NEVER)?;
    let refused = drive.release(listener);
    let waits =
        |error| matches!(error, Error::Refused(Refused::Request { why: Why::Busy(_) | Why::SharesChannel, .. }));
    ensure(refused.is_err_and(waits), || "released with a request that nobody has taken".into())?;
    let home = drive.core().home(listener).ok_or_else(|| Failure("the listener is gone".into()))?;
    let first = drive.next_event(home).ok_or_else(|| Failure("the request that was read is lost".into()))?;
    same("the first", (first.cm(), first.private_data[0]), (Some(CmEvent::ConnectRequest), b'0'))?;
    let channel = b.server.channel;
    b.server.drive().migrate(first.id, Some(channel), Time::NEVER)?;
    let loose = b.server.drive().release(listener)?;
    b.connect(clients[2], b"2")?;
    let quiet = b.lab.quiet();
    on_another_thread(b.lab, loose, |driver, channel, _| {
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
        let event = b.expect(Who::Client, client, CmEvent::Rejected, 28, pdl::REJECTED)?;
        same("the reason", event.private_data[0], number)?;
    }
    b.accept(first.id, &[])?;
    b.expect(Who::Client, clients[0], CmEvent::ConnectResponse, 0, pdl::RESPONSE).map(drop)
}
