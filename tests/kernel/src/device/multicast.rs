//! Multicast groups.

use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use cmid_proto::datapath::{AhAttr, SendWr, WcOpcode, prelude::*};
use cmid_proto::{Call, CmEvent, Datagram, Errno, GroupKey, IdKey, PortSpace};
use cmid_verbs::{Access, Completion, GRH_LEN, To};
use rustix::thread::{Gid, set_thread_res_gid};

use crate::data::{bytes, polled, register, success};
use crate::env::{CLIENT, End, SERVER, Seen, Side, group_key};

/// `RDMA_UDP_QKEY`.
const QKEY: u32 = 0x0123_4567;
const GROUP: [u8; 4] = [239, 1, 2, 3];
const GID: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 2, 3];

fn group() -> SocketAddr {
    SocketAddr::from((GROUP, 0))
}

fn join(id: IdKey, group: GroupKey, addr: SocketAddr) -> Call {
    Call::Join { id, group, addr, send_only: false }
}

fn joined(side: &mut Side, id: IdKey, group: GroupKey) -> Seen {
    let seen = side.expect(CmEvent::MulticastJoin);
    assert_eq!((seen.id, seen.group, seen.private_data.len()), (id, Some(group), 0));
    seen
}

pub(crate) fn membership() {
    let mut side = Side::new();
    let id = side.bound(SERVER);
    let _end = side.end(id);
    let (one, two) = (group_key(1), group_key(2));
    side.ok(&join(id, one, group()));
    let to = joined(&mut side, id, one).datagram.expect("where to send");
    assert_eq!((to.qp_num, to.qkey, to.path.port_num), (0xff_ffff, QKEY, 1));
    assert_eq!(to.path.grh.map(|route| route.dgid), Some(GID));

    // A second join makes another record and another event. Leaves find the records by the address, one after the
    // other.
    side.ok(&join(id, two, group()));
    joined(&mut side, id, two);
    side.ok(&Call::Leave { id, group: two, addr: group() });
    side.ok(&Call::Leave { id, group: one, addr: group() });
    side.fails(&Call::Leave { id, group: one, addr: group() }, Errno::EADDRNOTAVAIL);
    // The port is part of the address.
    side.ok(&join(id, one, SocketAddr::from((GROUP, 5))));
    joined(&mut side, id, one);
    side.fails(&Call::Leave { id, group: one, addr: group() }, Errno::EADDRNOTAVAIL);
    side.ok(&Call::Leave { id, group: one, addr: SocketAddr::from((GROUP, 5)) });
    side.quiet(100);

    // An id that has resolved the group's address itself can join it too.
    let resolved = side.id_in(PortSpace::Udp);
    let src = Some(SocketAddr::from((CLIENT, 0)));
    side.ok(&Call::ResolveAddr { id: resolved, src, dst: group(), timeout_ms: 2_000 });
    side.expect(CmEvent::AddrResolved);
    side.ok(&Call::Join { id: resolved, group: two, addr: group(), send_only: true });
    let from_there = joined(&mut side, resolved, two).datagram.expect("where to send");
    assert_eq!((from_there.qp_num, from_there.path.grh.map(|route| route.dgid)), (to.qp_num, Some(GID)));
    // Each id sends from its own address.
    assert_ne!(from_there.path, to.path);
    side.ok(&Call::Leave { id: resolved, group: two, addr: group() });
}

/// librdmacm frees its record of a group also if the kernel refuses the leave, and the unread event refers to it.
pub(crate) fn other_credentials() {
    let ((to_other, of_own), (to_own, of_other)) = (mpsc::channel(), mpsc::channel());
    let own = thread::spawn(move || {
        // A thread that changes its credentials has a copy of them, which the kernel compares by address.
        let other = Gid::from_raw(1);
        set_thread_res_gid(other, other, other).expect("setresgid");
        let mut side = Side::new();
        let id = side.bound(SERVER);
        side.ok(&join(id, group_key(1), group()));
        to_other.send((side, id)).expect("sent");
        let (mut side, id): (Side, IdKey) = of_other.recv().expect("received");
        joined(&mut side, id, group_key(1));
        side.ok(&Call::Leave { id, group: group_key(1), addr: group() });
        side.ok(&Call::Destroy { id });
    });
    let (mut side, id): (Side, IdKey) = of_own.recv().expect("received");
    for call in [Call::Leave { id, group: group_key(1), addr: group() }, Call::Destroy { id }] {
        side.fails(&call, Errno::EACCES);
    }
    to_own.send((side, id)).expect("sent");
    own.join().expect("it passes");
}

