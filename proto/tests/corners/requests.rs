//! What is asked for.

use std::time::Duration;

use cmid_proto::{
    About, Acks, CmEvent, CmOption, ConnParam, Errno, EventKind, Limits, PortSpace, RawEvent, Request, State, Time,
    Verb, Why,
};

use crate::fixture::{BIND, LISTEN, RESOLVE, Stage, addr, cm, raw, to};

#[test]
fn only_a_bind_to_the_address_of_an_interface_gives_a_device() {
    for (addr, gives) in [
        ("10.0.0.1:0", true),
        ("0.0.0.0:0", false),
        ("127.0.0.1:0", false),
        ("[fd00::1]:0", true),
        ("[::]:0", false),
        ("[::1]:0", false),
    ] {
        let (mut stage, here) = Stage::on(Acks::OnDelivery);
        let id = stage.id(Some(here));
        stage.does(id, Request::Bind { addr: addr.parse().unwrap() });
        if gives {
            stage.does(id, Request::AttachQp);
        } else {
            stage.refuses(id, Request::AttachQp, Why::NoDevice);
        }
        stage.ends(&[id], &[here]);
    }
}

#[test]
fn source_and_destination_are_of_one_family() {
    let (mut stage, here) = Stage::on(Acks::OnDelivery);
    let addresses = ["10.0.0.1:0", "[fd00::1]:0"].map(|addr| addr.parse().unwrap());
    for src in addresses {
        for dst in addresses {
            let id = stage.id(Some(here));
            let resolve = Request::ResolveAddr { src: Some(src), dst };
            if src.is_ipv4() == dst.is_ipv4() {
                stage.does(id, resolve);
                assert_eq!(stage.state(id), State::AddrResolving, "{src} to {dst}");
            } else {
                stage.refuses(id, resolve, Why::BadAddress);
            }
            stage.does(id, Request::Destroy);
        }
    }
    stage.ends(&[], &[here]);
}

#[test]
fn an_id_that_was_moved_before_its_request_was_taken_stays_when_its_listener_moves() {
    let mut stage = Stage::new();
    let [here, there, beyond] = [(); 3].map(|()| stage.channel(Acks::OnDelivery));
    let listener = stage.id(Some(here));
    stage.does(listener, LISTEN);
    let child = stage.says_request(listener);
    stage.does(child, to(there));
    stage.asks(listener, to(beyond)).unwrap();
    stage.no_call();
    assert_eq!((stage.core.home(child), stage.core.line(child)), (Some(there), Some(there)));
    // The request itself is the listener's event.
    stage.sees(beyond, child, cm(CmEvent::ConnectRequest));
    stage.says(child, CmEvent::AddrChange);
    stage.sees(there, child, cm(CmEvent::AddrChange));
    stage.ends(&[child, listener], &[here, there, beyond]);
}

#[test]
fn the_end_of_a_migration_does_not_count_against_the_limit_on_events() {
    let mut stage = Stage::with(Limits { ids: 4, channels: 4, events: 1, groups: 1, ..Limits::SINGLE });
    let [here, there] = [(); 2].map(|()| stage.channel(Acks::Explicit));
    let id = stage.id(Some(here));
    stage.says(id, CmEvent::AddrChange);
    let event = stage.expect_event(here, id, cm(CmEvent::AddrChange));
    stage.asks(id, to(there)).unwrap();
    stage.acks(event);
    stage.all_well();
    assert!(stage.core.wants_event(there).is_some());
    stage.sees(there, id, EventKind::Migrated);
    stage.ends(&[id], &[here, there]);
}

#[test]
fn a_large_core_holds_a_million_ids_and_65536_of_the_rest() {
    let Limits { ids, channels, events, groups, .. } = Limits::default();
    assert_eq!((ids, channels, events, groups), (1_048_576, 65_536, 65_536, 65_536));
    assert_eq!(Limits::default(), Limits::LARGE);
}

#[test]
fn a_request_that_waits_for_nothing_leaves_the_deadline_of_the_one_that_waits() {
    let (mut stage, here) = Stage::on(Acks::OnDelivery);
    let id = stage.id(Some(here));
    let [soon, later] = [1, 2].map(|seconds| stage.within(Duration::from_secs(seconds)));
    stage.does_until(id, RESOLVE, later);
    stage.does_until(id, Request::SetOption { option: CmOption::Tos(4) }, soon);
    assert_eq!(stage.core.poll_timeout(), Some((later, id)));
    stage.ends(&[id], &[here]);
}

