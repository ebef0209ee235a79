//! Bugs found by the targets, each with minimal steps.
#![allow(clippy::unwrap_used)]

use cmid_proto::{
    Acks, Begun, Call, ChannelKey, CmEvent, ConnParam, Core, Errno, Error, EventKind, Flow, IdKey, Limits, Outcome,
    PortSpace, Progress, RawEvent, RefuseReason, Refused, Request, State, Time,
};

/// Makes the calls of a request, each with this outcome.
fn make(mut begun: Begun<'_, '_>, outcome: Outcome) -> Result<Progress, Error> {
    loop {
        match begun.end(outcome) {
            Flow::Next(next) => begun = next,
            Flow::Done(result) => return result,
        }
    }
}

/// Makes a request that makes no call now.
fn uncalled(core: &mut Core, id: IdKey, request: Request<'_>) -> Progress {
    let begun = core.begin(Time(1), id, &request, Time::NEVER).unwrap();
    assert_eq!(begun.call(), None);
    make(begun, Ok(())).unwrap()
}

/// Makes the calls that follow, with success.
fn follow(core: &mut Core) {
    while let Some(begun) = core.next() {
        make(begun, Ok(())).unwrap();
    }
    core.check();
}

fn submit(core: &mut Core, id: IdKey, request: Request<'_>) {
    make(core.begin(Time(1), id, &request, Time::NEVER).unwrap(), Ok(())).unwrap();
    follow(core);
}

fn open(core: &mut Core, acks: Acks) -> ChannelKey {
    let (channel, begun) = core.open_channel(acks).unwrap();
    make(begun, Ok(())).unwrap();
    channel
}

fn create(core: &mut Core, on: Option<ChannelKey>) -> IdKey {
    let (id, begun) = core.create_id(on, PortSpace::Tcp).unwrap();
    make(begun, Ok(())).unwrap();
    core.check();
    id
}

/// A listener in synchronous mode with an undelivered request, and the id of that request.
fn listener_with_a_request(core: &mut Core) -> (IdKey, IdKey) {
    let listener = create(core, None);
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
    let channel = open(&mut core, Acks::OnDelivery);
    let (listener, child) = listener_with_a_request(&mut core);
    submit(&mut core, child, Request::Migrate { to: None });
    let home = core.channel(child);
    submit(&mut core, listener, Request::Migrate { to: Some(channel) });
    assert!(core.id_info(child).is_some_and(|it| it.is_sync));
    assert_eq!(core.channel(child), home);
    assert_eq!(core.channel(listener), Some(channel));
}

/// `ops`: a listener without its device was migrated and could not be destroyed. It was then put into synchronous
/// mode on the shared channel that it had been migrated to.
#[test]
fn a_listener_that_was_moved_after_its_device_had_gone_has_no_channel_of_its_own() {
    let mut core = Core::new(Limits::SINGLE);
    let channel = open(&mut core, Acks::OnDelivery);
    let id = create(&mut core, Some(channel));
    submit(&mut core, id, Request::Listen { backlog: 0 });
    core.handle_event(core.device_channel(id).unwrap(), RawEvent::new(id, CmEvent::DeviceRemoval)).unwrap();
    submit(&mut core, id, Request::Migrate { to: Some(channel) });
    assert_eq!(core.device_channel(id), Some(channel));
    make(core.begin(Time(1), id, &Request::Destroy, Time::NEVER).unwrap(), Err(Errno::EBADF)).unwrap_err();
    assert_eq!(core.state(id), Some(State::Failed));
    submit(&mut core, id, Request::Migrate { to: None });
    assert!(core.id_info(id).is_some_and(|it| it.is_sync));
    assert_ne!(core.channel(id), Some(channel));
}

