//! A channel that fails while an id is to migrate to it.

use std::time::Duration;

use cmid_proto::info::WaitsFor;
use cmid_proto::{Acks, CmEvent, Errno, EventKind, RequestKind};

use crate::fixture::{CoreFixture, RESOLVE, to};

#[test]
fn a_channel_that_fails_while_acks_are_out_is_no_place_to_go_and_what_waits_goes_on() {
    let (mut fixture, here) = CoreFixture::on(Acks::Explicit);
    let there = fixture.channel(Acks::OnDelivery);
    let id = fixture.id(Some(here));
    fixture.does(id, RESOLVE);
    let held = fixture.owes(here, id);
    fixture.submit(id, to(there)).unwrap();
    while fixture.core.handle_unreadable(there) {}
    fixture.core.check();
    assert!(fixture.core.waiting().any(|it| it == (id, WaitsFor::Acks(RequestKind::Migrate))));
    fixture.acks(held);
    fixture.no_call();
    assert_eq!(fixture.sees(here, id, EventKind::Migrated).result(), Err(Errno::EBADF));
    assert_eq!((fixture.core.channel(id), fixture.core.poll_timeout()), (Some(here), None));
    fixture.passes(Duration::ZERO);
    fixture.report_and_take(id, CmEvent::AddrResolved);
}
