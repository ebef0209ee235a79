//! Section "addresses", and all other errors of users: typed errors that name the cause and the state.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use cmid_harness::failure::{ensure, fails, same};
use cmid_harness::fixture::{Side, pdl};
use cmid_harness::{Check, Env, Failure, Fixture};
use cmid_proto::{
    Call, CmEvent, CmOption, Device, Errno, Error, EventKind, IdKey, PortSpace, RefuseReason, Refused, RequestKind,
    State, Time,
};

pub(super) fn behaviour_39_bind<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let net = b.net();
    let at = |ip| SocketAddr::new(ip, b.address.port());
    let (server, other, foreign, plain) = (at(net.server), at(net.client), at(net.no_route), at(net.no_rdma));
    let any = at(Ipv4Addr::UNSPECIFIED.into());
    let loopback = at(Ipv4Addr::LOCALHOST.into());
    let id = b.idle()?;
    fails("an address that is not local", b.client.drive().bind(id, foreign), Errno::EADDRNOTAVAIL)?;
    same("and the id", b.client.drive().core().state(id), Some(State::Idle))?;
    b.client.drive().bind(id, server)?;
    fails("twice", b.client.drive().bind(id, server), Errno::EINVAL)?;
    let second = b.idle()?;
    fails("a port in use", b.client.drive().bind(second, server), Errno::EADDRINUSE)?;
    fails("wildcard against it", b.client.drive().bind(second, any), Errno::EADDRNOTAVAIL)?;
    fails("loopback against it", b.client.drive().bind(second, loopback), Errno::EADDRNOTAVAIL)?;
    b.client.drive().bind(second, other)?;
    let third = b.idle()?;
    fails("no device there", b.client.drive().bind(third, plain), Errno::ENODEV)?;
    let free = SocketAddr::new(net.client, 0);
    fails("for ever", b.client.drive().bind(third, free), Errno::ENODEV)?;
    b.client.drive().listen(third, 1)?;
    let channel = b.client.channel;
    let drive = b.client.drive();
    let datagrams = drive.create_id(Some(channel), PortSpace::Udp)?;
    drive.bind(datagrams, server)?;
    let infiniband = drive.create_id(Some(channel), PortSpace::Ipoib)?;
    fails("IPOIB on RoCE", drive.bind(infiniband, free), Errno::EINVAL)
}

pub(super) fn behaviour_40_listen<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let id = b.idle()?;
    b.client.drive().listen(id, 0)?;
    let local = Device::local_addr(b.client.drive().device(), id)?;
    ensure(local.port() != 0, || format!("listens on {local}"))?;
    fails("listen again", b.client.drive().listen(id, 0), Errno::EINVAL)
}

pub(super) fn behaviour_40_an_address_that_is_used_twice<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let there = b.address;
    let pair = [b.idle()?, b.idle()?];
    for id in pair {
        b.client.drive().set_option(id, CmOption::ReuseAddr(true))?;
        b.client.drive().bind(id, there)?;
    }
    for id in pair {
        fails("listen", b.client.drive().listen(id, 1), Errno::EADDRINUSE)?;
        same("and the id", b.client.drive().core().state(id), Some(State::Bound))?;
    }
    Ok(())
}

pub(super) fn behaviour_41_no_route_and_out_of_order<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let (far, there) = (SocketAddr::new(b.net().no_route, 1), b.address);
    let nobody = SocketAddr::new(b.net().nobody, 1);
    bound_by(b, Some(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0)), nobody, Errno::EINVAL)?;
    let id = bound_by(b, None, far, Errno::ENETUNREACH)?;
    let drive = b.client.drive();
    drive.resolve_addr(id, None, there, Time::NEVER)?;
    b.expect(Side::Client, id, CmEvent::AddrResolved, 0, pdl::NONE)?;
    let drive = b.client.drive();
    fails("resolve again", drive.resolve_addr(id, None, there, Time::NEVER), Errno::EINVAL)?;
    let no_time = Call::ResolveRoute { id, timeout_ms: 0 };
    same("a route without time, on the bare device", b.client.bare(&no_time, &[]), Err(Errno::EINVAL))?;
    let drive = b.client.drive();
    drive.resolve_route(id, Time::NEVER)?;
    b.expect(Side::Client, id, CmEvent::RouteResolved, 0, pdl::NONE)?;
    let drive = b.client.drive();
    fails("route again", drive.resolve_route(id, Time::NEVER), Errno::EINVAL)
}

