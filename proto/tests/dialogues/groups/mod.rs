//! Memberships in multicast groups.

mod joining;
mod leaving;
mod synchronous;
mod with_the_id;

use std::net::SocketAddr;
use std::time::Duration;

use cmid_proto::{Admission, ChannelKey, CmEvent, GroupKey, IdKey, PortSpace, RawEvent, Request, Time};

use crate::fixture::{BIND, Stage, cm, raw};

const SOON: Duration = Duration::from_millis(2);
const JOINED: CmEvent = CmEvent::MulticastJoin;
const LOST: CmEvent = CmEvent::MulticastError;

fn at(last: u8) -> SocketAddr {
    SocketAddr::from(([239, 1, 1, last], 7471))
}

fn join(last: u8) -> Request<'static> {
    Request::Join { addr: at(last), send_only: false }
}

fn leave(group: GroupKey) -> Request<'static> {
    Request::Leave { group }
}

/// An id for datagrams that has a device.
fn bound(stage: &mut Stage, on: Option<ChannelKey>) -> IdKey {
    let id = stage.id_for(PortSpace::Udp, on);
    stage.does(id, BIND);
    id
}

fn begins(stage: &mut Stage, id: IdKey, last: u8, deadline: Time) -> GroupKey {
    let group = stage.core.join(stage.now, id, at(last), false, deadline).unwrap();
    stage.all_well();
    group
}

fn says(stage: &mut Stage, id: IdKey, group: GroupKey, kind: CmEvent, status: i32) -> Admission {
    let line = stage.core.line(id).unwrap();
    stage.says_on(line, RawEvent { group: Some(group), ..raw(id, kind, status) })
}

/// A member, told so, with nothing owed.
fn member(stage: &mut Stage, on: ChannelKey, id: IdKey, last: u8) -> GroupKey {
    let group = begins(stage, id, last, Time::NEVER);
    assert_eq!(says(stage, id, group, JOINED, 0), Admission::Known);
    assert_eq!(stage.sees(on, id, cm(JOINED)).group, Some(group));
    group
}
