//! Event channels: opening, a failed opening, closing.

use cmid_proto::{Acks, CmEvent, Errno, PortSpace, Refused, Request, State, Target};

use crate::fixture::{CoreFixture, OK, cm, to};

#[test]
fn a_channel_with_ids_or_events_on_it_stays() {
    let (mut fixture, channel) = CoreFixture::on(Acks::Explicit);
    let id = fixture.in_state(channel, State::Bound);
    let in_use = Err(Refused::ChannelInUse { channel });
    assert_eq!(fixture.core.close_channel(channel), in_use);
    fixture.report(id, CmEvent::AddrChange);
    let event = fixture.expect_event(channel, id, cm(CmEvent::AddrChange));
    fixture.does(id, Request::Destroy);
    fixture.acks(event);
    fixture.all_well();
    assert_eq!(fixture.core.close_channel(channel), in_use, "DESTROYED waits to be taken");
    fixture.sees(channel, id, cmid_proto::EventKind::Destroyed);
    fixture.core.close_channel(channel).unwrap();
    let gone = Err(Refused::NoSuchChannel { channel });
    assert_eq!(fixture.core.close_channel(channel), gone);
    assert_eq!(fixture.core.create_id(Some(channel), PortSpace::Tcp).map(drop), gone);
    assert_eq!(fixture.core.wants_event(channel), None);
    fixture.ends(&[], &[]);
}

#[test]
fn a_channel_cannot_be_closed_before_it_is_open() {
    let mut fixture = CoreFixture::new();
    let channel = fixture.core.open_channel(Acks::Explicit).unwrap();
    assert_eq!(fixture.core.close_channel(channel), Err(Refused::ChannelInUse { channel }));
    fixture.expect_call("create_event_channel", OK);
    fixture.ends(&[], &[channel]);
}

#[test]
fn an_id_may_be_created_before_its_channel_is_open_and_goes_with_it_if_that_fails() {
    let mut fixture = CoreFixture::new();
    let channel = fixture.core.open_channel(Acks::Explicit).unwrap();
    let id = fixture.core.create_id(Some(channel), PortSpace::Tcp).unwrap();
    let ended = fixture.expect_call("create_event_channel", Err(Errno::EMFILE)).unwrap();
    assert_eq!(ended.result.unwrap_err().errno, Errno::EMFILE);
    assert!(fixture.core.has_channel(channel), "until its ids have gone");
    assert_eq!(fixture.core.open_channel(Acks::Explicit).map(|other| other != channel), Ok(true));
    let ended = fixture.expect_call("create_id", Err(Errno::ENOENT)).unwrap();
    assert_eq!(ended.result.unwrap_err().errno, Errno::ENOENT);
    assert_eq!(fixture.core.state(id), None);
    assert!(!fixture.core.has_channel(channel));
    fixture.all_well();
}

#[test]
fn a_channel_that_cannot_be_closed_is_reported_and_forgotten() {
    let (mut fixture, channel) = CoreFixture::on(Acks::Explicit);
    fixture.core.close_channel(channel).unwrap();
    let failure = fixture.expect_call("destroy_event_channel", Err(Errno::EIO)).unwrap().result.unwrap_err();
    assert_eq!((failure.call, failure.errno), ("destroy_event_channel", Errno::EIO));
    assert_eq!(failure.target, Target::Channel(channel));
    assert_eq!(fixture.core.channels(), 0);
}

#[test]
fn a_private_channel_accepts_no_other_id() {
    let (mut fixture, channel) = CoreFixture::on(Acks::Explicit);
    let id = fixture.in_state(channel, State::Bound);
    let alone = fixture.id(None);
    let private = fixture.core.channel(alone).unwrap();
    let in_use = Refused::ChannelInUse { channel: private };
    assert_eq!(fixture.core.create_id(Some(private), PortSpace::Tcp), Err(in_use));
    assert_eq!(fixture.core.close_channel(private), Err(in_use));
    assert!(fixture.submit(id, to(private)).is_err());
    fixture.ends(&[id, alone], &[channel]);
}

#[test]
fn a_channel_is_read_once_each_time_it_is_readable_and_not_after_it_is_gone() {
    let (mut fixture, one) = CoreFixture::on(Acks::Explicit);
    let two = fixture.channel(Acks::Explicit);
    for channel in [one, two, one] {
        fixture.core.handle_readable(channel);
    }
    fixture.core.close_channel(one).unwrap();
    fixture.all_well();
    fixture.core.handle_readable(one);
    assert_eq!((fixture.core.poll_readable(), fixture.core.poll_readable()), (Some(two), None));
    fixture.ends(&[], &[two]);
}

#[test]
fn an_id_that_is_destroyed_before_it_is_created_ends_once_whatever_the_outcomes() {
    for outcome in [OK, Err(Errno::ENOMEM)] {
        let (mut fixture, channel) = CoreFixture::on(Acks::Explicit);
        let id = fixture.core.create_id(Some(channel), PortSpace::Tcp).unwrap();
        fixture.submit(id, Request::Destroy).unwrap();
        assert_eq!(fixture.expect_call("create_id", outcome), None);
        fixture.all_well();
        fixture.sees(channel, id, cmid_proto::EventKind::Destroyed);
        fixture.no_event(channel);
        fixture.ends(&[], &[channel]);

        let mut fixture = CoreFixture::new();
        let id = fixture.core.create_id(None, PortSpace::Tcp).unwrap();
        fixture.submit(id, Request::Destroy).unwrap();
        let mut ended = fixture.expect_call("create_event_channel", outcome);
        while let Some((token, _)) = fixture.core.poll_call() {
            assert_eq!(ended, None);
            ended = fixture.answers(token, OK);
            if fixture.core.state(id).is_none() {
                break;
            }
        }
        assert!(ended.unwrap().result.is_ok());
        fixture.ends(&[], &[]);
    }
}