#[test]
fn an_accept_without_a_qp_names_a_qp_number() {
    let (mut stage, here) = Stage::on(Acks::OnDelivery);
    for state in [State::Requested, State::Asked] {
        let id = stage.in_state(here, state);
        let accept =
            |qp_num| Request::Accept { param: ConnParam { qp_num, ..ConnParam::default() }, private_data: &[] };
        stage.refuses(id, accept(0), Why::NoQp);
        stage.does(id, accept(1));
    }
}

#[test]
fn what_the_core_made_is_not_to_be_acked() {
    let (mut stage, here) = Stage::on(Acks::Explicit);
    let there = stage.channel(Acks::Explicit);
    let id = stage.id_for(PortSpace::Udp, Some(here));
    stage.does(id, BIND);
    let group = stage.core.join(stage.now, id, addr(9), false, Time::NEVER).unwrap();
    stage.all_well();
    stage.says_on(here, RawEvent { group: Some(group), ..raw(id, CmEvent::MulticastJoin, 0) });
    let joined = stage.expect_event(here, id, cm(CmEvent::MulticastJoin));
    stage.asks(id, Request::Leave { group }).unwrap();
    stage.acks(joined);
    stage.all_well();
    assert!(stage.expect_event(here, id, EventKind::Left).receipt.is_none());
    for last in [EventKind::Migrated, EventKind::Destroyed] {
        stage.says(id, CmEvent::AddrChange);
        let event = stage.expect_event(here, id, cm(CmEvent::AddrChange));
        let request = if last == EventKind::Migrated { to(here) } else { Request::Destroy };
        stage.asks(id, request).unwrap();
        stage.acks(event);
        stage.all_well();
        assert!(stage.expect_event(here, id, last).receipt.is_none(), "{last:?}");
    }
    stage.ends(&[], &[here, there]);
}

#[test]
fn the_end_of_a_synchronous_request_is_news() {
    let mut stage = Stage::new();
    let id = stage.id(None);
    stage.does(id, RESOLVE);
    let before = stage.core.news();
    assert_eq!(stage.core.sync_result(id), None);
    stage.says(id, CmEvent::AddrResolved);
    assert_eq!(stage.core.sync_result(id), Some(Ok(())));
    assert_ne!(stage.core.news(), before, "whoever waits for it has not looked at it");
    stage.does(id, Request::Destroy);
}

#[test]
fn the_request_that_waits_for_its_event_in_synchronous_mode_is_named() {
    let mut stage = Stage::new();
    let id = stage.id(None);
    assert_eq!(stage.core.sync_open(id), None);
    stage.does(id, RESOLVE);
    assert_eq!(stage.core.sync_open(id), Some(Verb::ResolveAddr));
    stage.says(id, CmEvent::AddrResolved);
    assert_eq!(stage.core.sync_open(id), None);
    stage.does(id, Request::Destroy);
}

#[test]
fn the_end_of_an_id_is_not_told_on_a_channel_that_is_still_being_opened() {
    let mut stage = Stage::new();
    let channel = stage.core.open_channel(Acks::OnDelivery).unwrap();
    let (opening, _) = stage.takes_call("create_event_channel");
    let id = stage.core.create_id(Some(channel), PortSpace::Tcp).unwrap();
    let (creating, _) = stage.takes_call("create_id");
    stage.asks(id, Request::Destroy).unwrap();
    let ended = stage.answers(creating, Err(Errno::ENOMEM)).unwrap();
    assert_eq!((ended.about, ended.result), (About::Id(id), Ok(())));
    stage.answers(opening, Ok(()));
    stage.no_event(channel);
    stage.ends(&[], &[channel]);
}

#[test]
fn an_ack_that_nobody_owes_is_refused_although_there_is_such_an_id() {
    let (mut one, here) = Stage::on(Acks::Explicit);
    let id = one.id(Some(here));
    one.says(id, CmEvent::AddrChange);
    let receipt = one.expect_event(here, id, cm(CmEvent::AddrChange)).receipt.unwrap();
    // Another core of the same number.
    let (mut two, there) = Stage::on(Acks::Explicit);
    assert_eq!(two.id(Some(there)), id);
    let before = two.core.clone();
    assert!(two.core.ack(receipt).is_err());
    assert_eq!(two.core, before);
    two.ends(&[id], &[there]);
}
