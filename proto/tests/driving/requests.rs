//! The method of each request: its call and its result.

use std::cell::Cell;

use cmid_proto::datapath::{Capacity, CreateCall, CreateError, CreateReason};
use cmid_proto::{
    Acks, CmEvent, CmOption, Ece, Errno, Error, EventKind, FailureCause, Fault, Next, PortSpace, Progress, RawEvent,
    RefuseReason, Refused, State, Target, Time, Transport,
};

use crate::device::{
    Driven, PARAM, addr, calls, channel_and_id, driven, fails, group_addr, has, is_empty, report, requested, routed,
    take, with_an_id,
};

fn reason(error: Error) -> Option<RefuseReason> {
    match error {
        Error::Refused(Refused::Request { reason, .. }) => Some(reason),
        Error::Refused(_) | Error::Failed(_) | Error::Fault(_) => None,
    }
}

#[test]
fn the_active_side() {
    let (mut drive, _, id) = with_an_id(Acks::OnDelivery);
    drive.bind(id, addr(1)).unwrap();
    drive.set_option(id, CmOption::Tos(4)).unwrap();
    routed(&mut drive, id);
    drive.set_ece(id, Ece { vendor_id: 1, options: 2 }).unwrap();
    drive.connect(id, PARAM, b"hello", Time::NEVER).unwrap();
    take(&mut drive, id, CmEvent::ConnectResponse);
    drive.establish(id).unwrap();
    drive.disconnect(id, Time::NEVER).unwrap();
    drive.teardown(id, Time::NEVER).unwrap();
    let made = ["bind_addr", "set_option", "resolve_addr", "resolve_route", "set_local_ece", "connect", "establish"];
    assert_eq!(calls(&mut drive), [&made[..], &["disconnect", "disconnect"]].concat());
    assert_eq!(drive.core().state(id), Some(State::Closing));
}

/// On iWARP DISCONNECTED is the last event of a connection (`cma_iw_handler`).
#[test]
fn a_teardown_on_iwarp_ends_with_disconnected() {
    for (transport, name, end) in
        [(Transport::Iwarp, "iWARP", State::Closed), (Transport::InfiniBand, "InfiniBand", State::Closing)]
    {
        let (mut drive, _, id) = with_an_id(Acks::OnDelivery);
        routed(&mut drive, id);
        drive.connect(id, PARAM, b"hello", Time::NEVER).unwrap();
        take(&mut drive, id, CmEvent::ConnectResponse);
        drive.establish(id).unwrap();
        drive.device_mut().transport = Some(transport);
        assert_eq!(drive.transport(id).unwrap().to_string(), name);
        drive.teardown(id, Time::NEVER).unwrap();
        take(&mut drive, id, CmEvent::Disconnected);
        assert_eq!(drive.core().state(id), Some(end), "on {name}");
    }
}

/// iWARP has no datagram services. The device is known before the listen.
#[test]
fn a_datagram_service_on_iwarp_is_refused_and_a_listener_for_connections_is_not() {
    let mut drive = driven();
    drive.device_mut().transport = Some(Transport::Iwarp);
    let (channel, service) = channel_and_id(&mut drive, Acks::OnDelivery, PortSpace::Udp);
    drive.bind(service, addr(1)).unwrap();
    assert_eq!(reason(drive.listen(service, 1).unwrap_err()), Some(RefuseReason::NoDatagrams));
    let listener = drive.create_id(Some(channel), PortSpace::Tcp).unwrap();
    drive.bind(listener, addr(1)).unwrap();
    drive.listen(listener, 1).unwrap();
}

/// A released listener takes its channel along, but not the ids on it.
#[test]
fn a_listener_is_released_without_the_ids_of_its_requests() {
    let (mut drive, channel, listener) = with_an_id(Acks::OnDelivery);
    drive.listen(listener, 8).unwrap();
    let children = [(); 3].map(|()| requested(&mut drive, listener));
    while drive.next_event(channel).is_some() {}
    drive.reject(children[0], b"no").unwrap();
    drive.accept(children[1], PARAM, b"welcome", Time::NEVER).unwrap();
    calls(&mut drive);
    assert!(drive.release(listener).is_err());
    assert!(calls(&mut drive).is_empty(), "it is not in synchronous mode");
    drive.migrate(listener, None, Time::NEVER).unwrap();
    assert!(calls(&mut drive).is_empty());
    fails(&mut drive, "migrate_id", Errno::ENOMEM);
    assert_eq!(drive.release(listener).unwrap_err().errno(), Errno::ENOMEM);
    assert_eq!(calls(&mut drive), ["migrate_id"]);
    let released_id = drive.release(listener).unwrap();
    assert_eq!(calls(&mut drive), ["migrate_id", "migrate_id", "release"]);
    assert!(children.iter().all(|&child| drive.core().device_channel(child) == Some(channel)));
    drive.accept(children[2], PARAM, b"welcome", Time::NEVER).unwrap();
    assert_eq!(calls(&mut drive), ["accept"]);
    drive.core().check();
    let listener = drive.adopt(released_id).unwrap();
    assert_eq!(drive.core().state(listener), Some(State::Listening));
}

