//! The link goes down, and comes up again later.

use cmid_harness::{Check, Env, Side};

use super::faults;
use crate::Expected::{Always, By};
use crate::devices::{BOTH, CLIENT, CLIENT_IS_DEAF, FINE, NONE, RECOVERED, SERVER};
use crate::fixture::STANDS;
use crate::{FaultFixture, Phase};

faults! { "The client's link goes down, and comes up again";
    link_down_while_bound [All Fast 90] "with an id that is bound" => [
        Always(&["client: resolve_addr: ENETUNREACH"]),
        RECOVERED,
    ] |s| { down(s, Phase::Bound) }
    link_down_with_the_address_resolved [Epoll Fast 90] "with the address resolved" => [
        Always(&["client: resolve_route: ok", "client: ROUTE_RESOLVED"]),
        RECOVERED,
    ] |s| { down(s, Phase::AddrResolved) }
    link_down_with_the_route_resolved [Epoll Fast 90] "with the route resolved" => [
        Always(&["client: connect: ok"]),
        By { v6_1: &["client: UNREACHABLE (-ETIMEDOUT)"], v6_12: &["client: DEADLINE_PASSED(connect)"] },
        Always(&["all is well again"]),
        By { v6_1: &[CLIENT_IS_DEAF], v6_12: &[CLIENT] },
        Always(&[NONE]),
    ] |s| { down(s, Phase::RouteResolved) }
    link_down_with_a_request_unread [Epoll Fast 90] "with a request that the server has not read" => [
        Always(&["server: accept: ok"]),
        By { v6_1: &["client: UNREACHABLE (-ETIMEDOUT)"], v6_12: &[] },
        Always(&["server: DEADLINE_PASSED(accept)", "all is well again"]),
        By { v6_1: &[CLIENT_IS_DEAF], v6_12: &[BOTH] },
        Always(&[NONE]),
    ] |s| { down(s, Phase::Unread) }
    link_down_with_a_request_read [Epoll Fast 90] "with a request that is not answered" => [
        Always(&["server: accept: ok"]),
        By { v6_1: &["client: UNREACHABLE (-ETIMEDOUT)"], v6_12: &[] },
        Always(&["server: DEADLINE_PASSED(accept)", "all is well again"]),
        By { v6_1: &[CLIENT_IS_DEAF], v6_12: &[BOTH] },
        Always(&[NONE]),
    ] |s| { down(s, Phase::Requested) }
    link_down_with_an_answer_unread [Epoll Fast 90] "with an answer that the client has not read" => [
        Always(&["client: looks", "client: CONNECT_RESPONSE", "all is well again"]),
        By { v6_1: &[FINE], v6_12: &[SERVER] },
        By { v6_1: &[STANDS], v6_12: &[NONE] },
    ] |s| { down(s, Phase::Accepted) }
    link_down_with_an_answer_read [Epoll Fast 90] "with an answer that is not confirmed" => [
        Always(&["client: establish: ok", "all is well again"]),
        By { v6_1: &[CLIENT_IS_DEAF], v6_12: &[BOTH] },
        Always(&[NONE]),
    ] |s| { down(s, Phase::Responded) }
    link_down_while_connected [All Fast 90] "with a connection that stands" => [
        Always(&["client: disconnect: ok"]),
        By {
            v6_1: &["client: DISCONNECTED (-ETIMEDOUT), TIMEWAIT_EXIT"],
            v6_12: &["client: DEADLINE_PASSED(disconnect)"],
        },
        Always(&["all is well again"]),
        By { v6_1: &[CLIENT_IS_DEAF], v6_12: &[CLIENT] },
        Always(&[NONE]),
    ] |s| { down(s, Phase::Connected) }
    link_down_while_disconnecting [Epoll Fast 90] "with a disconnect that is not answered" => [
        Always(&["server: disconnect: ok"]),
        By { v6_1: &["client: DISCONNECTED (-ETIMEDOUT), TIMEWAIT_EXIT"], v6_12: &[] },
        Always(&["server: TIMEWAIT_EXIT", "all is well again"]),
        By { v6_1: &[CLIENT_IS_DEAF], v6_12: &[BOTH] },
        Always(&[NONE]),
    ] |s| { down(s, Phase::Disconnecting) }
    link_down_for_a_moment [Epoll Fast 90] "with a connection that stands, for a moment only" => [
        Always(&["client: disconnect: ok", "client: DEADLINE_PASSED(disconnect)", "server: DISCONNECTED"]),
    ] |s| {
        let (ids, link) = (s.reach(Phase::Connected)?, s.link);
        link.down(Side::Client)?;
        link.up(Side::Client)?;
        s.watch(crate::fixture::AT_ONCE)?;
        s.go_on(Phase::Connected, ids)
    }
}

fn down<L: Env>(s: &mut FaultFixture<'_, L>, phase: Phase) -> Check {
    s.fault_in(phase, |_, link| link.down(Side::Client), |_, link| link.up(Side::Client))
}
