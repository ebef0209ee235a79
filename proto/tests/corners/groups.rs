//! Memberships in multicast groups.

use cmid_proto::{
    Acks, Admission, ChannelKey, CmEvent, Errno, GroupKey, IdKey, PortSpace, RefuseReason, Request, Time,
};

use crate::fixture::{BIND, CoreFixture, cm, of, to};

const JOINED: CmEvent = CmEvent::MulticastJoin;
const LOST: CmEvent = CmEvent::MulticastError;

/// An id with a join under way.
fn joining() -> (CoreFixture, ChannelKey, IdKey, GroupKey) {
    let (mut fixture, here) = CoreFixture::on(Acks::Explicit);
    let (id, group) = fixture.joining(here);
    (fixture, here, id, group)
}

#[test]
fn a_group_that_could_not_be_joined_cannot_be_lost() {
    let (mut fixture, here, id, group) = joining();
    assert_eq!(fixture.report_on(here, of(group, id, JOINED, -Errno::EINVAL.0)), Admission::Known);
    assert_eq!(fixture.sees(here, id, cm(JOINED)).status, -Errno::EINVAL.0);
    assert_eq!(fixture.report_on(here, of(group, id, LOST, -1)), Admission::Late);
}

#[test]
fn events_that_moved_go_out_of_the_middle_of_a_channel() {
    let (mut fixture, here, id, group) = joining();
    let there = fixture.channel(Acks::OnDelivery);
    let other = fixture.id(Some(there));
    fixture.report_status(other, CmEvent::AddrChange, 1);
    fixture.report(id, CmEvent::AddrChange);
    fixture.report_on(here, of(group, id, JOINED, 0));
    fixture.does(id, to(there));
    fixture.report_status(other, CmEvent::AddrChange, 2);
    // Discards the second of the migrated events, then the first.
    fixture.does(id, Request::Leave { group });
    fixture.does(id, Request::Destroy);
    assert_eq!(fixture.core.summary().counters.discarded, 2);
    for status in [1, 2] {
        assert_eq!(fixture.sees(there, other, cm(CmEvent::AddrChange)).status, status);
    }
    fixture.no_event(there);
}

#[test]
fn only_a_multicast_address_or_the_wildcard_is_joined() {
    let groups = ["239.1.1.1:0", "224.0.0.1:0", "[ff0e::1]:0", "[ff02::1%3]:0", "[::ffff:239.1.1.1]:0"];
    let wildcards = ["0.0.0.0:0", "[::]:0"];
    let others = [
        "10.0.0.2:0",
        "127.0.0.1:0",
        "255.255.255.255:0",
        "240.0.0.1:0",
        "0.0.0.1:0",
        "[fd00::1]:0",
        "[::1]:0",
        "[::ffff:10.0.0.2]:0",
    ];
    let joined = groups.into_iter().chain(wildcards).map(|addr| (addr, true));
    for (addr, is_group) in joined.chain(others.map(|addr| (addr, false))) {
        for space in [PortSpace::Udp, PortSpace::Ipoib] {
            let (mut fixture, here) = CoreFixture::on(Acks::OnDelivery);
            let id = fixture.id_for(space, Some(here));
            fixture.does(id, BIND);
            let addr = addr.parse().unwrap();
            for send_only in [false, true] {
                if is_group {
                    let group = fixture.joins(id, addr, send_only, Time::NEVER).unwrap();
                    fixture.all_well();
                    fixture.does(id, Request::Leave { group });
                } else {
                    let refused = fixture.refuses(id, Request::Join { addr, send_only }, RefuseReason::NoGroup(addr));
                    assert!(refused.to_string().contains("is not the address of a multicast group"), "{refused}");
                }
            }
        }
    }
}
