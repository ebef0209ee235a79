//! Loopback addresses, which the kernel takes for the wildcard (`cma_any_addr`).

use std::net::SocketAddr;

use cmid_proto::{Acks, CmEvent, Errno, FailureCause, PortSpace, RefuseReason, Request, State};

use crate::fixture::{BIND, CoreFixture, LISTEN, OK, RESOLVE};

/// Addresses of the host itself, with which no RDMA device is named.
const OWN: [&str; 3] = ["127.0.0.1:7", "127.255.255.254:7", "[::1]:7"];

/// Addresses on which a listener accepts what it says.
const OTHER: [&str; 6] = ["10.0.0.1:7", "0.0.0.0:7", "0.0.0.1:7", "[::]:7", "[fd00::1]:7", "128.0.0.1:7"];

fn at(addr: &str) -> SocketAddr {
    addr.parse().unwrap()
}

#[test]
fn a_listen_on_a_loopback_address_is_refused_in_every_port_space_and_mode() {
    for space in PortSpace::ALL {
        for sync in [false, true] {
            for (addr, open) in OWN.map(|addr| (addr, false)).into_iter().chain(OTHER.map(|addr| (addr, true))) {
                let (mut fixture, here) = CoreFixture::on(Acks::OnDelivery);
                let id = fixture.id_for(space, (!sync).then_some(here));
                fixture.does(id, Request::Bind { addr: at(addr) });
                if open {
                    fixture.does(id, LISTEN);
                } else {
                    let refused = fixture.refuses(id, LISTEN, RefuseReason::OnLoopback);
                    assert!(refused.to_string().contains("other hosts could connect"), "{refused}");
                }
            }
        }
    }
}

#[test]
fn the_source_of_a_failed_resolve_counts_as_the_address_of_a_bind() {
    let (mut fixture, here) = CoreFixture::on(Acks::OnDelivery);
    for (src, open) in [(None, true), (Some(at("10.0.0.1:7")), true), (Some(at("127.0.0.1:7")), false)] {
        for inline in [false, true] {
            let id = fixture.id(Some(here));
            let resolve = Request::ResolveAddr { src, dst: at("10.0.0.2:7") };
            if inline {
                fixture.fails(id, resolve, "resolve_addr", Errno::ENETUNREACH);
            } else {
                fixture.does(id, resolve);
                fixture.report_and_take(id, CmEvent::AddrError);
            }
            assert_eq!(fixture.state(id), if inline { State::Idle } else { State::Bound });
            if open {
                fixture.does(id, LISTEN);
            } else {
                fixture.refuses(id, LISTEN, RefuseReason::OnLoopback);
            }
            fixture.does(id, Request::Destroy);
        }
    }
}

/// The core cannot know whether a lookup that fails has bound the id, so it assumes that.
#[test]
fn an_idle_id_that_may_be_bound_to_a_loopback_address_does_not_listen() {
    for sync in [false, true] {
        let (mut fixture, here) = CoreFixture::on(Acks::OnDelivery);
        let id = fixture.id_for(PortSpace::Tcp, (!sync).then_some(here));
        let resolve = |src: Option<&str>| Request::ResolveAddr { src: src.map(at), dst: at("10.0.0.255:7") };
        fixture.fails(id, resolve(Some("127.0.0.1:0")), "resolve_addr", Errno::EINVAL);
        assert_eq!(fixture.state(id), State::Idle);
        fixture.refuses(id, LISTEN, RefuseReason::OnLoopback);
        // A bind that fails and a lookup without a source do not change the address.
        fixture.fails(id, BIND, "bind_addr", Errno::EINVAL);
        fixture.refuses(id, LISTEN, RefuseReason::OnLoopback);
        fixture.fails(id, resolve(None), "resolve_addr", Errno::ENETUNREACH);
        fixture.refuses(id, LISTEN, RefuseReason::OnLoopback);
        fixture.does(id, Request::Destroy);
        // A bind that succeeds shows that the id was not bound.
        let free = fixture.id_for(PortSpace::Tcp, (!sync).then_some(here));
        fixture.fails(free, resolve(Some("127.0.0.1:0")), "resolve_addr", Errno::EADDRINUSE);
        fixture.refuses(free, LISTEN, RefuseReason::OnLoopback);
        fixture.does(free, BIND);
        fixture.does(free, LISTEN);
    }
}

