//! Cores of one program have different numbers. A core refuses keys and ack tokens of other cores.

use cmid_proto::{
    Acks, Admission, ChannelKey, CmEvent, Core, Fault, GroupKey, IdKey, Limits, PortSpace, RawEvent, RefuseReason,
    Refused, Request, RequestKind, State,
};

use crate::fixture::{BIND, CoreFixture, group_addr, of, raw, to};

fn numbered(core: u16) -> CoreFixture {
    CoreFixture::with(Limits { core: Some(core), ..Limits::SINGLE })
}

/// A core with a channel, an id and its membership. Their slots and generations are the same in each core.
fn filled(core: u16) -> (CoreFixture, ChannelKey, IdKey, GroupKey) {
    let mut fixture = numbered(core);
    let channel = fixture.channel(Acks::Explicit);
    let (id, group, event) = fixture.member_that_owes(channel);
    fixture.acks(event);
    (fixture, channel, id, group)
}

#[test]
fn keys_of_another_core_are_refused_and_nothing_has_changed() {
    let (_, channel_a, id_a, group_a) = filled(1);
    let (mut b, channel_b, id_b, group_b) = filled(2);
    assert_eq!((id_a.slot(), id_a.generation()), (id_b.slot(), id_b.generation()), "they differ in nothing else");
    let before = b.core.clone();

    for request in [BIND, Request::Destroy, to(channel_b), Request::Leave { group: group_b }] {
        let refused = b.submit(id_a, request).unwrap_err();
        assert_eq!(refused, Refused::NoSuchId { id: id_a, request: request.request_kind() });
        assert_eq!(b.core.would_refuse(b.now, id_a, &request, b.now), Err(refused));
    }
    assert_eq!(b.core.release(id_a).unwrap_err(), Refused::NoSuchId { id: id_a, request: RequestKind::Release });
    let refused = b.creates(PortSpace::Tcp, Some(channel_a)).unwrap_err();
    assert_eq!(refused, Refused::NoSuchChannel { channel: channel_a });
    assert_eq!(b.closes(channel_a), Err(Refused::NoSuchChannel { channel: channel_a }));
    b.refuses(id_b, to(channel_a), RefuseReason::NoSuchChannel(channel_a));
    b.refuses(id_b, Request::Leave { group: group_a }, RefuseReason::NoSuchGroup(group_a));

    assert_eq!((b.core.state(id_a), b.core.channel(id_a), b.core.device_channel(id_a)), (None, None, None));
    assert_eq!((b.core.channel_info(channel_a).is_some(), b.core.poll_event(channel_a)), (false, None));
    b.core.handle_readable(channel_a);
    assert_eq!((b.core.poll_readable(), b.core.wants_event(channel_a)), (None, None));
    assert_eq!(b.core, before);
}

#[test]
fn events_of_another_core_are_not_believed() {
    let (_, channel_a, id_a, group_a) = filled(1);
    let (mut b, channel_b, id_b, group_b) = filled(2);
    assert_eq!(b.report_on(channel_b, raw(id_a, CmEvent::AddrChange, 0)), Admission::Stray);
    let foreign = b.core.handle_event(channel_a, raw(id_b, CmEvent::AddrChange, 0));
    assert_eq!(foreign, Err(Fault::NoSuchChannel { channel: channel_a }));
    let lost = of(group_a, id_b, CmEvent::MulticastError, 0);
    assert_eq!(b.report_on(channel_b, lost), Admission::Late, "not of a membership here");
    assert_eq!(b.core.group_at(id_b, group_addr(9)), Some(group_b));
    b.stops();
}