/// A member of the group at this address, with its QP, and the destination of sends.
fn member(side: &mut Side, addr: [u8; 4], send_only: bool) -> (End, Datagram) {
    let id = side.bound(addr);
    let end = side.end(id);
    side.ok(&Call::Join { id, group: group_key(1), addr: group(), send_only });
    let to = joined(side, id, group_key(1)).datagram.expect("where to send");
    (end, to)
}

/// Sends from one device of the linked pair to the other.
pub(crate) fn delivered() {
    let (mut sender, mut receiver) = (Side::new(), Side::new());
    let (mut c, to) = member(&mut sender, [10, 98, 0, 1], true);
    let (mut s, own) = member(&mut receiver, [10, 98, 0, 2], false);
    let (mut says, received) = (register(&c, 0, Access::empty()), register(&s, 0, Access::LOCAL_WRITE));
    let ah = c.pd.create_ah(&to.path).expect("create_ah");
    let to = To { ah: &ah, qp_num: to.qp_num, qkey: to.qkey };
    says.write(0, b"to all").expect("inside");
    s.qp.post_recv(1, received.sge(0..GRH_LEN + 6)).expect("post_recv");
    c.qp.post_send(SendWr::send_to(2, says.sge(0..6), to)).expect("post_send_to");
    success(polled(&mut c.cq), 2, WcOpcode::SEND);
    let record = success(polled(&mut s.cq), 1, WcOpcode::RECV);
    assert_eq!((record.src_qp, record.byte_len as usize), (c.qp.num(), GRH_LEN + 6));
    assert_eq!(&bytes::<6>(&received, GRH_LEN), b"to all");
    // The group's address does not determine the source address of an answer.
    assert_eq!(s.pd.create_ah_from(&record, &received, 0).map(drop).map_err(|error| error.errno()), Err(Errno::EINVAL));
    // But the receiver knows its own path to the group.
    let mut route = own.path.grh.expect("RoCE");
    route.dgid[12..].copy_from_slice(&bytes::<4>(&received, 32));
    let back = s.pd.create_ah(&AhAttr { grh: Some(route), ..own.path }).expect("create_ah");
    let gets = register(&c, 0, Access::LOCAL_WRITE);
    c.qp.post_recv(5, gets.sge(0..GRH_LEN + 3)).expect("post_recv");
    let answer = register(&s, b'y', Access::empty());
    s.qp.post_send(SendWr::send_to(6, answer.sge(0..3), To { ah: &back, qp_num: record.src_qp, qkey: QKEY }))
        .expect("post_send_to");
    success(polled(&mut s.cq), 6, WcOpcode::SEND);
    assert_eq!(success(polled(&mut c.cq), 5, WcOpcode::RECV).src_qp, s.qp.num());
    assert_eq!(&bytes::<3>(&gets, GRH_LEN), b"yyy");

    // Nothing arrives after the leave.
    s.qp.post_recv(3, received.sge(0..GRH_LEN + 6)).expect("post_recv");
    receiver.ok(&Call::Leave { id: s.id, group: group_key(1), addr: group() });
    c.qp.post_send(SendWr::send_to(4, says.sge(0..6), to)).expect("post_send_to");
    success(polled(&mut c.cq), 4, WcOpcode::SEND);
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(s.cq.poll(&mut [Completion::default()]), Ok(0));
}

