//! UDP: a connect is a lookup of a QP, an accept the answer.

use std::time::Duration;

use cmid_proto::datapath::QueuePair;
use cmid_proto::{Call, CmEvent, Datagram, Errno, IdKey, PortSpace, RejectReason};
use cmid_verbs::QpState;

use crate::env::{End, SERVER, Seen, Side, param};

/// `RDMA_UDP_QKEY`.
pub(crate) const QKEY: u32 = 0x0123_4567;
const CONSUMER: RejectReason = RejectReason::Consumer;

/// The client's end of a lookup, and the request at the server.
fn look_up(client: &mut Side, server: &mut Side, addr: std::net::SocketAddr, data: &[u8]) -> (End, IdKey) {
    let id = client.resolved_in(PortSpace::Udp, addr);
    let end = client.end(id);
    assert_eq!(end.qp.state(), Ok(QpState::RTS), "as soon as it is made");
    client.ok_with(&Call::Connect { id, param: param() }, data);
    let request = server.expect(CmEvent::ConnectRequest);
    assert_eq!((request.private_data.len(), request.param.qp_num, request.datagram), (180, 0, None));
    assert_eq!(&request.private_data[..data.len()], data);
    (end, request.id)
}

/// Expects the failure of a lookup, which for UDP is always UNREACHABLE.
fn failed(client: &mut Side, status: i32) -> Seen {
    let seen = client.event_within(Duration::from_secs(10)).expect("an answer");
    assert_eq!((seen.kind, seen.status, seen.private_data.len()), (CmEvent::Unreachable, status, 136));
    assert_eq!(seen.datagram, None);
    seen
}

/// Both ends of an answered lookup, and the contents of the answer.
pub(crate) fn found(client: &mut Side, server: &mut Side, addr: std::net::SocketAddr) -> (End, End, Datagram) {
    let (c, request) = look_up(client, server, addr, b"where?");
    let s = server.end(request);
    server.ok_with(&Call::Accept { id: s.id, param: param() }, b"here");
    let answer = client.expect(CmEvent::Established);
    assert_eq!((&answer.private_data[..5], answer.private_data.len()), (&b"here\0"[..], 136));
    let to = answer.datagram.expect("where to send");
    assert_eq!((to.qp_num, to.qkey), (s.qp.num(), QKEY));
    (c, s, to)
}

pub(crate) fn nobody() {
    let mut client = Side::new();
    let id = client.resolved_in(PortSpace::Udp, std::net::SocketAddr::from((SERVER, 1)));
    client.ok(&Call::Connect { id, param: param() });
    failed(&mut client, 1);
    client.fails(&Call::Connect { id, param: param() }, Errno::EINVAL);
}

pub(crate) fn refused() {
    let (mut client, mut server) = (Side::new(), Side::new());
    let (_, addr) = server.listener_in(PortSpace::Udp);
    let id = client.resolved_in(PortSpace::Udp, addr);
    client.fails_with(&Call::Connect { id, param: param() }, &[1; 181], Errno::EINVAL);
    let (_c, request) = look_up(&mut client, &mut server, addr, &[2; 180]);
    server.fails_with(&Call::Reject { id: request, reason: CONSUMER }, &[3; 137], Errno::EINVAL);
    client.quiet(100);
    server.ok_with(&Call::Reject { id: request, reason: CONSUMER }, &[4; 136]);
    assert_eq!(failed(&mut client, 2).private_data, [4; 136]);
}

/// Behaviour 73: requests without an answer.
pub(crate) fn given_up() {
    let (mut client, mut server) = (Side::new(), Side::new());
    let (listener, addr) = server.listener_in(PortSpace::Udp);
    let (_c, request) = look_up(&mut client, &mut server, addr, &[]);
    server.ok(&Call::Destroy { id: request });
    failed(&mut client, 2);

    // One request fills the backlog. The next is refused at once, and the first when the listener is destroyed.
    server.ok(&Call::Destroy { id: listener });
    let narrow = server.id_in(PortSpace::Udp);
    server.ok(&Call::Bind { id: narrow, addr });
    server.ok(&Call::Listen { id: narrow, backlog: 1 });
    let (first, second) = (client.resolved_in(PortSpace::Udp, addr), client.resolved_in(PortSpace::Udp, addr));
    for id in [first, second] {
        client.ok(&Call::Connect { id, param: param() });
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(failed(&mut client, 2).id, second);
    server.ok(&Call::Destroy { id: narrow });
    assert_eq!(failed(&mut client, 2).id, first);
}

pub(crate) fn answered() {
    let (mut client, mut server) = (Side::new(), Side::new());
    let (_, addr) = server.listener_in(PortSpace::Udp);
    let (_c, request) = look_up(&mut client, &mut server, addr, &[]);
    server.fails_with(&Call::Accept { id: request, param: param() }, &[5; 137], Errno::EINVAL);
    failed(&mut client, 2);

    let (c, s, to) = found(&mut client, &mut server, addr);
    let route = to.path.grh.expect("RoCE");
    assert_eq!(route.dgid[10..], [0xff, 0xff, 10, 99, 0, 2]);
    assert_eq!((to.path.port_num, to.path.dlid), (1, 0));
    server.quiet(300);
    server.fails(&Call::Accept { id: s.id, param: param() }, Errno::EINVAL);
    for (side, end) in [(&mut client, &c), (&mut server, &s)] {
        side.ok(&Call::Disconnect { id: end.id });
        assert_eq!(end.qp.state(), Ok(QpState::ERR));
    }
    client.quiet(300);
    server.quiet(300);
}
