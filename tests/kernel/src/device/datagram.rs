//! The data path of datagrams.

use std::sync::Arc;

use cmid_proto::datapath::{
    AhAttr, CompletionQueue, GlobalRoute, Length, MemoryRegion, OfPd, PostReason, ProtectionDomain, QueuePair, SendWr,
    WcOpcode,
};
use cmid_proto::{Call, CmEvent, Datagram, Errno, PortSpace};
use cmid_verbs::{Access, Completion, GRH_LEN, Mr, QpState, Remote, To, WcStatus};

use crate::data::{bytes, polled, register, success, why};
use crate::env::{End, Pair, Side, param};

/// `RDMA_UDP_QKEY`.
pub(crate) const QKEY: u32 = 0x0123_4567;

/// Both ends of an answered lookup, and the contents of the answer.
pub(crate) fn found(client: &mut Side, server: &mut Side, addr: std::net::SocketAddr) -> (End, End, Datagram) {
    let id = client.resolved_in(PortSpace::Udp, addr);
    let c = client.end(id);
    assert_eq!(c.qp.state(), Ok(QpState::RTS), "as soon as it is made");
    client.ok_with(&Call::Connect { id, param: param() }, b"where?");
    let request = server.expect(CmEvent::ConnectRequest);
    assert_eq!((request.private_data.len(), request.param.qp_num, request.datagram), (180, 0, None));
    assert_eq!(&request.private_data[..7], b"where?\0");
    let s = server.end(request.id);
    server.ok_with(&Call::Accept { id: s.id, param: param() }, b"here");
    let answer = client.expect(CmEvent::Established);
    assert_eq!((&answer.private_data[..5], answer.private_data.len()), (&b"here\0"[..], 136));
    let to = answer.datagram.expect("where to send");
    assert_eq!((to.qp_num, to.qkey), (s.qp.num(), QKEY));
    assert_eq!((to.path.port_num, to.path.dlid), (1, 0));
    assert_eq!(to.path.grh.expect("RoCE").dgid[10..], [0xff, 0xff, 10, 99, 0, 2]);
    (c, s, to)
}

/// A message over the path in the lookup's answer, and an answer to its sender.
pub(crate) fn there_and_back() {
    let (mut client, mut server) = (Side::new(), Side::new());
    let (_, addr) = server.listener_in(PortSpace::Udp);
    let (mut c, mut s, to) = found(&mut client, &mut server, addr);
    let (mut asks, gets) = (register(&c, 0, Access::empty()), register(&c, 0xee, Access::LOCAL_WRITE));
    let (mut answers, received) = (register(&s, 0, Access::empty()), register(&s, 0xee, Access::LOCAL_WRITE));
    asks.write(0, b"a question, too long to be inlined").expect("inside");
    answers.write(0, b"yes").expect("inside");

    let there = c.pd.create_ah(&to.path).expect("create_ah");
    let mut last = Completion::default();
    for round in 0..10 {
        s.qp.post_recv(1, received.sge(8..8 + GRH_LEN + 64)).expect("post_recv");
        c.qp.post_recv(2, gets.sge(0..GRH_LEN + 3)).expect("post_recv");
        let len = if round % 2 == 0 { 34 } else { 3 };
        c.qp.post_send(SendWr::send_to(3, asks.sge(0..len), To { ah: &there, qp_num: to.qp_num, qkey: to.qkey }))
            .expect("post_send_to");
        success(polled(&mut c.cq), 3, WcOpcode::SEND);
        let record = success(polled(&mut s.cq), 1, WcOpcode::RECV);
        assert_eq!((record.byte_len as usize, record.src_qp, record.qp_num), (GRH_LEN + len, c.qp.num(), s.qp.num()));
        assert!(record.has_grh());
        assert_eq!(&bytes::<3>(&received, 8 + GRH_LEN), b"a q");

        let back = s.pd.create_ah_from(&record, &received, 8).expect("create_ah_from");
        s.qp.post_send(SendWr::send_to(4, answers.sge(0..3), To { ah: &back, qp_num: record.src_qp, qkey: QKEY }))
            .expect("post_send_to");
        success(polled(&mut s.cq), 4, WcOpcode::SEND);
        let got = success(polled(&mut c.cq), 2, WcOpcode::RECV);
        assert_eq!((got.byte_len as usize, got.src_qp), (GRH_LEN + 3, s.qp.num()));
        assert_eq!(&bytes::<3>(&gets, GRH_LEN), b"yes");
        last = record;
    }
    let record = last;

    // More than a packet is refused: the device would complete it with success.
    let long = SendWr::send_to(6, asks.sge(0..2000), To { ah: &there, qp_num: to.qp_num, qkey: QKEY });
    assert_eq!(why(c.qp.post_send(long)), Err(PostReason::DatagramTooLong { len: 2000, mtu: 1024 }));

    // A wrong key, a wrong number: nothing arrives, and the sender gets no error.
    s.qp.post_recv(5, received.sge(0..4096)).expect("post_recv");
    for (qp_num, qkey) in [(to.qp_num, QKEY + 1), (to.qp_num + 1000, QKEY)] {
        c.qp.post_send(SendWr::send_to(6, asks.sge(0..3), To { ah: &there, qp_num, qkey })).expect("post_send_to");
        success(polled(&mut c.cq), 6, WcOpcode::SEND);
    }
    std::thread::sleep(std::time::Duration::from_millis(100));
    assert_eq!(s.cq.poll(&mut [Completion::default()]), Ok(0));

    // Without a header, there is no path back.
    let back = |completion: &Completion, memory: &Mr, offset| {
        s.pd.create_ah_from(completion, memory, offset).map(drop).map_err(|error| error.errno())
    };
    assert_eq!(back(&record, &received, 4096 - GRH_LEN + 1), Err(Errno::EINVAL));
    assert_eq!(back(&record, &received, usize::MAX), Err(Errno::EINVAL));
    let mut header = register(&s, 0, Access::empty());
    assert_eq!(back(&record, &header, 0), Err(Errno::EPROTONOSUPPORT));
    let none = Completion::default();
    assert!(!none.has_grh());
    assert_eq!(back(&none, &header, 0), Err(Errno::EINVAL), "RoCE has always one");
    // Sent to an address of another device.
    header.write(0, &bytes::<GRH_LEN>(&received, 8)).expect("inside");
    assert_eq!(back(&record, &header, 0), Ok(()));
    header.write(36, &[10, 97, 0, 1]).expect("inside");
    assert!(back(&record, &header, 0).is_err());
}

