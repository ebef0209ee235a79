//! Behaviour 76: the QP receives data from the peer before the connection manager receives its message.

use cmid_harness::failure::{fails, same};
use cmid_harness::fixture::{Side, pdl};
use cmid_harness::{Check, Env, Fixture};
use cmid_proto::{Call, CmEvent, Errno};

pub(super) fn behaviour_76_notify_establishes<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let listener = b.listen()?;
    let (client, server) = b.requested()?;
    let (idle, resolved) = (b.idle()?, b.resolved()?);
    for (side, id) in [
        (Side::Server, server),
        (Side::Server, listener),
        (Side::Client, client),
        (Side::Client, idle),
        (Side::Client, resolved),
    ] {
        fails("not accepted, or active", b.endpoint(side).drive().notify_established(id), Errno::EINVAL)?;
        same("on the bare device", b.endpoint(side).bare(&Call::Notify { id }, &[]), Err(Errno::EINVAL))?;
    }
    b.accept(server, &[])?;
    b.server.drive().notify_established(server)?;
    b.expect(Side::Server, server, CmEvent::Established, 0, pdl::NONE)?;
    fails("again", b.server.drive().notify_established(server), Errno::EISCONN)?;
    same("on the bare device", b.server.bare(&Call::Notify { id: server }, &[]), Err(Errno::EISCONN))?;
    b.expect(Side::Client, client, CmEvent::ConnectResponse, 0, pdl::RESPONSE)?;
    b.client.drive().establish(client)?;
    b.quiet(Side::Server)
}