#[test]
fn the_passive_side() {
    let (mut drive, channel, listener) = with_an_id(Acks::OnDelivery);
    drive.listen(listener, 8).unwrap();
    assert_eq!(calls(&mut drive), ["create_event_channel", "migrate_id", "listen"]);
    let [first, second, third] = [(); 3].map(|()| requested(&mut drive, listener));
    while drive.next_event(channel).is_some() {}
    calls(&mut drive);
    drive.accept(first, PARAM, b"welcome", Time::NEVER).unwrap();
    drive.notify_established(first).unwrap();
    drive.reject(second, b"no").unwrap();
    drive.reject_ece(third, b"").unwrap();
    assert_eq!(calls(&mut drive), ["migrate_id", "accept", "notify", "reject", "reject"]);
    fails(&mut drive, "destroy_id", Errno::EBUSY);
    assert_eq!(drive.destroy(first, Time::NEVER).unwrap_err().errno(), Errno::EBUSY);
    assert_eq!(drive.core().state(first), Some(State::Failed));
}

#[test]
fn a_synchronous_listener_takes_a_request() {
    let mut drive = driven();
    let listener = drive.create_id(None, PortSpace::Tcp).unwrap();
    drive.listen(listener, 8).unwrap();
    drive.get_request(listener, Time::NEVER).unwrap();
    let child = requested(&mut drive, listener);
    assert_eq!(drive.core().sync_event(listener).map(|event| event.id), Some(child));
}

/// The errors of an application.
#[derive(Debug, PartialEq)]
enum Own {
    Mine(u32),
    Theirs(Error),
}

impl From<Error> for Own {
    fn from(error: Error) -> Self {
        Own::Theirs(error)
    }
}

#[test]
fn an_error_of_the_application_comes_back_unchanged_from_its_closure() {
    let (mut drive, _, id) = with_an_id(Acks::OnDelivery);
    let refused = drive.try_attach_qp(id, |_, _| Err::<(), _>(Own::Mine(1))).unwrap_err();
    assert!(matches!(refused, Own::Theirs(Error::Refused(_))), "{refused:?}");
    drive.bind(id, addr(1)).unwrap();
    assert_eq!(drive.try_attach_qp(id, |_, _| Err::<(), _>(Own::Mine(2))), Err(Own::Mine(2)));
    assert!(!drive.core().id_info(id).is_some_and(|it| it.has_qp));
    assert_eq!(drive.try_attach_qp(id, |_, _| Ok::<_, Own>(3)), Ok(3));
    assert!(drive.core().id_info(id).is_some_and(|it| it.has_qp));
}

