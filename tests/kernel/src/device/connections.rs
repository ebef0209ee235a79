//! Connections and their ends, as observed on both sides.

use std::time::Duration;

use cmid_proto::datapath::QueuePair;
use cmid_proto::{Call, CmEvent, Device, Errno, RejectReason};
use cmid_verbs::QpState;

use crate::env::{Pair, Side, channel_key, param};

/// The time until TIMEWAIT_EXIT is half a second on Linux 6.12 and two on 6.1.
fn timewait_exit(side: &mut Side) {
    side.expect(CmEvent::TimewaitExit);
}

pub(crate) fn with_qps() {
    let (mut client, mut server) = (Side::new(), Side::new());
    let (listener, addr) = server.listener();

    let id = client.resolved(addr);
    let c = client.end(id);
    assert_eq!(c.qp.state(), Ok(QpState::INIT));
    client.ok(&Call::Connect { id, param: param() });

    let request = server.expect(CmEvent::ConnectRequest);
    assert_eq!(request.listener, Some(listener));
    assert_eq!(request.private_data, [0; 56]);
    assert_eq!((request.param.responder_resources, request.param.initiator_depth), (1, 1));
    assert_eq!((request.param.retry_count, request.param.rnr_retry_count), (5, 6));
    assert_eq!(request.param.qp_num, c.qp.num());
    let s = server.end(request.id);
    server.ok(&Call::Accept { id: s.id, param: param() });

    let answer = client.expect(CmEvent::Established);
    assert_eq!((answer.id, answer.listener, answer.private_data.len()), (id, None, 196));
    assert_eq!((answer.param.responder_resources, answer.param.initiator_depth), (1, 1));
    assert_eq!((answer.param.retry_count, answer.param.rnr_retry_count), (0, 6));
    assert_eq!(answer.param.qp_num, s.qp.num());
    let confirmed = server.expect(CmEvent::Established);
    assert_eq!((confirmed.id, confirmed.private_data.len()), (s.id, 0));
    assert_eq!((c.qp.state(), s.qp.state()), (Ok(QpState::RTS), Ok(QpState::RTS)));

    client.ok(&Call::Disconnect { id });
    assert_eq!(c.qp.state(), Ok(QpState::ERR));
    assert_eq!(server.expect(CmEvent::Disconnected).id, s.id);
    assert_eq!(s.qp.state(), Ok(QpState::RTS));
    client.quiet(300);
    server.ok(&Call::Disconnect { id: s.id });
    assert_eq!(client.expect(CmEvent::Disconnected).id, id);
    timewait_exit(&mut client);
    timewait_exit(&mut server);
    client.ok(&Call::Disconnect { id });
    client.quiet(300);
    client.fails(&Call::Connect { id, param: param() }, Errno::EINVAL);
    client.ok(&Call::Destroy { id });
    server.ok(&Call::Destroy { id: s.id });
    server.ok(&Call::Destroy { id: listener });
    assert_eq!((client.device.counts(), server.device.counts()), ((0, 1), (0, 1)));
}

pub(crate) fn destroy_answers() {
    let mut pair = Pair::connected();
    pair.client.ok(&Call::Disconnect { id: pair.c.id });
    pair.server.expect(CmEvent::Disconnected);
    pair.client.quiet(3_000);
    pair.server.ok(&Call::Destroy { id: pair.s.id });
    pair.client.expect(CmEvent::Disconnected);
    timewait_exit(&mut pair.client);
}

pub(crate) fn crossing() {
    let mut pair = Pair::connected();
    pair.client.ok(&Call::Disconnect { id: pair.c.id });
    // Late enough that the kernel has received the first request: the second is its answer.
    std::thread::sleep(Duration::from_millis(300));
    pair.server.ok(&Call::Disconnect { id: pair.s.id });
    for side in [&mut pair.client, &mut pair.server] {
        side.expect(CmEvent::Disconnected);
        timewait_exit(side);
    }
}

