//! Synchronous mode from the listener's side: behaviours 60, 65, 67, 68 and 69.

use std::net::SocketAddr;
use std::time::Duration;

use cmid_harness::failure::{ensure, fails, same};
use cmid_harness::fixture::{Side, pdl};
use cmid_harness::{Check, Env, Failure, Fixture};
use cmid_proto::datapath::QpState;
use cmid_proto::{Call, CmEvent, Errno, Error, IdKey, PortSpace, Progress, RefuseReason, Refused, Time};

use super::sync::{ended, resolved};

/// A synchronous server id that listens on the fixture's address.
fn listen<L: Env>(b: &mut Fixture<'_, L>) -> Check<IdKey> {
    let address = b.address;
    let drive = b.server.drive();
    let id = drive.create_id(None, PortSpace::Tcp)?;
    drive.bind(id, address)?;
    drive.listen(id, 10)?;
    Ok(id)
}

/// `rdma_get_request`: the next new id of a synchronous listener.
fn get_request<L: Env>(b: &mut Fixture<'_, L>, listener: IdKey) -> Check<IdKey> {
    b.server.drive().get_request(listener, Time::NEVER)?;
    same("get_request", ended(b, Side::Server, listener)?, (Ok(()), Some(CmEvent::ConnectRequest), 0))?;
    let event = b.server.drive().core().sync_event(listener);
    event.map(|event| event.id).ok_or_else(|| Failure("get_request without an event".into()))
}

pub(super) fn behaviour_60_a_whole_life_in_synchronous_mode<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let listener = listen(b)?;
    let client = resolved(b)?;
    b.attach_qp(Side::Client, client)?;
    b.qp_is(Side::Client, client, QpState::INIT)?;
    let param = b.param();
    b.client.drive().connect(client, param, &[], Time::NEVER)?;
    let server = get_request(b, listener)?;
    b.server.drive().migrate(server, None, Time::NEVER)?;
    b.attach_qp(Side::Server, server)?;
    b.qp_is(Side::Server, server, QpState::INIT)?;
    b.accept(server, &[])?;
    for (side, id) in [(Side::Client, client), (Side::Server, server)] {
        same("connect and accept", ended(b, side, id)?, (Ok(()), Some(CmEvent::Established), 0))?;
        b.qp_is(side, id, QpState::RTS)?;
    }
    b.client.drive().disconnect(client, Time::NEVER)?;
    b.server.drive().disconnect(server, Time::NEVER)?;
    for (side, id) in [(Side::Client, client), (Side::Server, server)] {
        same("disconnect", ended(b, side, id)?, (Ok(()), Some(CmEvent::Disconnected), 0))?;
    }
    b.destroy(Side::Client, client)?;
    b.destroy(Side::Server, server)?;
    b.destroy(Side::Server, listener)
}

pub(super) fn behaviour_65_the_client_goes_during_a_synchronous_accept<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let (client, server) = b.requested()?;
    b.server.drive().migrate(server, None, Time::NEVER)?;
    b.answer(client, server)?;
    same("still open", b.server.drive().core().sync_result(server), None)?;
    b.destroy(Side::Client, client)?;
    same("accept", ended(b, Side::Server, server)?, (Err(Errno::ECONNREFUSED), Some(CmEvent::Rejected), 28))
}

pub(super) fn behaviour_65_the_client_goes_before_a_synchronous_accept<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let listener = listen(b)?;
    let client = b.resolved()?;
    b.connect(client, &[])?;
    let server = get_request(b, listener)?;
    b.server.drive().migrate(server, None, Time::NEVER)?;
    b.destroy(Side::Client, client)?;
    b.quiet(Side::Server)?;
    let param = b.param();
    fails("accept", b.server.drive().accept(server, param, &[], Time::NEVER), Errno::EINVAL)?;
    same("the listener's event", ended(b, Side::Server, listener)?.1, Some(CmEvent::ConnectRequest))
}

/// In librdmacm the listener waits for an ack that is given only when the new id is destroyed; here it does not.
pub(super) fn behaviour_67_a_listener_goes_after_its_request_was_rejected<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let listener = listen(b)?;
    let client = b.resolved()?;
    b.connect(client, &[])?;
    let server = get_request(b, listener)?;
    b.server.drive().reject(server, &[])?;
    same("destroy", b.server.drive().destroy(listener, Time::NEVER)?, Progress::Done)?;
    b.expect(Side::Client, client, CmEvent::Rejected, 28, pdl::REJECTED)?;
    b.destroy(Side::Server, server)?;
    same("ids", b.server.drive().core().ids().count(), 0)
}

/// librdmacm would wait for an event that never arrives.
pub(super) fn behaviour_68_a_disconnect_that_would_hang_is_refused<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let listener = listen(b)?;
    let here = SocketAddr::new(b.net().client, 0);
    let drive = b.server.drive();
    let bound = drive.create_id(None, PortSpace::Tcp)?;
    drive.bind(bound, here)?;
    for id in [listener, bound] {
        match drive.disconnect(id, Time::NEVER) {
            Err(Error::Refused(Refused::Request { reason: RefuseReason::NotConnected, .. })) => {}
            other => return Err(Failure(format!("disconnect: {other:?}, expected a refusal"))),
        }
    }
    // Past the core: success without an effect on the listener, an error on the bound id.
    same("disconnect of a listener", b.server.bare(&Call::Disconnect { id: listener }, &[]), Ok(()))?;
    same("disconnect of a bound id", b.server.bare(&Call::Disconnect { id: bound }, &[]), Err(Errno::EINVAL))?;
    let client = b.resolved()?;
    b.connect(client, &[])?;
    get_request(b, listener).map(drop)
}

/// The private channel never blocks: calls return at once, and their events arrive later.
pub(super) fn behaviour_69_calls_return_before_their_events<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let listener = listen(b)?;
    let deadline = b.server.drive().within(Duration::from_millis(50));
    b.server.drive().get_request(listener, deadline)?;
    same("get_request", b.server.drive().core().sync_result(listener), None)?;
    same("get_request", ended(b, Side::Server, listener)?, (Err(Errno::ETIMEDOUT), None, 0))?;
    let address = b.address;
    let drive = b.client.drive();
    let id = drive.create_id(None, PortSpace::Tcp)?;
    drive.resolve_addr(id, None, address, Time::NEVER)?;
    ensure(drive.core().sync_result(id).is_none(), || "resolve_addr has waited".into())?;
    same("resolve_addr", ended(b, Side::Client, id)?, (Ok(()), Some(CmEvent::AddrResolved), 0))
}