#[test]
fn a_qp_is_made_and_destroyed_only_where_the_core_agrees() {
    let (mut drive, _, id) = with_an_id(Acks::OnDelivery);
    let made = Cell::new(0);
    let make = || {
        made.set(made.get() + 1);
        made.get()
    };
    assert_eq!(drive.attach_qp(id, |_, _| Ok(make())).map_err(reason), Err(Some(RefuseReason::NoDevice)));
    assert_eq!(drive.detach_qp(id, |_, _| Ok(_ = make())).map_err(reason), Err(Some(RefuseReason::NoQp)));
    assert_eq!(made.get(), 0);
    drive.bind(id, addr(1)).unwrap();
    calls(&mut drive);
    let failed = drive.attach_qp(id, |_, _| Err::<(), _>(Errno::ENOMEM.into())).unwrap_err();
    assert_eq!(calls(&mut drive), ["discard_qp"], "it may have one");
    assert!(matches!(failed, Error::Failed(failure) if (failure.call, failure.errno) == ("create_qp", Errno::ENOMEM)));
    assert!(!drive.core().id_info(id).is_some_and(|it| it.has_qp));
    let too_large = CreateReason::TooLarge { capacity: Capacity::MaxSendSge, asked: 40, max: 32 };
    let error = CreateError::new(CreateCall::CreateQp, too_large);
    let failed = drive.attach_qp(id, |_, _| Err::<(), _>(error)).unwrap_err();
    let Error::Failed(failure) = failed else { panic!("{failed}") };
    assert_eq!((failure.errno, failure.cause), (Errno::EINVAL, Some(FailureCause::Create(error))));
    let why = "create_qp: max_send_sge 40, more than the device's maximum of 32";
    assert_eq!(failed.to_string(), format!("failed: create_qp on {id} while bound: EINVAL: {why}"));
    for (error, cause) in [
        (CreateCall::CreateQp.failed()(Errno::ENOMEM), None),
        (CreateCall::CreateCq.failed()(Errno::ENOMEM), Some("create_cq: ENOMEM")),
    ] {
        let Err(Error::Failed(failure)) = drive.attach_qp(id, |_, _| Err::<(), _>(error)) else { panic!("{error}") };
        assert_eq!(failure.cause.map(|cause| cause.to_string()).as_deref(), cause);
    }
    let attached = drive.attach_qp(id, |_, attaching| {
        assert_eq!(attaching.id(), id);
        Ok(make())
    });
    assert_eq!(attached.unwrap(), 1);
    assert!(drive.core().id_info(id).is_some_and(|it| it.has_qp));
    assert_eq!(drive.attach_qp(id, |_, _| Ok(make())).map_err(reason), Err(Some(RefuseReason::HasQp)));
    let failed = drive.detach_qp(id, |_, _| Err(Errno::EBUSY)).unwrap_err();
    assert!(matches!(failed, Error::Failed(failure) if (failure.call, failure.errno) == ("destroy_qp", Errno::EBUSY)));
    assert!(drive.core().id_info(id).is_some_and(|it| it.has_qp));
    drive.detach_qp(id, |_, _| Ok(())).unwrap();
    assert!(!drive.core().id_info(id).is_some_and(|it| it.has_qp));
    // One that has failed half way: the device knows.
    drive.attach_qp(id, |_, _| Ok(())).unwrap();
    drive.device_mut().has_qp = Some(false);
    drive.detach_qp(id, |_, _| Err(Errno::EIO)).unwrap_err();
    assert!(!drive.core().id_info(id).is_some_and(|it| it.has_qp));
}

#[test]
fn a_closure_that_makes_or_destroys_no_qp_changes_nothing() {
    let (mut drive, _, id) = with_an_id(Acks::OnDelivery);
    drive.bind(id, addr(1)).unwrap();
    let has_qp = |drive: &Driven| drive.core().id_info(id).is_some_and(|it| it.has_qp);
    drive.device_mut().has_qp = Some(false);
    drive.attach_qp(id, |_, _| Ok(())).unwrap();
    assert!(!has_qp(&drive), "a connect would send the number 0");
    drive.device_mut().has_qp = Some(true);
    drive.attach_qp(id, |_, _| Ok(())).unwrap();
    drive.detach_qp(id, |_, _| Ok(())).unwrap();
    assert!(has_qp(&drive), "the next attach would fail at the device");
}

#[test]
fn an_id_is_destroyed_without_the_acks_that_are_owed() {
    let (mut drive, _, id) = with_an_id(Acks::Explicit);
    let owed = take(&mut drive, id, CmEvent::AddrChange).unwrap();
    assert_eq!(drive.destroy(id, Time::NEVER), Ok(Progress::WhenAcked));
    drive.destroy_now(id).unwrap();
    assert_eq!(drive.core().state(id), None);
    let _late = drive.ack(owed.ack_token.unwrap()).unwrap_err();
}

#[test]
fn memberships_are_joined_and_left() {
    let mut drive = driven();
    let (channel, id) = channel_and_id(&mut drive, Acks::Explicit, PortSpace::Udp);
    drive.bind(id, addr(1)).unwrap();
    let [one, two] = [10, 11].map(|last| drive.join(id, group_addr(last), false, Time::NEVER).unwrap());
    assert_eq!(
        drive.join(id, group_addr(10), true, Time::NEVER).map_err(reason),
        Err(Some(RefuseReason::AlreadyMember(group_addr(10))))
    );
    fails(&mut drive, "join_multicast", Errno::ENOMEM);
    assert_eq!(drive.join(id, group_addr(12), true, Time::NEVER).unwrap_err().errno(), Errno::ENOMEM);
    has(&mut drive, RawEvent { group: Some(two), ..RawEvent::new(id, CmEvent::MulticastJoin) });
    assert_ne!(drive.run(8), Next::Again);
    let ack_token = drive.next_event(channel).unwrap().ack_token.unwrap();
    calls(&mut drive);
    assert_eq!(drive.leave(id, one).unwrap(), Progress::Done);
    assert_eq!(drive.leave(id, two).unwrap(), Progress::WhenAcked);
    assert_eq!(calls(&mut drive), ["leave_multicast"]);
    drive.ack(ack_token).unwrap();
    assert_eq!(calls(&mut drive), ["leave_multicast"]);
    assert_eq!(drive.next_event(channel).map(|event| event.kind), Some(EventKind::Left));
}

