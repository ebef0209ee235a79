//! A channel that fails while the device makes a call.

use std::time::Duration;

use cmid_proto::{Acks, ChannelKey, CmOption, Errno, EventKind, Request, RequestKind, Time};

use crate::fixture::{CoreFixture, OK, RESOLVE, TO_SYNC, to};

fn fails(fixture: &mut CoreFixture, channel: ChannelKey) {
    while fixture.core.handle_unreadable(channel) {}
    fixture.core.check();
}

#[test]
fn what_waits_ends_although_a_call_that_fails_leaves_it_as_it_was() {
    let (mut fixture, channel) = CoreFixture::on(Acks::OnDelivery);
    let id = fixture.id(Some(channel));
    fixture.does(id, RESOLVE);
    fixture.submit(id, Request::SetOption { option: CmOption::Tos(1) }).unwrap();
    let (token, _) = fixture.takes_call("set_option");
    fails(&mut fixture, channel);
    fixture.answers(token, Err(Errno::EINVAL));
    assert_eq!(fixture.core.poll_timeout(), Some((Time::ZERO, id)));
    fixture.passes(Duration::ZERO);
    fixture.sees(channel, id, EventKind::DeadlinePassed(RequestKind::ResolveAddr));
}

#[test]
fn what_waits_ends_when_its_id_arrives_on_a_channel_that_has_failed() {
    for sync in [false, true] {
        let (mut fixture, from) = CoreFixture::on(Acks::OnDelivery);
        let target = fixture.channel(Acks::OnDelivery);
        let id = fixture.id(Some(from));
        fixture.does(id, RESOLVE);
        fixture.submit(id, if sync { TO_SYNC } else { to(target) }).unwrap();
        if sync {
            fixture.expect_call("create_event_channel", OK);
        }
        let (token, call) = fixture.takes_call("migrate_id");
        let cmid_proto::Call::Migrate { to, .. } = call else { panic!("{call:?}") };
        fails(&mut fixture, to);
        fixture.answers(token, OK);
        assert_eq!(fixture.core.poll_timeout(), Some((Time::ZERO, id)));
        fixture.passes(Duration::ZERO);
        fixture.sees(to, id, EventKind::DeadlinePassed(RequestKind::ResolveAddr));
    }
}
