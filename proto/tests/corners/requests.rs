//! What is asked for.

use cmid_proto::{Acks, CmEvent, EventKind, Limits, Request, State, Why};

use crate::fixture::{LISTEN, Stage, cm, to};

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
