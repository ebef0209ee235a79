//! Each step is one line of text.

use cmid_proto::{
    Acks, Admission, Call, ChannelKey, CmEvent, CmOption, ConnParam, Ece, Errno, Event, EventKind, Failure, Fault,
    GroupKey, IdKey, Limits, PortSpace, PrivateData, RawEvent, RefuseReason, Refused, RejectReason, Request,
    RequestKind, State, Step, Target, Time,
};

use crate::device::addr;

fn id(slot: u32) -> IdKey {
    IdKey::from_parts(0, slot, 1).unwrap()
}

fn channel(slot: u32) -> ChannelKey {
    ChannelKey::from_parts(0, slot, 1).unwrap()
}

fn group() -> GroupKey {
    GroupKey::from_parts(0, 7, 1).unwrap()
}

fn expect(cases: &[(Step<'_>, &str)]) {
    for (step, text) in cases {
        assert_eq!(step.to_string(), *text);
    }
}

const SOON: Time = Time(5_000_000_000);

#[test]
fn requests_and_their_refusals() {
    let refused = Refused::Request {
        id: id(1),
        request: RequestKind::Connect,
        state: State::Bound,
        reason: RefuseReason::WrongState,
    };
    let (acks, port_space) = (Acks::Explicit, PortSpace::Tcp);
    let connect = || Request::Connect { param: ConnParam::default(), private_data: b"data" };
    expect(&[
        (Step::Begin { limits: Limits::SINGLE }, "begin with 4 ids, 4 channels, 64 events"),
        (Step::OpenChannel { acks, result: Ok(channel(0)) }, "open channel: ch0"),
        (
            Step::OpenChannel { acks, result: Err(Refused::Full("channels")) },
            "open channel: refused: the limit on channels is reached (Limits::channels; with cmid-mio, the number of its tokens)",
        ),
        (Step::CloseChannel { channel: channel(0), result: Ok(()) }, "close ch0"),
        (
            Step::CloseChannel { channel: channel(0), result: Err(Refused::ChannelInUse { channel: channel(0) }) },
            "close ch0: refused: channel ch0 is in use",
        ),
        (Step::CreateId { channel: Some(channel(2)), port_space, result: Ok(id(1)) }, "create id, TCP on ch2: id1"),
        (
            Step::CreateId { channel: None, port_space, result: Err(Refused::Full("ids")) },
            "create id, TCP in synchronous mode: refused: the limit on ids is reached",
        ),
        (
            Step::Submit { id: id(1), request: connect(), deadline: SOON, result: Ok(()) },
            "connect on id1, deadline 5.000000000 s",
        ),
        (
            Step::Submit { id: id(1), request: Request::Destroy, deadline: Time::NEVER, result: Ok(()) },
            "destroy_id on id1",
        ),
        (
            Step::Submit { id: id(1), request: connect(), deadline: SOON, result: Err(refused) },
            "refused: connect on id1 while bound: not in this state",
        ),
        (Step::Ack { owner: id(1), group: None, result: Ok(()) }, "ack of id1"),
        (
            Step::Ack { owner: id(1), group: Some(group()), result: Err(Refused::NothingOwed { owner: id(1) }) },
            "ack of id1, grp7: refused: the ack token of id1 is not valid here: the id is gone, or it is of another core",
        ),
        (Step::Iwarp { id: id(1) }, "id1 is on an iWARP device"),
        (Step::PauseChannel { channel: channel(0), result: Ok(()) }, "pause ch0"),
        (Step::ResumeChannel { channel: channel(0), result: Ok(()) }, "resume ch0"),
    ]);
}

#[test]
fn calls_and_their_outcomes() {
    let (id, from, to, addr) = (id(1), channel(0), channel(2), addr(1));
    let param = ConnParam::default();
    let calls = [
        (Call::OpenChannel { channel: from }, "create_event_channel ch0"),
        (Call::CloseChannel { channel: from }, "destroy_event_channel ch0"),
        (Call::CreateId { id, channel: from, port_space: PortSpace::Udp }, "create_id on id1"),
        (Call::Bind { id, addr }, &format!("bind_addr on id1: {addr}")),
        (Call::ResolveAddr { id, src: None, dst: addr, timeout_ms: 1 }, &format!("resolve_addr on id1: {addr}")),
        (Call::ResolveRoute { id, timeout_ms: 1 }, "resolve_route on id1"),
        (Call::Listen { id, backlog: 1 }, "listen on id1"),
        (Call::Connect { id, param }, "connect on id1"),
        (Call::Accept { id, param }, "accept on id1"),
        (Call::Reject { id, reason: RejectReason::Consumer }, "reject on id1"),
        (Call::Establish { id }, "establish on id1"),
        (Call::Disconnect { id }, "disconnect on id1"),
        (Call::Notify { id }, "notify on id1"),
        (Call::Join { id, group: group(), addr, send_only: true }, &format!("join_multicast on id1: {addr}")),
        (Call::Leave { id, group: group(), addr }, &format!("leave_multicast on id1: {addr}")),
        (Call::SetOption { id, option: CmOption::Tos(1) }, "set_option on id1"),
        (Call::SetEce { id, ece: Ece::default() }, "set_local_ece on id1"),
        (Call::Migrate { id, from, to }, "migrate_id on id1: from ch0 to ch2"),
        (Call::Destroy { id }, "destroy_id on id1"),
    ];
    for (call, text) in &calls {
        assert_eq!(call.to_string(), *text);
    }
    let (call, fault) =
        (&Call::Destroy { id }, Fault::Leak { call: "rdma_destroy_id", target: Target::Id(id), errno: Errno::EIO });
    expect(&[
        (Step::Call { call, private_data: &[] }, "call destroy_id on id1"),
        (Step::Outcome { call, outcome: Ok(()), fault: None }, "done: destroy_id on id1"),
        (
            Step::Outcome { call, outcome: Err(Errno::EIO), fault: Some(fault) },
            "failed: destroy_id on id1: EIO, fault: rdma_destroy_id on id1 failed: EIO",
        ),
    ]);
}

#[test]
fn reads_and_deliveries() {
    let (id, channel) = (id(1), channel(0));
    let raw = RawEvent { status: -110, ..RawEvent::new(id, CmEvent::Unreachable) };
    let request = RawEvent { listener: Some(self::id(0)), ..RawEvent::new(id, CmEvent::ConnectRequest) };
    let lost = RawEvent { group: Some(group()), ..RawEvent::new(id, CmEvent::MulticastError) };
    let step = |event, result| Step::Event { channel, event, to: None, result, reads_on: false };
    let event = Event {
        id,
        listener: None,
        kind: EventKind::Cm(CmEvent::Established),
        status: 0,
        param: Default::default(),
        datagram: None,
        group: None,
        private_data: PrivateData::EMPTY,
        ack_token: None,
    };
    expect(&[
        (Step::Readable { channel }, "ch0 is readable"),
        (Step::BeginRead { channel, child: Some(id) }, "read ch0"),
        (Step::BeginRead { channel, child: None }, "ch0 takes no event"),
        (step(raw, Ok(Admission::Known)), "event id1: UNREACHABLE (ETIMEDOUT)"),
        (step(request, Ok(Admission::Child(id))), "event id1: CONNECT_REQUEST on id0"),
        (step(lost, Ok(Admission::Late)), "event id1: MULTICAST_ERROR of grp7, late"),
        (step(raw, Ok(Admission::Stray)), "event id1: UNREACHABLE (ETIMEDOUT), of no id here"),
        (
            step(request, Err(Fault::WrongChild { id })),
            "event id1: CONNECT_REQUEST on id0, fault: a connection request under the wrong key id1",
        ),
        (Step::Child { id }, "destroy id1: its request was not delivered"),
        (Step::Unreadable { channel, errno: Errno::EIO }, "reading ch0 failed: EIO"),
        (Step::WaitForRoom { channel }, "ch0 waits for room"),
        (Step::Deliver { channel, event: &event }, "deliver on ch0: id1: ESTABLISHED"),
    ]);
}

#[test]
fn the_rest() {
    let (id, channel) = (id(1), channel(0));
    let failure =
        Failure { call: "release", target: Target::Id(id), state: State::Connected, errno: Errno::EBUSY, cause: None };
    expect(&[
        (Step::Release { id, number: 1, result: Ok(()) }, "release id1"),
        (
            Step::Release { id, number: 1, result: Err(failure.into()) },
            "release id1: failed: release on id1 while connected: EBUSY",
        ),
        (Step::Adopt { id, number: 1, channel, outcome: Ok(()) }, "adopt id1 on ch0"),
        (Step::Adopt { id, number: 1, channel, outcome: Err(Errno::EMFILE) }, "adopt id1 on ch0: failed: EMFILE"),
        (Step::Timeout, "timeout"),
        (Step::Yield, "end of turn"),
        (Step::End, "end"),
    ]);
}
