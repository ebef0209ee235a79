//! Corner cases of requests.

use cmid_proto::{
    Acks, CmEvent, CmOption, ConnParam, Errno, EventKind, Limits, RefuseReason, Request, RequestKind, State, Time,
};

use crate::fixture::{BIND, CoreFixture, LISTEN, RESOLVE, addr, to};

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
        let (mut fixture, _, id) = CoreFixture::with_id(Acks::OnDelivery, State::Idle);
        fixture.does(id, Request::Bind { addr: addr.parse().unwrap() });
        if gives {
            fixture.does(id, Request::AttachQp);
        } else {
            fixture.refuses(id, Request::AttachQp, RefuseReason::NoDevice);
        }
    }
}

#[test]
fn source_and_destination_are_of_one_family() {
    let (mut fixture, here) = CoreFixture::on(Acks::OnDelivery);
    let addresses = ["10.0.0.1:0", "[fd00::1]:0"].map(|addr| addr.parse().unwrap());
    for src in addresses {
        for dst in addresses {
            let id = fixture.id(Some(here));
            let resolve = Request::ResolveAddr { src: Some(src), dst };
            if src.is_ipv4() == dst.is_ipv4() {
                fixture.does(id, resolve);
                assert_eq!(fixture.state(id), State::AddrResolving, "{src} to {dst}");
            } else {
                fixture.refuses(id, resolve, RefuseReason::BadAddress);
            }
            fixture.does(id, Request::Destroy);
        }
    }
}

#[test]
fn a_source_is_refused_on_an_id_that_is_bound() {
    let (mut fixture, here) = CoreFixture::on(Acks::OnDelivery);
    let from = |src: &str| Request::ResolveAddr { src: Some(src.parse().unwrap()), dst: addr(2) };
    for sync in [false, true] {
        let bound = fixture.id((!sync).then_some(here));
        fixture.does(bound, BIND);
        for src in ["10.0.0.1:7471", "10.0.0.2:0", "0.0.0.0:0"] {
            let refused = fixture.refuses(bound, from(src), RefuseReason::IsBound);
            assert_eq!(refused.errno(), Errno::EINVAL, "{refused}");
        }
        fixture.does(bound, RESOLVE);
        fixture.does(bound, Request::Destroy);
    }
    // A resolve that fails has bound the id to its source, or to the wildcard.
    for first in [from("10.0.0.1:0"), RESOLVE] {
        let tried = fixture.id(Some(here));
        fixture.does(tried, first);
        fixture.report_and_take(tried, CmEvent::AddrError);
        fixture.refuses(tried, from("10.0.0.1:0"), RefuseReason::IsBound);
        fixture.does(tried, RESOLVE);
        fixture.does(tried, Request::Destroy);
    }
}

#[test]
fn a_source_is_refused_on_an_idle_id_that_a_failed_call_may_have_bound() {
    let (mut fixture, here) = CoreFixture::on(Acks::OnDelivery);
    let from = |src: &str| Request::ResolveAddr { src: Some(src.parse().unwrap()), dst: addr(2) };
    let binding =
        [(BIND, "bind_addr"), (RESOLVE, "resolve_addr"), (from("10.0.0.1:0"), "resolve_addr"), (LISTEN, "listen")];
    for errno in [Errno::EINVAL, Errno::ENOMEM, Errno::EACCES, Errno::EADDRNOTAVAIL, Errno::ENETUNREACH] {
        for (request, call) in binding {
            // A listener has its own channel, so in synchronous mode the listen is one call.
            for sync in [false, true].into_iter().filter(|sync| *sync || call != "listen") {
                let id = fixture.id((!sync).then_some(here));
                let failure = fixture.fails(id, request, call, errno);
                assert_eq!(failure.state, State::Idle, "the device decides on a later bind");
                fixture.refuses(id, from("10.0.0.1:0"), RefuseReason::IsBound);
                // Without a source nothing is ignored.
                fixture.fails(id, RESOLVE, "resolve_addr", Errno::ENODEV);
                fixture.fails(id, BIND, "bind_addr", Errno::EINVAL);
                fixture.does(id, BIND);
                fixture.does(id, RESOLVE);
                fixture.does(id, Request::Destroy);
            }
        }
    }
    // These bind nothing.
    let id = fixture.id(Some(here));
    fixture.fails(id, Request::SetOption { option: CmOption::ReuseAddr(true) }, "set_option", Errno::EINVAL);
    fixture.does(id, from("10.0.0.1:0"));
}

