//! Memberships in multicast groups.

mod joining;
mod leaving;
mod synchronous;
mod with_the_id;

use cmid_proto::{Acks, Admission, ChannelKey, CmEvent, GroupKey, IdKey, PortSpace, Request, Time};

use crate::fixture::{BIND, CoreFixture, SOON, cm, group_addr as at, of};

const JOINED: CmEvent = CmEvent::MulticastJoin;
const LOST: CmEvent = CmEvent::MulticastError;

fn join(last: u8) -> Request<'static> {
    Request::Join { addr: at(last), send_only: false }
}

fn leave(group: GroupKey) -> Request<'static> {
    Request::Leave { group }
}

/// An id for datagrams that is bound to a device.
fn bound(fixture: &mut CoreFixture, on: Option<ChannelKey>) -> IdKey {
    let id = fixture.id_for(PortSpace::Udp, on);
    fixture.does(id, BIND);
    id
}

/// One on a channel, beside nothing else.
fn bound_on(acks: Acks) -> (CoreFixture, ChannelKey, IdKey) {
    let (mut fixture, channel) = CoreFixture::on(acks);
    let id = bound(&mut fixture, Some(channel));
    (fixture, channel, id)
}

fn begins(fixture: &mut CoreFixture, id: IdKey, last: u8, deadline: Time) -> GroupKey {
    let group = fixture.joins(id, at(last), false, deadline).unwrap();
    fixture.all_well();
    group
}

fn report(fixture: &mut CoreFixture, id: IdKey, group: GroupKey, kind: CmEvent, status: i32) -> Admission {
    let device_channel = fixture.core.device_channel(id).unwrap();
    fixture.report_on(device_channel, of(group, id, kind, status))
}

/// Joins a group. The join event is taken and acked.
fn member(fixture: &mut CoreFixture, on: ChannelKey, id: IdKey, last: u8) -> GroupKey {
    let group = begins(fixture, id, last, Time::NEVER);
    assert_eq!(report(fixture, id, group, JOINED, 0), Admission::Known);
    assert_eq!(fixture.sees(on, id, cm(JOINED)).group, Some(group));
    group
}
