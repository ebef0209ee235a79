//! An id changes threads.

use std::thread;
use std::time::{Duration, Instant};

use cmid_proto::{Acks, CmEvent, Time};

use crate::bench::{SOON, Who, pdl};
use crate::failure::{ensure, same};
use crate::{Bench, Check, Failure, Lab, Subject};

/// Accepted on one thread; released while its ESTABLISHED is pending in the kernel; adopted by another thread's core and
/// migrated to one of its channels, where the event arrives, once.
pub(super) fn an_accepted_id_goes_to_another_thread<L: Lab>(b: &mut Bench<'_, L>) -> Check {
    b.listen()?;
    let (client, server) = b.requested()?;
    b.accept(server, &[])?;
    b.frozen = Some(Who::Server);
    b.expect(Who::Client, client, CmEvent::ConnectResponse, 0, pdl::RESPONSE)?;
    b.client.drive().establish(client)?;
    thread::sleep(b.lab.quiet());
    // ESTABLISHED is in the kernel now, on the channel of this thread.
    b.server.drive().migrate(server, None, Time::NEVER)?;
    let loose = b.server.drive().release(server)?;
    same("the old key", b.server.drive().core().state(server), None)?;
    let lab = b.lab;
    let elsewhere = thread::scope(|scope| {
        let thread = scope.spawn(move || -> Check {
            let mut driver = lab.subject()?;
            let channel = driver.drive().open_channel(Acks::OnDelivery)?;
            let id = driver.drive().adopt(loose).map_err(|not| Failure(not.to_string()))?;
            driver.drive().migrate(id, Some(channel), Time::NEVER)?;
            let event =
                next(&mut driver, channel, SOON)?.ok_or_else(|| Failure("no event after the adoption".into()))?;
            same("on the other thread", (event.id, event.cm(), event.status), (id, Some(CmEvent::Established), 0))?;
            let again = next(&mut driver, channel, lab.quiet())?;
            ensure(again.is_none(), || format!("and again: {again:?}"))?;
            driver.drive().disconnect(id, Time::NEVER)?;
            // The client answers once this thread has ended; all that is left here is to destroy.
            driver.drive().destroy(id, Time::NEVER)?;
            driver.drive().core().check();
            Ok(())
        });
        thread.join().map_err(|_| Failure("the other thread panicked".into()))?
    });
    elsewhere?;
    b.frozen = None;
    b.expect(Who::Client, client, CmEvent::Disconnected, 0, pdl::NONE)?;
    b.quiet(Who::Server)
}

/// The next event of a channel, if there is one within this time.
pub(super) fn next<S: Subject>(
    driver: &mut S,
    on: cmid_proto::ChannelKey,
    at_most: Duration,
) -> Check<Option<cmid_proto::Event>> {
    let end = Instant::now() + at_most;
    loop {
        if let Some(event) = driver.drive().next_event(on) {
            return Ok(Some(event));
        }
        if Instant::now() >= end {
            return Ok(None);
        }
        driver.wait(Duration::from_millis(20))?;
    }
}