/// `faithful`: a request's id that the device would not move to where its listener had been was not moved to where the
/// listener was by then. Now it is moved when it is accepted, to where its request was delivered.
#[test]
fn the_id_of_a_request_that_could_not_be_moved_is_moved_to_where_its_listener_was_by_then() {
    let mut core = Core::new(Limits::SINGLE);
    let [here, there] = [(); 2].map(|()| open(&mut core, Acks::OnDelivery));
    let listener = create(&mut core, Some(here));
    submit(&mut core, listener, Request::Listen { backlog: 0 });
    let line = core.device_channel(listener).unwrap();
    let child = core.wants_event(line).unwrap();
    let raw = RawEvent { listener: Some(listener), ..RawEvent::new(child, CmEvent::ConnectRequest) };
    core.handle_event(line, raw).unwrap();
    let moves = Request::Migrate { to: Some(there) };
    assert_eq!(uncalled(&mut core, listener, moves), Progress::Done);
    assert!(core.next().is_none());
    assert!(core.poll_event(there).is_some());
    let accept = Request::Accept { param: ConnParam { qp_num: 7, ..ConnParam::default() }, private_data: &[] };
    for outcome in [Err(Errno::ENOMEM), Ok(())] {
        let begun = core.begin(Time(1), child, &accept, Time::NEVER).unwrap();
        assert_eq!(begun.call(), Some(Call::Migrate { id: child, from: line, to: there }));
        match begun.end(outcome) {
            Flow::Next(accepts) => assert!(outcome.is_ok() && make(accepts, Ok(())).is_ok()),
            Flow::Done(result) => assert!(outcome.is_err() && result.is_err()),
        }
    }
    core.check();
    assert_eq!((core.channel(child), core.device_channel(child)), (Some(there), Some(there)));
}

/// `ops`: a device that reports a request on a channel that is not its listener's: the accept moved the id to the
/// channel of a synchronous listener.
#[test]
fn an_accept_does_not_move_an_id_to_the_channel_of_a_listener() {
    let mut core = Core::new(Limits::SINGLE);
    let elsewhere = open(&mut core, Acks::OnDelivery);
    let listener = create(&mut core, None);
    submit(&mut core, listener, Request::Listen { backlog: 0 });
    let child = core.wants_event(elsewhere).unwrap();
    let raw = RawEvent { listener: Some(listener), ..RawEvent::new(child, CmEvent::ConnectRequest) };
    core.handle_event(elsewhere, raw).unwrap();
    let accept = Request::Accept { param: ConnParam { qp_num: 7, ..ConnParam::default() }, private_data: &[] };
    let refused = core.begin(Time(1), child, &accept, Time::NEVER).unwrap_err();
    assert!(matches!(refused, Refused::Request { reason: RefuseReason::OnListenersChannel, .. }), "{refused}");
}

/// A listener that waited for acks to move to a channel which was closed meanwhile.
#[test]
fn a_listener_does_not_move_to_a_channel_that_was_closed_while_it_waited() {
    let mut core = Core::new(Limits::SINGLE);
    let [here, there] = [(); 2].map(|()| open(&mut core, Acks::Explicit));
    let listener = create(&mut core, Some(here));
    submit(&mut core, listener, Request::Listen { backlog: 0 });
    let line = core.device_channel(listener).unwrap();
    core.handle_event(line, RawEvent::new(listener, CmEvent::AddrChange)).unwrap();
    let ack_token = core.poll_event(here).unwrap().ack_token.unwrap();
    let moves = Request::Migrate { to: Some(there) };
    assert_eq!(uncalled(&mut core, listener, moves), Progress::WhenAcked);
    make(core.close_channel(there).unwrap(), Ok(())).unwrap();
    core.ack(ack_token).unwrap();
    follow(&mut core);
    let event = core.poll_event(here).unwrap();
    assert_eq!((event.kind, event.status), (EventKind::Migrated, -Errno::EBADF.0));
    assert_eq!((core.channel(listener), core.device_channel(listener)), (Some(here), Some(line)));
}