#[test]
fn a_migration_is_done_at_once_or_when_all_is_acked() {
    let (mut drive, here, id) = with_an_id(Acks::Explicit);
    let there = drive.open_channel(Acks::Explicit).unwrap();
    assert_eq!(drive.migrate(id, Some(there), Time::NEVER).unwrap(), Progress::Done);
    report(&mut drive, id, CmEvent::AddrChange);
    let ack_token = drive.next_event(there).unwrap().ack_token.unwrap();
    assert_eq!(drive.migrate(id, Some(here), Time::NEVER).unwrap(), Progress::WhenAcked);
    assert_eq!(drive.core().channel(id), Some(there));
    drive.ack(ack_token).unwrap();
    assert_eq!(drive.core().channel(id), Some(here));
    assert_eq!(drive.next_event(here).map(|event| event.kind), Some(EventKind::Migrated));
    fails(&mut drive, "migrate_id", Errno::ENOMEM);
    assert_eq!(drive.migrate(id, Some(there), Time::NEVER).unwrap_err().errno(), Errno::ENOMEM);
    assert_eq!(drive.core().channel(id), Some(here));
}

/// The channel of a listener closes with the last id on it.
#[test]
fn the_calls_that_follow_a_request_are_made_at_once() {
    for destroys in [true, false] {
        let (mut drive, channel, listener) = with_an_id(Acks::OnDelivery);
        drive.listen(listener, 1).unwrap();
        let child = requested(&mut drive, listener);
        while drive.next_event(channel).is_some() {}
        drive.destroy(listener, Time::NEVER).unwrap();
        calls(&mut drive);
        let made = if destroys {
            drive.destroy(child, Time::NEVER).unwrap();
            "destroy_id"
        } else {
            drive.migrate(child, Some(channel), Time::NEVER).unwrap();
            "migrate_id"
        };
        assert_eq!(calls(&mut drive), [made, "destroy_event_channel"]);
    }
}

#[test]
fn what_is_not_there_or_does_not_come_to_be_is_an_error() {
    let (mut drive, channel, id) = with_an_id(Acks::OnDelivery);
    assert!(matches!(drive.close_channel(channel), Err(Error::Refused(Refused::ChannelInUse { .. }))));
    fails(&mut drive, "create_id", Errno::ENOMEM);
    assert_eq!(drive.create_id(Some(channel), PortSpace::Tcp).unwrap_err().errno(), Errno::ENOMEM);
    assert_eq!(drive.core().ids().count(), 1);
    drive.destroy(id, Time::NEVER).unwrap();
    assert!(matches!(drive.bind(id, addr(1)), Err(Error::Refused(Refused::NoSuchId { .. }))));
    assert!(matches!(drive.release(id), Err(Error::Refused(Refused::NoSuchId { .. }))));
    drive.close_channel(channel).unwrap();
    assert!(drive.create_id(Some(channel), PortSpace::Tcp).is_err());
    is_empty(&drive);
}

#[test]
fn an_id_that_the_device_does_not_release_has_left_the_core() {
    let mut drive = driven();
    let id = drive.create_id(None, PortSpace::Tcp).unwrap();
    fails(&mut drive, "release", Errno::EIO);
    let leak = Fault::Leak { call: "release", target: Target::Id(id), errno: Errno::EIO };
    assert!(matches!(drive.release(id), Err(Error::Fault(fault)) if fault == leak));
    assert_eq!(drive.core().ids().count(), 0);
}

#[test]
fn an_id_for_which_there_is_no_room_can_be_adopted_later() {
    let (mut from, mut to) = (driven(), driven());
    let id = from.create_id(None, PortSpace::Tcp).unwrap();
    from.bind(id, addr(1)).unwrap();
    let released_id = from.release(id).unwrap();
    assert_eq!(released_id.state(), State::Bound);
    let mut last = None;
    while let Ok(id) = to.create_id(None, PortSpace::Tcp) {
        last = Some(id);
    }
    let refused = to.adopt(released_id).unwrap_err();
    assert!(matches!(refused.error, Error::Refused(Refused::Full("ids"))));
    to.destroy(last.unwrap(), Time::NEVER).unwrap();
    let id = to.adopt(refused.given.unwrap()).unwrap();
    assert_eq!(to.core().state(id), Some(State::Bound));
}
