//! The descriptors of all open channels are registered with the poller, and no others.

use cmid_proto::{Acks, Errno, Error, PortSpace, Time};

use crate::device::{calls, driven, fails, is_empty};

#[test]
fn a_channel_is_waited_for_from_its_opening_to_its_closing() {
    let mut drive = driven();
    let channel = drive.open_channel(Acks::OnDelivery).unwrap();
    assert!(drive.poller().channels.contains(&channel));
    drive.close_channel(channel).unwrap();
    assert_eq!(calls(&mut drive), ["create_event_channel", "destroy_event_channel"]);
    is_empty(&drive);
}

#[test]
fn a_channel_that_the_device_does_not_open_is_not_waited_for() {
    let mut drive = driven();
    fails(&mut drive, "create_event_channel", Errno::EMFILE);
    let error = drive.open_channel(Acks::OnDelivery).unwrap_err();
    assert_eq!(error.to_string(), "failed: create_event_channel on ch0: EMFILE");
    is_empty(&drive);
}

#[test]
fn a_channel_that_cannot_be_waited_for_is_not_opened() {
    let mut drive = driven();
    drive.poller().refuses.set(Some(Errno::ENOMEM));
    assert_eq!(drive.open_channel(Acks::OnDelivery).unwrap_err().errno(), Errno::ENOMEM);
    assert_eq!(calls(&mut drive), ["create_event_channel", "destroy_event_channel"]);
    is_empty(&drive);
    // The same for a channel without a descriptor.
    drive.device_mut().blind = true;
    assert_eq!(drive.open_channel(Acks::OnDelivery).unwrap_err().errno(), Errno::EBADF);
    assert_eq!(calls(&mut drive), ["create_event_channel", "destroy_event_channel"]);
    is_empty(&drive);
}

/// The errno is that of the poller.
#[test]
fn a_channel_that_can_be_neither_registered_nor_closed_is_not_opened() {
    let mut drive = driven();
    drive.poller().refuses.set(Some(Errno::ENOMEM));
    fails(&mut drive, "destroy_event_channel", Errno::EINTR);
    assert_eq!(drive.open_channel(Acks::OnDelivery).unwrap_err().errno(), Errno::ENOMEM);
    assert_eq!((drive.core().channels().count(), drive.poller().channels.len()), (0, 0));
}

#[test]
fn an_id_that_leaves_takes_its_channel_along() {
    let (mut from, mut to) = (driven(), driven());
    let id = from.create_id(None, PortSpace::Tcp).unwrap();
    let released_id = from.release(id).unwrap();
    assert_eq!(calls(&mut from), ["create_event_channel", "create_id", "release"]);
    is_empty(&from);
    let id = to.adopt(released_id).unwrap();
    let home = to.core().channel(id).unwrap();
    assert!(to.poller().channels.contains(&home));
    to.destroy(id, Time::NEVER).unwrap();
    assert_eq!(calls(&mut to), ["adopt", "destroy_id", "destroy_event_channel"]);
    is_empty(&to);
}

#[test]
fn an_id_whose_channel_cannot_be_waited_for_is_not_adopted_and_is_destroyed() {
    let (mut from, mut to) = (driven(), driven());
    let id = from.create_id(None, PortSpace::Tcp).unwrap();
    let released_id = from.release(id).unwrap();
    to.poller().refuses.set(Some(Errno::ENOMEM));
    let refused = to.adopt(released_id).unwrap_err();
    assert_eq!((refused.error.errno(), refused.given.is_none()), (Errno::ENOMEM, true));
    assert_eq!(calls(&mut to), ["adopt", "destroy_id", "destroy_event_channel"]);
    is_empty(&to);
}

#[test]
fn an_id_that_the_device_does_not_adopt_leaves_nothing() {
    let (mut from, mut to) = (driven(), driven());
    let id = from.create_id(None, PortSpace::Tcp).unwrap();
    let released_id = from.release(id).unwrap();
    fails(&mut to, "adopt", Errno::EMFILE);
    let refused = to.adopt(released_id).unwrap_err();
    assert!(
        matches!(refused.error, Error::Failed(failure) if (failure.call, failure.errno) == ("adopt", Errno::EMFILE))
    );
    assert_eq!(calls(&mut to), ["adopt"]);
    is_empty(&to);
}