#[test]
fn a_request_under_a_key_of_another_core_is_a_fault() {
    let mut b = numbered(2);
    let channel = b.channel(Acks::OnDelivery);
    let listener = b.in_state(channel, State::Listening);
    let device_channel = b.core.device_channel(listener).unwrap();
    let wanted = b.core.wants_event(device_channel).unwrap();
    let foreign = IdKey::from_parts(1, wanted.slot() as u32, wanted.generation()).unwrap();
    let request = RawEvent { listener: Some(listener), ..raw(foreign, CmEvent::ConnectRequest, 0) };
    assert_eq!(b.core.handle_event(device_channel, request), Err(Fault::WrongChild { id: foreign }));
    assert_eq!(b.report_request(listener), wanted);
    b.stops();
}

#[test]
fn a_receipt_of_another_core_is_given_back_and_each_core_takes_its_own() {
    let owing = |core| {
        let mut fixture = numbered(core);
        let channel = fixture.channel(Acks::Explicit);
        let id = fixture.in_state(channel, State::Bound);
        let event = fixture.owes(channel, id);
        (fixture, channel, id, event.ack_token.unwrap())
    };
    let (mut a, _, id_a, of_a) = owing(1);
    let (mut b, _, id_b, of_b) = owing(2);
    let before = b.core.clone();
    let refused = b.core.ack(of_a).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the ack token of s1/id0 is not valid here: the id is gone, or it is of another core"
    );
    assert_eq!(b.core, before);
    assert_eq!(b.owed(id_b), 1);
    b.core.ack(of_b).unwrap();
    a.core.ack(refused.ack_token).unwrap();
    assert_eq!((a.owed(id_a), b.owed(id_b)), (0, 0));
}

#[test]
fn an_id_that_changes_cores_changes_the_number_of_its_keys() {
    let (mut a, mut b) = (numbered(1), numbered(2));
    let id_a = a.id(None);
    let (released, private) = a.core.release(id_a).unwrap();
    let (id_b, channel_b) = b.core.adopt(released).unwrap();
    assert_eq!((id_a.core(), private.core(), id_b.core(), channel_b.core()), (1, 1, 2, 2));
    assert_eq!(b.core.state(id_a), None);
    assert_eq!(b.core.state(id_b), Some(State::Idle));
}

#[test]
fn a_refusal_names_the_core_of_the_key() {
    let mut b = numbered(3);
    let foreign = IdKey::from_parts(12, 0, 2).unwrap();
    assert_eq!(b.submit(foreign, BIND).unwrap_err().to_string(), "bind_addr on s12/id0.2: there is no such id");
    let channel = b.channel(Acks::OnDelivery);
    let id = b.id(Some(channel));
    assert_eq!(format!("{id} {channel:?}"), "s3/id0 s3/ch0");
}

#[test]
fn limits_above_the_number_of_keys_are_reduced_to_it() {
    let all = Limits {
        ids: u32::MAX,
        channels: u32::MAX,
        events: 1,
        groups: u32::MAX,
        core: Some(u16::MAX),
        ..Limits::SINGLE
    };
    let most = Limits {
        ids: (1 << 24) - 1,
        channels: 1 << 24,
        events: 1,
        groups: 1 << 24,
        core: Some(4095),
        ..Limits::SINGLE
    };
    assert_eq!(Core::new(all), Core::new(most));
    let number = |core| Core::new(Limits { core, ..Limits::SINGLE }).open_channel(Acks::OnDelivery).unwrap().0.core();
    assert_eq!([Some(u16::MAX), Some(4097), None].map(number), [4095, 1, 0]);
}

#[test]
#[cfg(feature = "std")]
fn limits_without_a_number_get_the_next_one() {
    // Other tests of this process take numbers too.
    let [one, two] = [Limits::SINGLE, Limits::SINGLE].map(|limits| limits.numbered().core.unwrap());
    assert_ne!(one, two);
    assert!(one < 4096 && two < 4096);
    let all = (0..5000).map(|_| Limits::SINGLE.numbered().core.unwrap());
    assert_eq!(all.max(), Some(4095), "then from 0 again");
    assert_eq!(Limits { core: Some(one), ..Limits::LARGE }.numbered().core, Some(one), "their own stays");
}