/// An id that a failed lookup has bound, which the core cannot know: the kernel refuses a bind.
pub(super) fn bound_by<L: Env>(
    b: &mut Fixture<'_, L>,
    src: Option<SocketAddr>,
    dst: SocketAddr,
    errno: Errno,
) -> Result<IdKey, Failure> {
    let (here, id) = (SocketAddr::new(b.net().client, 0), b.idle()?);
    let drive = b.client.drive();
    fails("a lookup", drive.resolve_addr(id, src, dst, Time::NEVER), errno)?;
    same("and the id", drive.core().state(id), Some(State::Idle))?;
    fails("a bind", drive.bind(id, here), Errno::EINVAL)?;
    let seen = drive.resolve_addr(id, Some(here), dst, Time::NEVER);
    let is_refused = matches!(seen, Err(Error::Refused(Refused::Request { reason: RefuseReason::IsBound, .. })));
    ensure(is_refused, || format!("the source would be ignored: {seen:?}"))?;
    Ok(id)
}

pub(super) fn behaviour_42_nobody_answers<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let (nobody, there) = (SocketAddr::new(b.net().nobody, 1), b.address);
    let id = b.idle()?;
    let drive = b.client.drive();
    let deadline = drive.within(Duration::from_secs(2));
    drive.resolve_addr(id, None, nobody, deadline)?;
    fails("meanwhile", drive.resolve_addr(id, None, nobody, Time::NEVER), Errno::EINVAL)?;
    b.expect(Side::Client, id, CmEvent::AddrError, -Errno::ETIMEDOUT.0, pdl::NONE)?;
    same("which allows another try", b.client.drive().core().state(id), Some(State::Bound))?;
    b.client.drive().resolve_addr(id, None, there, Time::NEVER)?;
    b.expect(Side::Client, id, CmEvent::AddrResolved, 0, pdl::NONE).map(drop)
}

pub(super) fn behaviour_44_the_loopback_address_has_no_route<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let loopback = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 1);
    let id = b.idle()?;
    b.client.drive().resolve_addr(id, None, loopback, Time::NEVER)?;
    b.expect(Side::Client, id, CmEvent::AddrResolved, 0, pdl::NONE)?;
    fails("resolve_route", b.client.drive().resolve_route(id, Time::NEVER), Errno::ENODEV)
}

pub(super) fn behaviour_45_destroyed_while_resolving<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let nobody = SocketAddr::new(b.net().nobody, 1);
    let id = b.idle()?;
    b.client.drive().resolve_addr(id, None, nobody, Time::NEVER)?;
    b.destroy(Side::Client, id)?;
    b.quiet(Side::Client)
}

pub(super) fn stale_keys_and_long_private_data<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let id = b.resolved()?;
    let param = b.param();
    let error = b.client.drive().connect(id, param, &[0; 57], Time::NEVER).err().map(|error| error.to_string());
    let text =
        format!("refused: connect on {id} while route resolved: 57 bytes of private data, more than the maximum of 56");
    same("too long", error, Some(text))?;
    b.destroy(Side::Client, id)?;
    let drive = b.client.drive();
    let stale = drive.connect(id, param, &[], Time::NEVER);
    same("a stale key", stale, Err(Error::Refused(Refused::NoSuchId { id, request: RequestKind::Connect })))?;
    fails("and again", drive.destroy(id, Time::NEVER), Errno::ENOENT)?;
    // The slot is in use by a new id; the old key does not refer to it.
    let tenant = b.idle()?;
    fails("the old key", b.client.drive().listen(id, 1), Errno::ENOENT)?;
    same("the new tenant", b.client.drive().core().state(tenant), Some(State::Idle))
}

/// The core's own deadline: the request is not answered, and the kernel would wait for minutes.
pub(super) fn deadlines_end_requests<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    b.listen()?;
    let client = b.resolved()?;
    let param = b.param();
    let drive = b.client.drive();
    let deadline = drive.within(Duration::from_millis(300));
    drive.connect(client, param, &[], deadline)?;
    let server = b.expect_any(Side::Server, CmEvent::ConnectRequest)?.id;
    let channel = b.client.channel;
    let event = b.next(Side::Client, channel, &"the deadline")?;
    same("client", (event.id, event.kind), (client, EventKind::DeadlinePassed(RequestKind::Connect)))?;
    same("client", b.client.drive().core().state(client), Some(State::Failed))?;
    // The server's answer is late: it has no effect and is counted.
    let late = b.client.drive().core().summary().counters.late;
    b.accept(server, &[])?;
    b.quiet(Side::Client)?;
    same("late events", b.client.drive().core().summary().counters.late, late + 1)?;
    b.destroy(Side::Client, client)?;
    b.expect(Side::Server, server, CmEvent::Rejected, 28, pdl::REJECTED).map(drop)
}