#[test]
fn an_ipv4_mapped_address_is_refused_in_every_place() {
    let (mut fixture, here) = CoreFixture::on(Acks::OnDelivery);
    let [mapped, ipv6] = ["[::ffff:10.0.0.2]:7", "[fd00::1]:7"].map(|addr| addr.parse().unwrap());
    let id = fixture.id(Some(here));
    for request in [
        Request::Bind { addr: mapped },
        Request::ResolveAddr { src: None, dst: mapped },
        Request::ResolveAddr { src: Some(ipv6), dst: mapped },
        Request::ResolveAddr { src: Some(mapped), dst: ipv6 },
    ] {
        fixture.refuses(id, request, RefuseReason::MappedAddress);
    }
    fixture.does(id, Request::ResolveAddr { src: Some(ipv6), dst: ipv6 });
    fixture.does(id, Request::Destroy);
}

#[test]
fn the_end_of_a_migration_does_not_count_against_the_limit_on_events() {
    let mut fixture = CoreFixture::with(Limits { ids: 4, channels: 4, events: 1, groups: 1, ..Limits::SINGLE });
    let [here, there] = [(); 2].map(|()| fixture.channel(Acks::Explicit));
    let id = fixture.id(Some(here));
    let event = fixture.owes(here, id);
    fixture.submit(id, to(there)).unwrap();
    fixture.acks(event);
    fixture.all_well();
    assert!(fixture.core.wants_event(there).is_some());
    fixture.sees(there, id, EventKind::Migrated);
}

#[test]
fn a_large_core_holds_a_million_ids_and_65536_of_the_rest() {
    let Limits { ids, channels, events, groups, reserved_ids, reserved_events, channel_events, core } =
        Limits::default();
    assert_eq!((ids, channels, events, groups), (1_048_576, 65_536, 65_536, 65_536));
    assert_eq!((reserved_ids, reserved_events, channel_events, core), (4096, 16_384, 16_384, None));
    assert_eq!(Limits::default(), Limits::LARGE);
}

#[test]
fn an_accept_without_a_qp_names_a_qp_number() {
    let (mut fixture, here) = CoreFixture::on(Acks::OnDelivery);
    for state in [State::Requested, State::SidrReqReceived] {
        let id = fixture.in_state(here, state);
        let accept =
            |qp_num| Request::Accept { param: ConnParam { qp_num, ..ConnParam::default() }, private_data: &[] };
        fixture.refuses(id, accept(0), RefuseReason::NoQp);
        fixture.does(id, accept(1));
    }
}

#[test]
fn the_request_that_waits_for_its_event_in_synchronous_mode_is_named_and_its_end_is_news() {
    let mut fixture = CoreFixture::new();
    let id = fixture.id(None);
    assert_eq!(fixture.core.id_info(id).and_then(|it| it.sync_open), None);
    fixture.does(id, RESOLVE);
    assert_eq!(fixture.core.id_info(id).and_then(|it| it.sync_open), Some(RequestKind::ResolveAddr));
    let before = fixture.core.activity();
    assert_eq!(fixture.core.sync_result(id), None);
    fixture.report(id, CmEvent::AddrResolved);
    assert_eq!(fixture.core.sync_result(id), Some(Ok(())));
    assert_ne!(fixture.core.activity(), before, "whoever waits for it has not looked at it");
    assert_eq!(fixture.core.id_info(id).and_then(|it| it.sync_open), None);
    fixture.does(id, Request::Destroy);
}

/// Not its private data.
#[test]
fn a_request_that_has_begun_shows_its_call() {
    let (mut fixture, _, id) = CoreFixture::with_id(Acks::OnDelivery, State::Idle);
    let begun = fixture.core.begin(Time::ZERO, id, &BIND, Time::NEVER).unwrap();
    assert!(format!("{begun:?}").starts_with("Begun(Some(Bind {"));
}
