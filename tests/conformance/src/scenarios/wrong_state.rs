//! Calls in the wrong state: the core refuses what the device would have refused, or what would cause harm.

use std::net::SocketAddr;

use cmid_harness::failure::{ensure, fails, same};
use cmid_harness::fixture::{Side, pdl};
use cmid_harness::{Check, Env, Failure, Fixture};
use cmid_proto::{
    Acks, Call, CmEvent, CmOption, ConnParam, Device, Errno, Error, IdKey, RefuseReason, Refused, RejectReason,
    RequestKind, Service, State, Time, table,
};

use crate::scenarios::states::all_states;

/// In each state, makes each call that the table refuses as "wrong state" on the bare device, past the core. All
/// return EINVAL, and the id is unharmed: its next event still arrives.
pub(super) fn every_refusal_is_the_devices_own<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let mut asked = 0;
    for ids_in_state in all_states::<L>() {
        let mut fresh = Fixture::new(b.env, Acks::OnDelivery)?;
        let ids = (ids_in_state.make)(&mut fresh)?;
        let side = ids_in_state.side;
        let state = fresh.endpoint(side).drive().core().state(ids.id);
        let state = state.ok_or_else(|| Failure(format!("{}: no such id", ids_in_state.name)))?;
        for request_kind in RequestKind::ALL {
            if table::request_rule(state, request_kind, Service::Connected) != Err(RefuseReason::WrongState) {
                continue;
            }
            let param = fresh.param();
            let here = SocketAddr::new(fresh.net().client, 0);
            let Some(call) = bare(request_kind, ids.id, here, fresh.address, param) else { continue };
            let outcome = fresh.endpoint(side).drive().device_mut().call(&call, &[]);
            same(&format!("{request_kind} on the bare device while {state}"), outcome, Err(Errno::EINVAL))?;
            asked += 1;
        }
        if let Some((kind, len)) = ids_in_state.event {
            (ids_in_state.trigger)(&mut fresh, ids)?;
            let event = fresh.expect_any(side, kind)?;
            same(ids_in_state.name, (event.listener.unwrap_or(event.id), event.private_data.len()), (ids.id, len))?;
        }
    }
    ensure(asked > 80, || format!("only {asked} calls were made"))
}

/// The device call of a request. `None` for requests that are no single call or need a QP.
fn bare(request_kind: RequestKind, id: IdKey, here: SocketAddr, there: SocketAddr, param: ConnParam) -> Option<Call> {
    match request_kind {
        RequestKind::Bind => Some(Call::Bind { id, addr: here }),
        RequestKind::ResolveAddr => Some(Call::ResolveAddr { id, src: None, dst: there, timeout_ms: 1000 }),
        RequestKind::ResolveRoute => Some(Call::ResolveRoute { id, timeout_ms: 1000 }),
        // A failing listen overwrites the backlog of a listener, so this uses the same number.
        RequestKind::Listen => Some(Call::Listen { id, backlog: 10 }),
        RequestKind::Connect => Some(Call::Connect { id, param }),
        RequestKind::Accept => Some(Call::Accept { id, param }),
        RequestKind::Reject => Some(Call::Reject { id, reason: RejectReason::Consumer }),
        RequestKind::Establish => Some(Call::Establish { id }),
        RequestKind::Notify => Some(Call::Notify { id }),
        RequestKind::SetTos => Some(Call::SetOption { id, option: CmOption::Tos(1) }),
        RequestKind::ReuseAddr => Some(Call::SetOption { id, option: CmOption::ReuseAddr(true) }),
        RequestKind::NoReuseAddr => Some(Call::SetOption { id, option: CmOption::ReuseAddr(false) }),
        RequestKind::SetAfOnly => Some(Call::SetOption { id, option: CmOption::AfOnly(true) }),
        RequestKind::SetAckTimeout => Some(Call::SetOption { id, option: CmOption::AckTimeout(14) }),
        // Join and leave name a membership, or need a group that can be joined.
        RequestKind::Join | RequestKind::Leave => None,
        RequestKind::AttachQp
        | RequestKind::DetachQp
        | RequestKind::Disconnect
        | RequestKind::Teardown
        | RequestKind::GetRequest
        | RequestKind::SetEce
        | RequestKind::Migrate
        | RequestKind::Release
        | RequestKind::Destroy
        | RequestKind::DestroyNow => None,
    }
}

/// Calls that the device would perform with harm: refused with the reason, and the connection is unharmed.
pub(super) fn what_would_harm_is_refused<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let (client, server) = b.requested()?;
    let param = b.param();
    // rdma_reject of a waiting active id: a later destroy takes 70 seconds.
    let seen = b.client.drive().reject(client, &[]);
    refused(seen, client, RequestKind::Reject, State::Connecting, RefuseReason::Stalls)?;
    // rdma_disconnect before there is a connection: returns 0 and does nothing.
    let seen = b.client.drive().disconnect(client, Time::NEVER);
    fails("disconnect", seen, Errno::ENOTCONN)?;
    refused(seen, client, RequestKind::Disconnect, State::Connecting, RefuseReason::NotConnected)?;
    // rdma_establish on the passive side: rejects the peer.
    let seen = b.server.drive().establish(server);
    fails("establish", seen, Errno::EINVAL)?;
    refused(seen, server, RequestKind::Establish, State::Requested, RefuseReason::Breaks)?;
    b.accept(server, &[])?;
    // A second rdma_accept: rejects the peer, and the destroy takes 70 seconds.
    let seen = b.server.drive().accept(server, param, &[], Time::NEVER);
    refused(seen, server, RequestKind::Accept, State::Accepting, RefuseReason::Stalls)?;
    let seen = b.server.drive().reject(server, b"late");
    refused(seen, server, RequestKind::Reject, State::Accepting, RefuseReason::Stalls)?;
    b.expect(Side::Client, client, CmEvent::ConnectResponse, 0, pdl::RESPONSE)?;
    b.confirm(client, server)?;
    b.destroy(Side::Client, client)?;
    b.expect(Side::Server, server, CmEvent::Disconnected, 0, pdl::NONE).map(drop)
}

fn refused(seen: Result<(), Error>, id: IdKey, request: RequestKind, state: State, reason: RefuseReason) -> Check {
    same("refusal", seen, Err(Error::Refused(Refused::Request { id, request, state, reason })))
}
