//! The barrier after which memory may be reused: TIMEWAIT_EXIT, or the deadline.

use cmid_harness::failure::{ensure, same};
use cmid_harness::fixture::{Side, pdl};
use cmid_harness::{Check, Env, Fixture};
use cmid_proto::{CmEvent, Error, EventKind, IdKey, RefuseReason, Refused, RequestKind, State, Time};

/// The ordinary end: the peer answers, and the time wait ends.
pub(super) fn a_teardown_ends_with_the_time_wait<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let (client, server) = b.connected()?;
    b.client.drive().teardown(client, Time::NEVER)?;
    same("client", b.client.drive().core().state(client), Some(State::Closing))?;
    b.expect(Side::Server, server, CmEvent::Disconnected, 0, pdl::NONE)?;
    b.quiet(Side::Client)?;
    b.server.drive().teardown(server, Time::NEVER)?;
    closes(b, Side::Client, client, true)?;
    closes(b, Side::Server, server, false)?;
    let again = b.client.drive().teardown(client, Time::NEVER);
    let is_over = |error| matches!(error, Error::Refused(Refused::Request { reason: RefuseReason::IsOver, .. }));
    ensure(again.is_err_and(is_over), || "a teardown of what is over".into())
}

/// Both sides disconnect before either receives the other's DREQ. Without a second disconnect the kernel reports
/// TIMEWAIT_EXIT to neither side (`cm_dreq_handler`).
pub(super) fn a_teardown_from_both_sides_at_once_ends_for_both<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    for _ in 0..8 {
        let (client, server) = b.connected()?;
        b.client.drive().teardown(client, Time::NEVER)?;
        b.server.drive().teardown(server, Time::NEVER)?;
        closes(b, Side::Client, client, true)?;
        closes(b, Side::Server, server, true)?;
        b.destroy(Side::Client, client)?;
        b.destroy(Side::Server, server)?;
    }
    Ok(())
}

/// The peer does not answer. The deadline ends the teardown, and later events count as late.
pub(super) fn a_teardown_ends_at_its_deadline<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let (client, server) = b.connected()?;
    let deadline = b.client.drive().within(b.env.quiet());
    b.client.drive().teardown(client, deadline)?;
    b.expect(Side::Server, server, CmEvent::Disconnected, 0, pdl::NONE)?;
    let channel = b.client.channel;
    let event = b.next(Side::Client, channel, &"the deadline")?;
    same("client", (event.id, event.kind), (client, EventKind::DeadlinePassed(RequestKind::Teardown)))?;
    same("client", b.client.drive().core().state(client), Some(State::Closed))?;
    let late = b.client.drive().core().summary().counters.late;
    b.server.drive().disconnect(server, Time::NEVER)?;
    b.expect(Side::Server, server, CmEvent::TimewaitExit, 0, pdl::NONE)?;
    b.quiet(Side::Client)?;
    ensure(b.client.drive().core().summary().counters.late > late, || {
        "the peer's answer was not counted as late".into()
    })
}

/// In synchronous mode the call ends with the time wait.
pub(super) fn a_synchronous_teardown_ends_with_the_time_wait<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let (client, server) = b.connected()?;
    b.client.drive().migrate(client, None, Time::NEVER)?;
    b.client.drive().teardown(client, Time::NEVER)?;
    b.expect(Side::Server, server, CmEvent::Disconnected, 0, pdl::NONE)?;
    same("not yet", b.client.drive().core().sync_result(client), None)?;
    b.server.drive().disconnect(server, Time::NEVER)?;
    b.until(Side::Client, client, State::Closed)?;
    same("teardown", b.client.drive().core().sync_result(client), Some(Ok(())))?;
    let event = b.client.drive().core().sync_event(client).and_then(|event| event.cm());
    same("the event that ended it", event, Some(CmEvent::TimewaitExit))
}

/// The peer is destroyed before it answers: its destroy is the answer.
pub(super) fn a_teardown_ends_when_the_peer_is_destroyed<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let (client, server) = b.connected()?;
    b.client.drive().teardown(client, Time::NEVER)?;
    b.expect(Side::Server, server, CmEvent::Disconnected, 0, pdl::NONE)?;
    b.destroy(Side::Server, server)?;
    closes(b, Side::Client, client, true)
}

fn closes<L: Env>(b: &mut Fixture<'_, L>, side: Side, id: IdKey, disconnected: bool) -> Check {
    if disconnected {
        b.expect(side, id, CmEvent::Disconnected, 0, pdl::NONE)?;
    }
    b.expect(side, id, CmEvent::TimewaitExit, 0, pdl::NONE)?;
    same("state", b.endpoint(side).drive().core().state(id), Some(State::Closed))
}