/// Members on one device receive each other's messages and their own. A send-only member receives none.
pub(crate) fn received_by_all() {
    let mut side = [Side::new(), Side::new(), Side::new()];
    let members = [(CLIENT, false), (SERVER, false), (CLIENT, true)];
    let mut ends: Vec<_> = side
        .iter_mut()
        .zip(members)
        .map(|(side, (addr, send_only))| {
            let (end, to) = member(side, addr, send_only);
            let memory = register(&end, 0, Access::LOCAL_WRITE);
            (end, to, memory)
        })
        .collect();
    for sender in 0..ends.len() {
        for (end, _, memory) in &mut ends {
            end.qp.post_recv(1, memory.sge(0..GRH_LEN + 6)).expect("post_recv");
        }
        let (from, to, says) = &mut ends[sender];
        let ah = from.pd.create_ah(&to.path).expect("create_ah");
        let to = To { ah: &ah, qp_num: to.qp_num, qkey: to.qkey };
        from.qp.post_send(SendWr::send_to(2, says.sge(100..106), to)).expect("post_send_to");
        std::thread::sleep(Duration::from_millis(200));
        let record = ends.iter_mut().map(|(end, _, _)| {
            let mut done = [Completion::default(); 4];
            let count = end.cq.poll(&mut done).expect("poll");
            done[..count].iter().filter(|one| one.opcode == WcOpcode::RECV).count()
        });
        assert_eq!(record.collect::<Vec<_>>(), [1, 1, 0]);
    }
}

/// Counts the mapped queues of QPs and CQs. An object that the kernel did not destroy keeps its queues.
fn mappings() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("/proc");
    maps.lines().filter(|line| line.contains("uverbs") || line.contains("infiniband")).count()
}

/// The bytes that malloc has given out.
fn allocated() -> usize {
    // SAFETY: it only counts.
    unsafe { libc::mallinfo2() }.uordblks
}

/// librdmacm's records of a group are freed with the id.
pub(crate) fn no_records_are_left() {
    let mut side = Side::new();
    // One key for all, so that the table of ids does not grow.
    let (id, channel, addr) = (side.key(), side.channel, SocketAddr::from((SERVER, 0)));
    let mut grown = Vec::new();
    for _ in 0..3 {
        let before = allocated();
        for _ in 0..50 {
            side.ok(&Call::CreateId { id, channel, port_space: PortSpace::Udp });
            side.ok(&Call::Bind { id, addr });
            side.ok(&join(id, group_key(1), group()));
            joined(&mut side, id, group_key(1));
            side.ok(&Call::Destroy { id });
        }
        grown.push(allocated() as isize - before as isize);
    }
    println!("             bytes more after 50 ids each time: {grown:?}");
    assert!(grown.contains(&0), "{grown:?}");
}

pub(crate) fn nothing_is_left() {
    let before = mappings();
    for leave_handle in [false, true] {
        let mut side = Side::new();
        // The QP is destroyed, the id stays a member.
        let (end, _) = member(&mut side, SERVER, false);
        assert!(mappings() > before);
        side.ok(&join(end.id, group_key(2), SocketAddr::from((GROUP, 2))));
        joined(&mut side, end.id, group_key(2));
        let id = end.id;
        let End { qp, cq, .. } = end;
        drop(cq);
        let kept = leave_handle.then_some(qp);
        assert_eq!(side.device.destroy_qp(id), Ok(()));
        drop(kept);
        assert_eq!(mappings(), before);
        side.ok(&Call::Leave { id, group: group_key(1), addr: group() });

        // The id is destroyed with its membership.
        let (end, _) = member(&mut side, SERVER, false);
        side.ok(&join(end.id, group_key(3), SocketAddr::from((GROUP, 3))));
        side.ok(&Call::Destroy { id: end.id });
        side.quiet(100);
        drop(end);
        assert_eq!(mappings(), before);
        // The id is destroyed with its device.
        let _member = member(&mut side, SERVER, false);
        drop(side);
    }
    assert_eq!(mappings(), before);
}
