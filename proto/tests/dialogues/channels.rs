//! Event channels that open, fail to, and close.

use cmid_proto::{Acks, CmEvent, Errno, PortSpace, Refused, Request, State};

use crate::fixture::{OK, Stage, cm, to};

#[test]
fn a_channel_with_ids_or_events_on_it_stays() {
    let (mut stage, channel) = Stage::on(Acks::Explicit);
    let id = stage.in_state(channel, State::Bound);
    let in_use = Err(Refused::ChannelInUse { channel });
    assert_eq!(stage.core.close_channel(channel), in_use);
    stage.says(id, CmEvent::AddrChange);
    let event = stage.expect_event(channel, id, cm(CmEvent::AddrChange));
    stage.does(id, Request::Destroy);
    stage.acks(event);
    stage.all_well();
    assert_eq!(stage.core.close_channel(channel), in_use, "DESTROYED waits to be taken");
    stage.sees(channel, id, cmid_proto::EventKind::Destroyed);
    stage.core.close_channel(channel).unwrap();
    let gone = Err(Refused::NoSuchChannel { channel });
    assert_eq!(stage.core.close_channel(channel), gone);
    assert_eq!(stage.core.create_id(Some(channel), PortSpace::Tcp).map(drop), gone);
    assert_eq!(stage.core.wants_event(channel), None);
    stage.ends(&[], &[]);
}

#[test]
fn a_channel_cannot_be_closed_before_it_is_open() {
    let mut stage = Stage::new();
    let channel = stage.core.open_channel(Acks::Explicit).unwrap();
    assert_eq!(stage.core.close_channel(channel), Err(Refused::ChannelInUse { channel }));
    stage.expect_call("create_event_channel", OK);
    stage.ends(&[], &[channel]);
}

#[test]
fn an_id_may_be_created_before_its_channel_is_open_and_goes_with_it_if_that_fails() {
    let mut stage = Stage::new();
    let channel = stage.core.open_channel(Acks::Explicit).unwrap();
    let id = stage.core.create_id(Some(channel), PortSpace::Tcp).unwrap();
    let ended = stage.expect_call("create_event_channel", Err(Errno::EMFILE)).unwrap();
    assert_eq!(ended.result.unwrap_err().errno, Errno::EMFILE);
    assert!(stage.core.has_channel(channel), "until its ids have gone");
    assert_eq!(stage.core.open_channel(Acks::Explicit).map(|other| other != channel), Ok(true));
    let ended = stage.expect_call("create_id", Err(Errno::ENOENT)).unwrap();
    assert_eq!(ended.result.unwrap_err().errno, Errno::ENOENT);
    assert_eq!(stage.core.state(id), None);
    assert!(!stage.core.has_channel(channel));
    stage.all_well();
}

#[test]
fn a_channel_that_cannot_be_closed_is_told_and_forgotten() {
    let (mut stage, channel) = Stage::on(Acks::Explicit);
    stage.core.close_channel(channel).unwrap();
    let failure = stage.expect_call("destroy_event_channel", Err(Errno::EIO)).unwrap().result.unwrap_err();
    assert_eq!((failure.call, failure.errno), ("destroy_event_channel", Errno::EIO));
    assert_eq!(stage.core.channels(), 0);
}

#[test]
fn a_private_channel_is_nobody_elses() {
    let (mut stage, channel) = Stage::on(Acks::Explicit);
    let id = stage.in_state(channel, State::Bound);
    let alone = stage.id(None);
    let private = stage.core.home(alone).unwrap();
    let in_use = Refused::ChannelInUse { channel: private };
    assert_eq!(stage.core.create_id(Some(private), PortSpace::Tcp), Err(in_use));
    assert_eq!(stage.core.close_channel(private), Err(in_use));
    assert!(stage.asks(id, to(private)).is_err());
    stage.ends(&[id, alone], &[channel]);
}

#[test]
fn a_channel_is_read_once_each_time_it_is_readable_and_not_after_it_is_gone() {
    let (mut stage, one) = Stage::on(Acks::Explicit);
    let two = stage.channel(Acks::Explicit);
    for channel in [one, two, one] {
        stage.core.handle_readable(channel);
    }
    stage.core.close_channel(one).unwrap();
    stage.all_well();
    stage.core.handle_readable(one);
    assert_eq!((stage.core.poll_readable(), stage.core.poll_readable()), (Some(two), None));
    stage.ends(&[], &[two]);
}

#[test]
fn an_id_that_is_destroyed_before_it_is_created_ends_once_whatever_the_device_says() {
    for outcome in [OK, Err(Errno::ENOMEM)] {
        let (mut stage, channel) = Stage::on(Acks::Explicit);
        let id = stage.core.create_id(Some(channel), PortSpace::Tcp).unwrap();
        stage.asks(id, Request::Destroy).unwrap();
        assert_eq!(stage.expect_call("create_id", outcome), None);
        stage.all_well();
        stage.sees(channel, id, cmid_proto::EventKind::Destroyed);
        stage.no_event(channel);
        stage.ends(&[], &[channel]);

        let mut stage = Stage::new();
        let id = stage.core.create_id(None, PortSpace::Tcp).unwrap();
        stage.asks(id, Request::Destroy).unwrap();
        let mut ended = stage.expect_call("create_event_channel", outcome);
        while let Some((token, _)) = stage.core.poll_call() {
            assert_eq!(ended, None);
            ended = stage.answers(token, OK);
            if stage.core.state(id).is_none() {
                break;
            }
        }
        assert!(ended.unwrap().result.is_ok());
        stage.ends(&[], &[]);
    }
}
