//! Behaviour 75: multicast groups.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use cmid_harness::failure::{fails, same};
use cmid_harness::fixture::{Side, pdl};
use cmid_harness::{Check, Env, Failure, Fixture};
use cmid_proto::{
    Acks, CmEvent, Errno, Error, EventKind, GroupKey, IdKey, PortSpace, Progress, RefuseReason, Refused, Time,
};

/// The errno of the kernel for IPv6 groups on RoCE: a kernel-internal number (`ENOTSUPP`) that leaks.
const KERNELS_OWN: Errno = Errno::ENOTSUPP;
/// The QP number of every multicast group, and the Q_Key of the connection manager's datagrams.
const EVERYBODY: (u32, u32) = (0xff_ffff, 0x0123_4567);

fn group(last: u8) -> SocketAddr {
    SocketAddr::new(Ipv4Addr::new(239, 99, 0, last).into(), 0)
}

/// A datagram id of the client with a device and a QP.
fn member<L: Env>(b: &mut Fixture<'_, L>) -> Check<IdKey> {
    let id = b.addr_resolved_in(PortSpace::Udp, b.address)?;
    b.attach_qp(Side::Client, id)?;
    Ok(id)
}

fn join<L: Env>(b: &mut Fixture<'_, L>, id: IdKey, at: SocketAddr) -> Check<GroupKey> {
    Ok(b.client.drive().join(id, at, false, Time::NEVER)?)
}

pub(super) fn behaviour_75_join_and_leave<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let id = member(b)?;
    for send_only in [false, true] {
        let key = b.client.drive().join(id, group(1), send_only, Time::NEVER)?;
        let event = b.expect(Side::Client, id, CmEvent::MulticastJoin, 0, pdl::NONE)?;
        same("the membership", event.group, Some(key))?;
        let to = event.datagram.ok_or_else(|| Failure("MULTICAST_JOIN does not say where to send".into()))?;
        same("the group", (to.qp_num, to.qkey), EVERYBODY)?;
        same("a route", to.path.grh.is_some(), true)?;
        same("leave", b.client.drive().leave(id, key)?, Progress::Done)?;
        fails("leave again", b.client.drive().leave(id, key), Errno::EADDRNOTAVAIL)?;
    }
    b.quiet(Side::Client)
}

/// The kernel accepts the same address twice, but librdmacm could not distinguish the two memberships.
pub(super) fn behaviour_75_the_same_group_twice_is_refused<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let id = member(b)?;
    join(b, id, group(2))?;
    match b.client.drive().join(id, group(2), false, Time::NEVER) {
        Err(Error::Refused(Refused::Request { reason: RefuseReason::AlreadyMember(_), .. })) => {}
        other => return Err(Failure(format!("join again: {other:?}, expected a refusal"))),
    }
    b.expect(Side::Client, id, CmEvent::MulticastJoin, 0, pdl::NONE)?;
    join(b, id, group(3))?;
    b.expect(Side::Client, id, CmEvent::MulticastJoin, 0, pdl::NONE)?;
    b.quiet(Side::Client)?;
    b.destroy(Side::Client, id)
}

pub(super) fn behaviour_75_leaving_takes_the_unread_event_along<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let id = member(b)?;
    b.frozen = Some(Side::Client);
    let key = join(b, id, group(4))?;
    std::thread::sleep(b.env.quiet());
    same("leave", b.client.drive().leave(id, key)?, Progress::Done)?;
    b.frozen = None;
    b.quiet(Side::Client)
}

pub(super) fn behaviour_75_leaving_waits_for_acks_and_nobody_waits<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let id = member(b)?;
    let key = join(b, id, group(5))?;
    let channel = b.client.channel;
    let event = b.next(Side::Client, channel, &CmEvent::MulticastJoin)?;
    let ack_token = event.ack_token.ok_or_else(|| Failure("an event without an ack token".into()))?;
    same("leave", b.client.drive().leave(id, key)?, Progress::WhenAcked)?;
    b.quiet(Side::Client)?;
    b.client.drive().ack(ack_token)?;
    let event = b.next(Side::Client, channel, &EventKind::Left)?;
    same("client", (event.id, event.kind, event.status), (id, EventKind::Left, 0))
}

pub(super) fn behaviour_75_addresses_and_states_that_cannot_be_joined<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let id = member(b)?;
    let no_group = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
    fails("0.0.0.0", join_at(b, id, no_group), Errno::EINVAL)?;
    let ipv6 = SocketAddr::new(Ipv6Addr::new(0xff0e, 0, 0, 0, 0, 0, 0, 0x99).into(), 0);
    fails("an IPv6 group", join_at(b, id, ipv6), KERNELS_OWN)?;
    b.client.drive().resolve_route(id, Time::NEVER)?;
    b.expect(Side::Client, id, CmEvent::RouteResolved, 0, pdl::NONE)?;
    fails("with a route", join_at(b, id, group(6)), Errno::EINVAL)?;
    let connected = b.addr_resolved()?;
    fails("a connected service", join_at(b, connected, group(6)), Errno::EINVAL)
}

fn join_at<L: Env>(b: &mut Fixture<'_, L>, id: IdKey, at: SocketAddr) -> Result<GroupKey, Error> {
    b.client.drive().join(id, at, false, Time::NEVER)
}

/// Memberships migrate with their id.
pub(super) fn behaviour_75_a_membership_migrates<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let id = member(b)?;
    b.frozen = Some(Side::Client);
    let key = join(b, id, group(7))?;
    std::thread::sleep(b.env.quiet());
    let new = b.client.drive().open_channel(Acks::OnDelivery)?;
    b.client.drive().migrate(id, Some(new), Time::NEVER)?;
    b.frozen = None;
    let event = b.expect_on(Side::Client, new, id, CmEvent::MulticastJoin, 0, pdl::NONE)?;
    same("the membership", event.group, Some(key))?;
    same("leave", b.client.drive().leave(id, key)?, Progress::Done)
}
