//! The RDMA device is deleted, and added again later.

use cmid_harness::{Check, Disturbance, Env, Side};

use super::faults;
use crate::Expected::{Always, By};
use crate::devices::{CLIENT, CLIENT_IS_DEAF, RECOVERED};
use crate::fixture::STANDS;
use crate::{FaultFixture, Phase};

faults! { "The client's RDMA device is deleted, and added again";
    device_gone_while_bound [All Fast 60] "with an id that is bound" => [
        Always(&["client: DEVICE_REMOVAL", "client: resolve_addr: refused, ENXIO"]),
        RECOVERED,
    ] |s| { gone(s, Phase::Bound) }
    device_gone_with_the_address_resolved [Epoll Fast 60] "with the address resolved" => [
        Always(&["client: DEVICE_REMOVAL", "client: resolve_route: refused, ENXIO"]),
        RECOVERED,
    ] |s| { gone(s, Phase::AddrResolved) }
    device_gone_with_the_route_resolved [Epoll Fast 60] "with the route resolved" => [
        Always(&["client: DEVICE_REMOVAL", "client: connect: refused, ENXIO"]),
        RECOVERED,
    ] |s| { gone(s, Phase::RouteResolved) }
    device_gone_with_a_request_unread [Epoll Fast 60] "with a request that the server has not read" => [
        Always(&["client: DEVICE_REMOVAL", "server: accept: EINVAL"]),
        RECOVERED,
    ] |s| { gone(s, Phase::Unread) }
    device_gone_with_a_request_read [Epoll Fast 60] "with a request that is not answered" => [
        Always(&["client: DEVICE_REMOVAL", "server: accept: EINVAL"]),
        RECOVERED,
    ] |s| { gone(s, Phase::Requested) }
    device_gone_with_an_answer_unread [Epoll Fast 60] "with an answer that the client has not read" => [
        Always(&["server: REJECTED (reason 28)", "client: looks", "client: CONNECT_RESPONSE, DEVICE_REMOVAL"]),
        RECOVERED,
    ] |s| { gone(s, Phase::Accepted) }
    device_gone_with_an_answer_read [Epoll Fast 60] "with an answer that is not confirmed" => [
        Always(&["client: DEVICE_REMOVAL", "server: REJECTED (reason 28)", "client: establish: refused, ENXIO"]),
        RECOVERED,
    ] |s| { gone(s, Phase::Responded) }
    device_gone_while_connected [All Fast 60] "with a connection that stands" => [
        Always(&["client: DEVICE_REMOVAL", "server: DISCONNECTED", "client: disconnect: refused, ENXIO"]),
        RECOVERED,
    ] |s| { gone(s, Phase::Connected) }
    device_gone_while_disconnecting [Epoll Fast 60] "with a disconnect that is not answered" => [
        Always(&["client: DEVICE_REMOVAL", "server: disconnect: ok", "server: TIMEWAIT_EXIT"]),
        RECOVERED,
    ] |s| { gone(s, Phase::Disconnecting) }
    device_gone_and_healed [Epoll Fast 90] "a link that was down has left the device unable to send; it is deleted and added again" => [
        Always(&["client: disconnect: ok"]),
        By {
            v6_1: &["client: DISCONNECTED (-ETIMEDOUT), TIMEWAIT_EXIT"],
            v6_12: &["client: DEADLINE_PASSED(disconnect)"],
        },
        Always(&["all is well again"]),
        By { v6_1: &[CLIENT_IS_DEAF], v6_12: &[CLIENT] },
        Always(&["it is deleted and added again", STANDS]),
    ] |s| {
        let (ids, link) = (s.reach(Phase::Connected)?, s.link);
        link.down(Side::Client)?;
        s.go_on(Phase::Connected, ids)?;
        link.up(Side::Client)?;
        s.note("all is well again");
        s.renew()?;
        s.note("it is deleted and added again");
        s.anew()
    }
}

fn gone<L: Env>(s: &mut FaultFixture<'_, L>, phase: Phase) -> Check {
    s.fault_in(
        phase,
        |s, _| s.b.env.disturb(Disturbance::DeviceGoes),
        |s, _| {
            s.destroy_all()?;
            s.b.env.disturb(Disturbance::DeviceComes)
        },
    )
}