pub(crate) fn without_qps() {
    let (mut client, mut server) = (Side::new(), Side::new());
    let (_, addr) = server.listener();
    let id = client.resolved(addr);
    let asked = param();
    client.ok(&Call::Connect { id, param: asked });
    let request = server.expect(CmEvent::ConnectRequest);
    assert_eq!(request.param.qp_num, asked.qp_num);
    server.ok(&Call::Accept { id: request.id, param: param() });
    assert_eq!(client.expect(CmEvent::ConnectResponse).private_data.len(), 196);
    server.quiet(300);
    client.ok(&Call::Establish { id });
    server.expect(CmEvent::Established);
    client.fails(&Call::Establish { id }, Errno::EINVAL);
    client.quiet(300);
    server.quiet(300);
    client.ok(&Call::Disconnect { id });
    server.expect(CmEvent::Disconnected);
    server.ok(&Call::Disconnect { id: request.id });
    client.expect(CmEvent::Disconnected);
    timewait_exit(&mut client);
    timewait_exit(&mut server);
}

pub(crate) fn destroyed_while_established() {
    let mut pair = Pair::connected();
    pair.server.ok(&Call::Destroy { id: pair.s.id });
    // A handle of its QP is left: the QP exists, but transfers nothing.
    assert_eq!(pair.s.qp.state(), Ok(QpState::ERR));
    pair.client.expect(CmEvent::Disconnected);
    assert_eq!(pair.c.qp.state(), Ok(QpState::RTS));
    pair.client.ok(&Call::Disconnect { id: pair.c.id });
    timewait_exit(&mut pair.client);
}

pub(crate) fn refused() {
    let (mut client, mut server) = (Side::new(), Side::new());
    let (_, addr) = server.listener();
    let id = client.resolved(addr);
    let c = client.end(id);
    let data: Vec<u8> = (1..=57).collect();
    assert_eq!(client.device.call(&Call::Connect { id, param: param() }, &data), Err(Errno::EINVAL));
    client.ok_with(&Call::Connect { id, param: param() }, &data[..56]);
    let request = server.expect(CmEvent::ConnectRequest);
    assert_eq!(request.private_data, data[..56]);
    server.ok_with(&Call::Reject { id: request.id, reason: RejectReason::Consumer }, b"no");
    let answer = client.event_within(Duration::from_secs(10)).expect("an answer");
    assert_eq!((answer.kind, answer.status), (CmEvent::Rejected, 28));
    assert_eq!((&answer.private_data[..3], answer.private_data.len()), (&b"no\0"[..], 148));
    assert_eq!(c.qp.state(), Ok(QpState::ERR));
    server.fails(&Call::Reject { id: request.id, reason: RejectReason::Consumer }, Errno::EINVAL);
    server.ok(&Call::Destroy { id: request.id });
}

pub(crate) fn migrated() {
    let mut pair = Pair::connected();
    let (home, away) = (pair.server.channel, channel_key(7, 3));
    pair.server.ok(&Call::OpenChannel { channel: away });
    // One event is unread: it migrates along.
    pair.client.ok(&Call::Disconnect { id: pair.c.id });
    std::thread::sleep(Duration::from_millis(300));
    pair.server.ok(&Call::Migrate { id: pair.s.id, from: home, to: away });
    pair.server.quiet(100);
    let moved = pair.server.event_on(away, Duration::ZERO).expect("it is there at once");
    assert_eq!((moved.id, moved.kind), (pair.s.id, CmEvent::Disconnected));
    pair.server.ok(&Call::Disconnect { id: pair.s.id });
    pair.client.expect(CmEvent::Disconnected);
    let last = pair.server.event_on(away, Duration::from_secs(10)).expect("the later one too");
    assert_eq!(last.kind, CmEvent::TimewaitExit);
    pair.server.ok(&Call::Destroy { id: pair.s.id });
    pair.server.ok(&Call::CloseChannel { channel: away });
    pair.server.quiet(100);
}
