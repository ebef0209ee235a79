//! Failed listens and repeated listens: the id's channel at the device, and which ids may share it.

use cmid_proto::{Acks, Call, CmEvent, Errno, RawEvent, RefuseReason, Request, State};

use crate::fixture::{CoreFixture, LISTEN, OK, accept, cm, raw, to};

/// A request that is reported before the listen fails leaves its id on the channel of the failed listener.
#[test]
fn an_id_does_not_listen_again_while_accepted_ids_are_on_its_channel() {
    let (mut fixture, _) = CoreFixture::on(Acks::OnDelivery);
    let id = fixture.id(None);
    fixture.submit(id, LISTEN).unwrap();
    let (token, _) = fixture.core.poll_call().unwrap();
    let device_channel = fixture.core.device_channel(id).unwrap();
    let child = fixture.core.wants_event(device_channel).unwrap();
    let request = RawEvent { listener: Some(id), ..raw(child, CmEvent::ConnectRequest, 0) };
    fixture.core.handle_event(device_channel, request).unwrap();
    fixture.answers(token, Err(Errno::ENODEV));
    // An id that is not accepted has no events, so it may stay on the channel.
    let mut other = fixture.clone();
    other.does(id, LISTEN);
    other.refuses(child, accept(), RefuseReason::OnListenersChannel);
    fixture.does(child, accept());
    fixture.refuses(id, LISTEN, RefuseReason::SharesChannel);
    fixture.does(child, Request::Destroy);
    fixture.does(id, LISTEN);
}

/// Requests that are reported before a listen fails count against the backlog of the next one.
#[test]
fn an_id_does_not_listen_again_with_more_untaken_requests_than_the_backlog_allows() {
    let (mut fixture, channel) = CoreFixture::on(Acks::OnDelivery);
    let id = fixture.id(Some(channel));
    fixture.submit(id, Request::Listen { backlog: 2 }).unwrap();
    let (token, _) = fixture.core.poll_call().unwrap();
    let children = [(); 2].map(|()| fixture.report_request(id));
    fixture.answers(token, Err(Errno::ENOMEM));
    let again = Request::Listen { backlog: 1 };
    fixture.refuses(id, again, RefuseReason::Busy(cmid_proto::RequestKind::Listen));
    fixture.sees(channel, children[0], cm(CmEvent::ConnectRequest));
    fixture.does(id, again);
}

/// The channel of a failed listen has no listener once the id listens on another one.
#[test]
fn the_channel_of_a_listen_that_failed_has_no_listener() {
    let (mut fixture, channel) = CoreFixture::on(Acks::OnDelivery);
    let id = fixture.id(None);
    fixture.submit(id, LISTEN).unwrap();
    let (token, _) = fixture.core.poll_call().unwrap();
    let device_channel = fixture.core.device_channel(id).unwrap();
    let child = fixture.report_request(id);
    fixture.answers(token, Err(Errno::ENOMEM));
    fixture.does(child, accept());
    fixture.does(id, to(channel));
    fixture.does(id, LISTEN);
    assert_eq!(
        (fixture.core.device_channel(child), fixture.core.state(child)),
        (Some(device_channel), Some(State::Accepting))
    );
    fixture.report_and_take(child, CmEvent::Established);
}

/// The id of a request that is reported before the device listens is migrated before its accept, as with any request.
#[test]
fn a_channel_has_a_listener_from_when_it_is_opened_for_one() {
    let (mut fixture, channel) = CoreFixture::on(Acks::OnDelivery);
    let id = fixture.id(Some(channel));
    fixture.submit(id, LISTEN).unwrap();
    let (open, call) = fixture.takes_call("create_event_channel");
    let Call::OpenChannel { channel: device_channel } = call else { panic!("{call:?}") };
    fixture.answers(open, OK);
    let (migrate, _) = fixture.takes_call("migrate_id");
    let child = fixture.core.wants_event(device_channel).unwrap();
    fixture.report_on(device_channel, RawEvent { listener: Some(id), ..raw(child, CmEvent::ConnectRequest, 0) });
    for makes in [false, true] {
        let mut fixture = fixture.clone();
        if makes {
            fixture.answers(migrate, OK);
            fixture.all_well();
        }
        fixture.submit(child, accept()).unwrap();
        let (_, call) = fixture.takes_call("migrate_id");
        assert_eq!(call, Call::Migrate { id: child, from: device_channel, to: channel });
    }
}
