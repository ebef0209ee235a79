//! Teardown: a disconnect that ends when what the connection used may be used again.

use cmid_proto::{CmEvent, Error, IdKey, Refused, State, Time, Why};

use crate::bench::{Who, pdl};
use crate::failure::same;
use crate::{Bench, Check, Failure, Lab};

pub(super) fn a_teardown_ends_with_the_time_wait<L: Lab>(b: &mut Bench<'_, L>) -> Check {
    b.listen()?;
    let (client, server) = b.connected_with_qps()?;
    b.client.drive().teardown(client, Time::NEVER)?;
    b.expect(Who::Server, server, CmEvent::Disconnected, 0, pdl::NONE)?;
    b.server.drive().disconnect(server, Time::NEVER)?;
    b.expect(Who::Client, client, CmEvent::Disconnected, 0, pdl::NONE)?;
    b.expect(Who::Client, client, CmEvent::TimewaitExit, 0, pdl::NONE)?;
    over(b, Who::Client, client)
}

/// Both sides at once: the kernel reports no TIMEWAIT_EXIT then unless one of them disconnects once more.
pub(super) fn crossing_teardowns_end<L: Lab>(b: &mut Bench<'_, L>) -> Check {
    b.listen()?;
    let (client, server) = b.connected_with_qps()?;
    b.client.drive().teardown(client, Time::NEVER)?;
    b.server.drive().teardown(server, Time::NEVER)?;
    for (who, id) in [(Who::Client, client), (Who::Server, server)] {
        b.expect(who, id, CmEvent::Disconnected, 0, pdl::NONE)?;
        b.expect(who, id, CmEvent::TimewaitExit, 0, pdl::NONE)?;
    }
    over(b, Who::Client, client)?;
    over(b, Who::Server, server)
}

fn over<L: Lab>(b: &mut Bench<'_, L>, who: Who, id: IdKey) -> Check {
    let drive = b.side(who).drive();
    same("state", drive.core().state(id), Some(State::Closed))?;
    match drive.teardown(id, Time::NEVER) {
        Err(Error::Refused(Refused::Request { why: Why::IsOver, .. })) => Ok(()),
        other => Err(Failure(format!("teardown again: {other:?}, expected a refusal because it is over"))),
    }
}
