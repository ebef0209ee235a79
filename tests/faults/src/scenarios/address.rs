//! An address is removed from its interface, and added again later.

use cmid_harness::{Check, Env, Side};

use super::faults;
use crate::Expected::{Always, By};
use crate::devices::{CLIENT, CLIENT_IS_DEAF, FINE, NONE, RECOVERED};
use crate::fixture::STANDS;
use crate::{FaultFixture, Phase};

faults! { "An address is removed, and comes back";
    address_lost_while_bound [All Fast 90] "the client's, with an id that is bound to it" => [
        Always(&["client: resolve_addr: ENETUNREACH"]),
        RECOVERED,
    ] |s| { lost(s, Side::Client, Phase::Bound) }
    address_lost_with_the_address_resolved [Epoll Fast 90] "the client's, with the peer's resolved" => [
        Always(&["client: resolve_route: ok", "client: ROUTE_RESOLVED"]),
        RECOVERED,
    ] |s| { lost(s, Side::Client, Phase::AddrResolved) }
    address_lost_with_the_route_resolved [Epoll Fast 90] "the client's, with the route resolved" => [
        Always(&["client: connect: EINVAL"]),
        RECOVERED,
    ] |s| { lost(s, Side::Client, Phase::RouteResolved) }
    address_lost_with_a_request_unread [Epoll Fast 90] "the client's, with a request that the server has not read" => [
        Always(&["server: accept: ok"]),
        By { v6_1: &["client: UNREACHABLE (-ETIMEDOUT)"], v6_12: &[] },
        Always(&["server: DEADLINE_PASSED(accept)", "all is well again"]),
        By { v6_1: &[CLIENT_IS_DEAF], v6_12: &[CLIENT] },
        Always(&[NONE]),
    ] |s| { lost(s, Side::Client, Phase::Unread) }
    address_lost_with_a_request_read [Epoll Fast 90] "the client's, with a request that is not answered" => [
        Always(&["server: accept: ok"]),
        By { v6_1: &["client: UNREACHABLE (-ETIMEDOUT)"], v6_12: &[] },
        Always(&["server: DEADLINE_PASSED(accept)", "all is well again"]),
        By { v6_1: &[CLIENT_IS_DEAF], v6_12: &[CLIENT] },
        Always(&[NONE]),
    ] |s| { lost(s, Side::Client, Phase::Requested) }
    address_lost_with_an_answer_unread [Epoll Fast 90] "the client's, with an answer that it has not read" => [
        Always(&["client: looks", "client: CONNECT_RESPONSE"]),
        RECOVERED,
    ] |s| { lost(s, Side::Client, Phase::Accepted) }
    address_lost_with_an_answer_read [Epoll Fast 90] "the client's, with an answer that is not confirmed" => [
        Always(&["client: establish: EINVAL"]),
        RECOVERED,
    ] |s| { lost(s, Side::Client, Phase::Responded) }
    address_lost_while_connected [All Fast 90] "the client's, with a connection that stands" => [
        Always(&["client: disconnect: ok", "client: DEADLINE_PASSED(disconnect)"]),
        RECOVERED,
    ] |s| { lost(s, Side::Client, Phase::Connected) }
    address_lost_while_disconnecting [Epoll Fast 90] "the client's, with a disconnect that is not answered" => [
        Always(&["server: disconnect: ok"]),
        By { v6_1: &["client: DISCONNECTED (-ETIMEDOUT), TIMEWAIT_EXIT"], v6_12: &[] },
        Always(&["server: TIMEWAIT_EXIT", "all is well again"]),
        By { v6_1: &[CLIENT_IS_DEAF], v6_12: &[CLIENT] },
        Always(&[NONE]),
    ] |s| { lost(s, Side::Client, Phase::Disconnecting) }
    servers_address_lost_while_listening [Epoll Fast 90] "the server's, while it listens" => [
        Always(&[
            "client: connect: ok", "client: DEADLINE_PASSED(connect)", "all is well again", "server: CONNECT_REQUEST",
            FINE, STANDS,
        ]),
    ] |s| { lost(s, Side::Server, Phase::RouteResolved) }
    servers_address_lost_with_a_request_read [Epoll Fast 90] "the server's, with a request that is not answered" => [
        Always(&["server: accept: EINVAL", "all is well again", "server: CONNECT_REQUEST", FINE, STANDS]),
    ] |s| { lost(s, Side::Server, Phase::Requested) }
    servers_address_lost_while_connected [Epoll Fast 90] "the server's, with a connection that stands" => [
        Always(&[
            "client: disconnect: ok", "client: DEADLINE_PASSED(disconnect)", "all is well again",
            "server: DISCONNECTED", FINE, STANDS,
        ]),
    ] |s| { lost(s, Side::Server, Phase::Connected) }
}

fn lost<L: Env>(s: &mut FaultFixture<'_, L>, whose: Side, phase: Phase) -> Check {
    s.fault_in(phase, |_, link| link.lose_address(whose), |_, link| link.regain_address(whose))
}
