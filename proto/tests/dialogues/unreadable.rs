//! A channel fails while the device makes a call.

use std::time::Duration;

use cmid_proto::{Acks, ChannelKey, CmOption, Errno, EventKind, Request, Time, Verb};

use crate::fixture::{OK, RESOLVE, Stage, TO_SYNC, to};

fn fails(stage: &mut Stage, channel: ChannelKey) {
    while stage.core.handle_unreadable(channel) {}
    stage.core.check();
}

#[test]
fn what_waits_ends_although_a_call_that_fails_leaves_it_as_it_was() {
    let (mut stage, channel) = Stage::on(Acks::OnDelivery);
    let id = stage.id(Some(channel));
    stage.does(id, RESOLVE);
    stage.asks(id, Request::SetOption { option: CmOption::Tos(1) }).unwrap();
    let (token, _) = stage.takes_call("set_option");
    fails(&mut stage, channel);
    stage.answers(token, Err(Errno::EINVAL));
    assert_eq!(stage.core.poll_timeout(), Some((Time::ZERO, id)));
    stage.passes(Duration::ZERO);
    stage.sees(channel, id, EventKind::DeadlinePassed(Verb::ResolveAddr));
}

#[test]
fn what_waits_ends_when_its_id_arrives_on_a_channel_that_has_failed() {
    for sync in [false, true] {
        let (mut stage, from) = Stage::on(Acks::OnDelivery);
        let target = stage.channel(Acks::OnDelivery);
        let id = stage.id(Some(from));
        stage.does(id, RESOLVE);
        stage.asks(id, if sync { TO_SYNC } else { to(target) }).unwrap();
        if sync {
            stage.expect_call("create_event_channel", OK);
        }
        let (token, call) = stage.takes_call("migrate_id");
        let cmid_proto::Call::Migrate { to, .. } = call else { panic!("{call:?}") };
        fails(&mut stage, to);
        stage.answers(token, OK);
        assert_eq!(stage.core.poll_timeout(), Some((Time::ZERO, id)));
        stage.passes(Duration::ZERO);
        stage.sees(to, id, EventKind::DeadlinePassed(Verb::ResolveAddr));
    }
}