/// Calls that would make a provider dereference a missing handle, or one of another device.
pub(crate) fn kinds() {
    let (mut client, mut server) = (Side::new(), Side::new());
    let (_, addr) = server.listener_in(PortSpace::Udp);
    let (mut c, mut s, found) = found(&mut client, &mut server, addr);
    let memory = register(&c, 0, Access::LOCAL_WRITE);
    let ah = c.pd.create_ah(&found.path).expect("create_ah");
    let to = To { ah: &ah, qp_num: found.qp_num, qkey: found.qkey };
    let remote = Remote { addr: memory.addr(), rkey: memory.rkey() };
    assert_eq!(why(c.qp.post_send(SendWr::send(1, memory.sge(0..8)))), Err(PostReason::IsDatagram));
    assert_eq!(why(c.qp.post_send(SendWr::write(1, memory.sge(0..8), remote))), Err(PostReason::IsDatagram));
    assert_eq!(why(c.qp.post_send(SendWr::read(1, memory.sge(0..8), remote))), Err(PostReason::IsDatagram));
    assert_eq!(
        why(c.qp.post_send(SendWr::send_to(1, memory.sge(0..4097), to))),
        Err(PostReason::OutOfRange { len: Length::new(4096) })
    );
    assert_eq!(
        why(s.qp.post_send(SendWr::send_to(1, memory.sge(0..8), to))),
        Err(PostReason::OtherPd(OfPd::Ah)),
        "a handle of another PD"
    );

    let mut pair = Pair::connected();
    let own = pair.c.pd.create_ah(&found.path).expect("create_ah");
    let to = To { ah: &own, ..to };
    assert_eq!(
        why(pair.c.qp.post_send(SendWr::send_to(1, memory.sge(0..8), to))),
        Err(PostReason::IsConnected),
        "it is connected"
    );

    // Paths that the device does not support.
    let route = found.path.grh.expect("RoCE");
    for path in [
        AhAttr { port_num: 9, ..found.path },
        AhAttr { grh: None, ..found.path },
        AhAttr { grh: Some(GlobalRoute { sgid_index: 200, ..route }), ..found.path },
    ] {
        let errno = c.pd.create_ah(&path).map(drop).expect_err("refused").errno();
        assert!([Errno::EINVAL, Errno::ENOENT, Errno::ENODATA].contains(&errno), "{errno}: {path:?}");
    }
}

pub(crate) fn lifetimes() {
    let (mut client, mut server) = (Side::new(), Side::new());
    let (_, addr) = server.listener_in(PortSpace::Udp);
    let (mut c, mut s, found) = found(&mut client, &mut server, addr);
    let (memory, received) = (register(&c, 7, Access::empty()), register(&s, 0, Access::LOCAL_WRITE));
    // If the handle is destroyed first, a posted send either succeeds or fails.
    for _ in 0..20 {
        s.qp.post_recv(1, received.sge(0..GRH_LEN + 8)).expect("post_recv");
        let ah = c.pd.create_ah(&found.path).expect("create_ah");
        c.qp.post_send(SendWr::send_to(2, memory.sge(0..8), To { ah: &ah, qp_num: found.qp_num, qkey: found.qkey }))
            .expect("post");
        drop(ah);
        let sent = polled(&mut c.cq);
        // Polling received messages makes room.
        s.cq.poll(&mut [Completion::default(); 16]).expect("poll");
        assert_eq!(sent.wr_id, 2);
        if sent.status != WcStatus::SUCCESS {
            println!("             a handle that went early: {:?}", sent.status);
            break;
        }
    }

    // An address handle keeps its PD and device alive.
    let ah = Arc::new(c.pd.create_ah(&found.path).expect("create_ah"));
    drop((client, server, memory, c));
    let other = Arc::clone(&ah);
    std::thread::spawn(move || drop(other)).join().expect("the thread");
    drop(ah);
}
