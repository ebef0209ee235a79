//! Event channels: opening, a failed opening, closing.

use cmid_proto::{Acks, Errno, EventKind, PortSpace, Refused, Request, State, Target};

use crate::fixture::{CoreFixture, OK, to};

#[test]
fn a_channel_with_ids_or_events_on_it_stays() {
    let (mut fixture, channel, id) = CoreFixture::with_id(Acks::Explicit, State::Bound);
    let in_use = Err(Refused::ChannelInUse { channel });
    assert_eq!(fixture.closes(channel), in_use);
    let event = fixture.owes(channel, id);
    fixture.does(id, Request::Destroy);
    fixture.acks(event);
    fixture.all_well();
    assert_eq!(fixture.closes(channel), in_use, "DESTROYED waits to be taken");
    fixture.sees(channel, id, EventKind::Destroyed);
    fixture.closes(channel).unwrap();
    fixture.all_well();
    let gone = Err(Refused::NoSuchChannel { channel });
    assert_eq!(fixture.closes(channel), gone);
    assert_eq!(fixture.creates(PortSpace::Tcp, Some(channel)).map(drop), gone);
    assert_eq!(fixture.core.wants_event(channel), None);
}

#[test]
fn a_channel_is_not_there_before_it_is_open_and_one_that_fails_uses_up_no_key() {
    let mut fixture = CoreFixture::new();
    let before = fixture.core.clone();
    let channel = fixture.opens(Acks::Explicit).unwrap();
    let gone = Refused::NoSuchChannel { channel };
    assert!(fixture.core.channel_info(channel).is_none());
    let ended = fixture.expect_call("create_event_channel", Err(Errno::EMFILE)).unwrap();
    let failure = ended.result.unwrap_err();
    assert_eq!((failure.call, failure.errno), ("create_event_channel", Errno::EMFILE));
    assert_eq!(failure.target, Target::Channel(channel));
    assert_eq!(fixture.closes(channel), Err(gone));
    assert_eq!(fixture.creates(PortSpace::Tcp, Some(channel)), Err(gone));
    assert_eq!(fixture.core, before, "nothing is left");
    assert_eq!(fixture.opens(Acks::Explicit), Ok(channel));
    fixture.expect_call("create_event_channel", OK);
}

#[test]
fn a_channel_that_cannot_be_closed_is_reported_and_forgotten() {
    let (mut fixture, channel) = CoreFixture::on(Acks::Explicit);
    fixture.closes(channel).unwrap();
    let failure = fixture.expect_call("destroy_event_channel", Err(Errno::EIO)).unwrap().result.unwrap_err();
    assert_eq!((failure.call, failure.errno), ("destroy_event_channel", Errno::EIO));
    assert_eq!(failure.target, Target::Channel(channel));
    assert_eq!(fixture.core.channels().count(), 0);
}

#[test]
fn a_private_channel_accepts_no_other_id() {
    let (mut fixture, _, id) = CoreFixture::with_id(Acks::Explicit, State::Bound);
    let alone = fixture.id(None);
    let private = fixture.core.channel(alone).unwrap();
    let in_use = Refused::ChannelInUse { channel: private };
    assert_eq!(fixture.creates(PortSpace::Tcp, Some(private)), Err(in_use));
    assert_eq!(fixture.closes(private), Err(in_use));
    assert!(fixture.submit(id, to(private)).is_err());
}

#[test]
fn a_channel_is_read_once_each_time_it_is_readable_and_not_after_it_is_gone() {
    let (mut fixture, one, two) = CoreFixture::on_two(Acks::Explicit);
    for channel in [one, two, one] {
        fixture.core.handle_readable(channel);
    }
    fixture.closes(one).unwrap();
    fixture.all_well();
    fixture.core.handle_readable(one);
    assert_eq!((fixture.core.poll_readable(), fixture.core.poll_readable()), (Some(two), None));
}

#[test]
fn an_id_that_cannot_be_created_leaves_nothing_and_uses_up_no_key() {
    let (mut fixture, channel) = CoreFixture::on(Acks::Explicit);
    let before = fixture.core.clone();
    let id = fixture.creates(PortSpace::Tcp, Some(channel)).unwrap();
    assert_eq!(fixture.core.state(id), None, "until it is created");
    let failure = fixture.expect_call("create_id", Err(Errno::ENOMEM)).unwrap().result.unwrap_err();
    assert_eq!((failure.call, failure.target, failure.errno), ("create_id", Target::Id(id), Errno::ENOMEM));
    assert_eq!(fixture.core, before);
    assert_eq!(fixture.creates(PortSpace::Tcp, Some(channel)), Ok(id));
    fixture.expect_call("create_id", OK);
}
