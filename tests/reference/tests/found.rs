//! Bugs found by the targets, each with minimal steps.
#![allow(clippy::unwrap_used)]

use cmid_proto::{
    Acks, Call, ChannelKey, CmEvent, ConnParam, Core, Errno, IdKey, Limits, PortSpace, RawEvent, RefuseReason, Refused,
    Request, State, Time,
};

fn all_is_well(core: &mut Core) {
    while let Some((token, _)) = core.poll_call() {
        core.handle_outcome(token, Ok(())).unwrap();
    }
    core.check();
}

fn submit(core: &mut Core, id: IdKey, request: Request<'_>) {
    core.submit(Time(1), id, request, Time::NEVER).unwrap();
    all_is_well(core);
}

/// A listener in synchronous mode with an undelivered request, and the id of that request.
fn listener_with_a_request(core: &mut Core) -> (IdKey, IdKey) {
    let listener = core.create_id(None, PortSpace::Tcp).unwrap();
    all_is_well(core);
    submit(core, listener, Request::Listen { backlog: 0 });
    let line: ChannelKey = core.device_channel(listener).unwrap();
    let child = core.wants_event(line).unwrap();
    let raw = RawEvent { listener: Some(listener), ..RawEvent::new(child, CmEvent::ConnectRequest) };
    core.handle_event(line, raw).unwrap();
    (listener, child)
}

/// `ops`: an application that learns of the id by `id_keys`, moves it away and then moves the listener had a
/// synchronous id on a shared channel.
#[test]
fn the_id_of_a_request_that_was_moved_away_stays_where_it_is_when_its_listener_moves() {
    let mut core = Core::new(Limits::SINGLE);
    let channel = core.open_channel(Acks::OnDelivery).unwrap();
    let (listener, child) = listener_with_a_request(&mut core);
    submit(&mut core, child, Request::Migrate { to: None });
    let home = core.channel(child);
    submit(&mut core, listener, Request::Migrate { to: Some(channel) });
    assert!(core.is_sync(child));
    assert_eq!(core.channel(child), home);
    assert_eq!(core.channel(listener), Some(channel));
}

/// `ops`: a listener without its device was migrated and could not be destroyed. It was then put into synchronous
/// mode on the shared channel that it had been migrated to.
#[test]
fn a_listener_that_was_moved_after_its_device_had_gone_has_no_channel_of_its_own() {
    let mut core = Core::new(Limits::SINGLE);
    let channel = core.open_channel(Acks::OnDelivery).unwrap();
    let id = core.create_id(Some(channel), PortSpace::Tcp).unwrap();
    all_is_well(&mut core);
    submit(&mut core, id, Request::Listen { backlog: 0 });
    core.handle_event(core.device_channel(id).unwrap(), RawEvent::new(id, CmEvent::DeviceRemoval)).unwrap();
    submit(&mut core, id, Request::Migrate { to: Some(channel) });
    assert_eq!(core.device_channel(id), Some(channel));
    core.submit(Time(1), id, Request::Destroy, Time::NEVER).unwrap();
    while let Some((token, _)) = core.poll_call() {
        core.handle_outcome(token, Err(Errno::EBADF)).ok();
    }
    assert_eq!(core.state(id), Some(State::Failed));
    submit(&mut core, id, Request::Migrate { to: None });
    assert!(core.is_sync(id));
    assert_ne!(core.channel(id), Some(channel));
}

/// `faithful`: a request's id that the device would not move to where its listener had been was not moved to where the
/// listener was by then. Now it is moved when it is accepted, to where its request was delivered.
#[test]
fn the_id_of_a_request_that_could_not_be_moved_is_moved_to_where_its_listener_was_by_then() {
    let mut core = Core::new(Limits::SINGLE);
    let [here, there] = [(); 2].map(|()| core.open_channel(Acks::OnDelivery).unwrap());
    let listener = core.create_id(Some(here), PortSpace::Tcp).unwrap();
    all_is_well(&mut core);
    submit(&mut core, listener, Request::Listen { backlog: 0 });
    let line = core.device_channel(listener).unwrap();
    let child = core.wants_event(line).unwrap();
    let raw = RawEvent { listener: Some(listener), ..RawEvent::new(child, CmEvent::ConnectRequest) };
    core.handle_event(line, raw).unwrap();
    core.submit(Time(1), listener, Request::Migrate { to: Some(there) }, Time::NEVER).unwrap();
    assert_eq!(core.poll_call(), None);
    assert!(core.poll_event(there).is_some());
    let accept = Request::Accept { param: ConnParam { qp_num: 7, ..ConnParam::default() }, private_data: &[] };
    for outcome in [Err(Errno::ENOMEM), Ok(())] {
        core.submit(Time(1), child, accept, Time::NEVER).unwrap();
        let (token, call) = core.poll_call().unwrap();
        assert_eq!(call, Call::Migrate { id: child, from: line, to: there });
        core.handle_outcome(token, outcome).unwrap();
    }
    all_is_well(&mut core);
    assert_eq!((core.channel(child), core.device_channel(child)), (Some(there), Some(there)));
}

/// `ops`: a device that reports a request on a channel that is not its listener's: the accept moved the id to the
/// channel of a synchronous listener.
#[test]
fn an_accept_does_not_move_an_id_to_the_channel_of_a_listener() {
    let mut core = Core::new(Limits::SINGLE);
    let elsewhere = core.open_channel(Acks::OnDelivery).unwrap();
    let listener = core.create_id(None, PortSpace::Tcp).unwrap();
    all_is_well(&mut core);
    submit(&mut core, listener, Request::Listen { backlog: 0 });
    let child = core.wants_event(elsewhere).unwrap();
    let raw = RawEvent { listener: Some(listener), ..RawEvent::new(child, CmEvent::ConnectRequest) };
    core.handle_event(elsewhere, raw).unwrap();
    let accept = Request::Accept { param: ConnParam { qp_num: 7, ..ConnParam::default() }, private_data: &[] };
    let refused = core.submit(Time(1), child, accept, Time::NEVER).unwrap_err();
    assert!(matches!(refused, Refused::Request { reason: RefuseReason::OnListenersChannel, .. }), "{refused}");
    assert!(!core.compare_request(Time(1), child, &accept, Time::NEVER));
}