#[test]
fn an_address_that_the_id_is_not_bound_to_does_not_count() {
    let (mut fixture, here) = CoreFixture::on(Acks::OnDelivery);
    // The bind fails, and the listen of the idle id binds it to the wildcard.
    let idle = fixture.id(Some(here));
    fixture.fails(idle, Request::Bind { addr: at("127.0.0.1:7") }, "bind_addr", Errno::EADDRINUSE);
    fixture.does(idle, LISTEN);
    // Another bind succeeds.
    let bound = fixture.id(Some(here));
    fixture.fails(bound, Request::Bind { addr: at("127.0.0.1:7") }, "bind_addr", Errno::EADDRINUSE);
    fixture.does(bound, BIND);
    fixture.does(bound, LISTEN);
    // The destination is not the address of the id.
    let connecting = fixture.id(Some(here));
    fixture.does(connecting, Request::ResolveAddr { src: None, dst: at("127.0.0.1:7") });
    fixture.report_and_take(connecting, CmEvent::AddrError);
    fixture.does(connecting, LISTEN);
}

#[test]
fn a_failed_request_on_the_way_to_a_loopback_address_says_why() {
    let (mut fixture, here) = CoreFixture::on(Acks::OnDelivery);
    let loopback = ["127.0.0.1:7", "[::1]:7", "0.0.0.0:7", "[::]:7"].map(|dst| (dst, true));
    for (dst, to_loopback) in loopback.into_iter().chain([("10.0.0.2:7", false)]) {
        let resolve = Request::ResolveAddr { src: None, dst: at(dst) };
        let cause = to_loopback.then_some(FailureCause::LoopbackPeer);
        // iWARP.
        let id = fixture.id(Some(here));
        let failure = fixture.fails(id, resolve, "resolve_addr", Errno::EINVAL);
        assert_eq!((failure.errno, failure.cause), (Errno::EINVAL, cause), "{dst}");
        assert_eq!(failure.to_string().contains("EINVAL: no RoCE or iWARP device reaches"), to_loopback, "{failure}");
        // RoCE.
        fixture.does(id, resolve);
        fixture.report_and_take(id, CmEvent::AddrResolved);
        let failure = fixture.fails(id, Request::ResolveRoute, "resolve_route", Errno::ENODEV);
        assert_eq!((failure.errno, failure.cause), (Errno::ENODEV, cause), "{dst}");
        fixture.does(id, Request::Destroy);
    }
    // A later destination replaces the former one, and other requests do not concern it.
    let id = fixture.id(Some(here));
    fixture.does(id, Request::ResolveAddr { src: None, dst: at("127.0.0.1:7") });
    fixture.report_and_take(id, CmEvent::AddrError);
    fixture.makes(id, LISTEN, "create_event_channel");
    fixture.expect_call("migrate_id", OK);
    let failure = fixture.expect_call("listen", Err(Errno::EADDRINUSE)).unwrap().result.unwrap_err();
    assert_eq!(failure.cause, None);
    let failure = fixture.fails(id, RESOLVE, "resolve_addr", Errno::ENODEV);
    assert_eq!(failure.cause, None);
    // TCP takes the wildcard for the address that the id is bound to.
    let bound = fixture.id(Some(here));
    fixture.does(bound, BIND);
    let failure =
        fixture.fails(bound, Request::ResolveAddr { src: None, dst: at("0.0.0.0:7") }, "resolve_addr", Errno::EINVAL);
    assert_eq!(failure.cause, None);
}
