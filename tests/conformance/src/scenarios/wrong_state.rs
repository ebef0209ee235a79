//! Calls in the wrong state: what the core refuses is what the device would have refused, or worse.

use std::net::SocketAddr;

use cmid_harness::bench::{Who, pdl};
use cmid_harness::failure::{ensure, fails, same};
use cmid_harness::{Bench, Check, Failure, Lab};
use cmid_proto::table;
use cmid_proto::{
    Acks, Call, CmEvent, CmOption, Device, Errno, IdKey, Refused, RejectReason, Request, Service, State, Time, Verb,
    Why,
};

use crate::scenarios::states::stages;

/// In each state, each call that the table refuses as "wrong state" is made on the bare device, past the core. All answer
/// EINVAL, and the id is none the worse for it: its next event still comes.
pub(super) fn every_refusal_is_the_devices_own<L: Lab>(b: &mut Bench<'_, L>) -> Check {
    let mut asked = 0;
    for stage in stages::<L>() {
        let mut fresh = Bench::new(b.lab, Acks::OnDelivery)?;
        let ids = (stage.make)(&mut fresh)?;
        let who = stage.who;
        let state = fresh.side(who).drive().core().state(ids.id);
        let state = state.ok_or_else(|| Failure(format!("{}: no such id", stage.name)))?;
        for verb in Verb::ALL {
            if table::ask(state, verb, Service::Connected) != Err(Why::WrongState) {
                continue;
            }
            let param = fresh.param();
            let here = SocketAddr::new(fresh.net().client, 0);
            let Some(call) = bare(verb, ids.id, here, fresh.address, param) else { continue };
            let outcome = fresh.side(who).drive().device_mut().call(&call, &[]);
            same(&format!("{verb} on the bare device while {state}"), outcome, Err(Errno::EINVAL))?;
            asked += 1;
        }
        if let Some((kind, len)) = stage.event {
            (stage.trigger)(&mut fresh, ids)?;
            let event = fresh.expect_any(who, kind)?;
            same(stage.name, (event.listener.unwrap_or(event.id), event.private_data.len()), (ids.id, len))?;
        }
    }
    ensure(asked > 80, || format!("only {asked} calls were made"))
}

/// The device call of a verb. None for those that are no single call or need a QP.
fn bare(verb: Verb, id: IdKey, here: SocketAddr, there: SocketAddr, param: cmid_proto::ConnParam) -> Option<Call> {
    match verb {
        Verb::Bind => Some(Call::Bind { id, addr: here }),
        Verb::ResolveAddr => Some(Call::ResolveAddr { id, src: None, dst: there, timeout_ms: 1000 }),
        Verb::ResolveRoute => Some(Call::ResolveRoute { id, timeout_ms: 1000 }),
        // A failing listen overwrites the backlog of one that listens: with the same number.
        Verb::Listen => Some(Call::Listen { id, backlog: 10 }),
        Verb::Connect => Some(Call::Connect { id, param }),
        Verb::Accept => Some(Call::Accept { id, param }),
        Verb::Reject => Some(Call::Reject { id, reason: RejectReason::Consumer }),
        Verb::Establish => Some(Call::Establish { id }),
        Verb::Notify => Some(Call::Notify { id }),
        Verb::SetTos => Some(Call::SetOption { id, option: CmOption::Tos(1) }),
        Verb::ReuseAddr => Some(Call::SetOption { id, option: CmOption::ReuseAddr(true) }),
        Verb::NoReuseAddr => Some(Call::SetOption { id, option: CmOption::ReuseAddr(false) }),
        Verb::SetAfOnly => Some(Call::SetOption { id, option: CmOption::AfOnly(true) }),
        Verb::SetAckTimeout => Some(Call::SetOption { id, option: CmOption::AckTimeout(14) }),
        // They name a membership, or need a group that can be joined.
        Verb::Join | Verb::Leave => None,
        Verb::AttachQp
        | Verb::DetachQp
        | Verb::Disconnect
        | Verb::Teardown
        | Verb::GetRequest
        | Verb::SetEce
        | Verb::Migrate
        | Verb::Release
        | Verb::Destroy
        | Verb::DestroyNow => None,
    }
}

/// What the device would do, and the application regret: refused with the reason, and the connection lives on.
pub(super) fn what_would_harm_is_refused<L: Lab>(b: &mut Bench<'_, L>) -> Check {
    b.listen()?;
    let (client, server) = b.requested()?;
    let param = b.param();
    // rdma_reject of an active id that waits: a destroy of 70 seconds later.
    refused(
        b,
        Who::Client,
        client,
        Request::Reject { reason: RejectReason::Consumer, private_data: &[] },
        State::Connecting,
        Why::Stalls,
    )?;
    // rdma_disconnect before there is a connection: returns 0 and does nothing.
    refused(b, Who::Client, client, Request::Disconnect, State::Connecting, Why::NotConnected)?;
    fails("disconnect", b.client.drive().disconnect(client, Time::NEVER), Errno::ENOTCONN)?;
    // rdma_establish on the passive side: rejects the peer.
    refused(b, Who::Server, server, Request::Establish, State::Requested, Why::Breaks)?;
    fails("establish", b.server.drive().establish(server), Errno::EINVAL)?;
    b.accept(server, &[])?;
    // A second rdma_accept: rejects the peer, and a destroy of 70 seconds.
    let again = Request::Accept { param, private_data: &[] };
    refused(b, Who::Server, server, again, State::Accepting, Why::Stalls)?;
    refused(
        b,
        Who::Server,
        server,
        Request::Reject { reason: RejectReason::Consumer, private_data: &[] },
        State::Accepting,
        Why::Stalls,
    )?;
    b.expect(Who::Client, client, CmEvent::ConnectResponse, 0, pdl::RESPONSE)?;
    b.client.drive().establish(client)?;
    b.expect(Who::Server, server, CmEvent::Established, 0, pdl::NONE).map(drop)
}

fn refused<L: Lab>(b: &mut Bench<'_, L>, who: Who, id: IdKey, request: Request<'_>, state: State, why: Why) -> Check {
    let drive = b.side(who).drive();
    let now = drive.now();
    let seen = drive.core().would_refuse(now, id, &request, Time::NEVER);
    same("refusal", seen, Err(Refused::Request { id, request: request.verb(), state, why }))
}
