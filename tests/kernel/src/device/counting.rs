//! CQs in counting mode.

use cmid_proto::datapath::{DataPath, MemoryRegion, ProtectionDomain, QueuePair, SendWr, SrqCaps, WcOpcode, WcStatus};
use cmid_proto::memory::{Access, Error, RefuseReason};
use cmid_proto::{Attaching, Call, CmEvent, Errno};
use cmid_verbs::Mr;

use crate::data::{bytes, polled, register, returned, success};
use crate::env::{CAPS, End, Side, param};

/// A connection with CQs in counting mode at both ends.
pub(crate) fn connected() -> (Side, Side, End, End) {
    let (mut client, mut server) = (Side::new(), Side::new());
    let (_, addr) = server.listener();
    let id = client.resolved(addr);
    let c = end(&mut client, id);
    client.ok(&Call::Connect { id, param: param() });
    let id = server.expect(CmEvent::ConnectRequest).id;
    let s = end(&mut server, id);
    server.ok(&Call::Accept { id, param: param() });
    client.expect(CmEvent::Established);
    server.expect(CmEvent::Established);
    (client, server, c, s)
}

fn end(side: &mut Side, id: cmid_proto::IdKey) -> End {
    let nic = side.device.device_of(id).expect("device_of");
    let pd = side.device.alloc_pd_on(&nic).expect("alloc_pd");
    let cq = side.device.create_counting_cq_at(&nic, 64, 0).expect("create_counting_cq_at");
    let qp = side.device.create_qp(Attaching::bare(id), &pd, &cq, &cq, CAPS).expect("create_qp");
    End { id, pd, cq, qp }
}

/// Checks that a deregistration has to wait.
fn pinned(mr: Mr) -> Mr {
    let (mr, error) = mr.deregister().map(drop).expect_err("it is pinned");
    assert!(matches!(error, Error::Refused(refused) if refused.reason == RefuseReason::InFlight), "{error}");
    mr
}

/// Messages arrive with their numbers. A deregistration waits for what was posted before, whatever it names, and not
/// for what is posted later.
pub(crate) fn messages() {
    let (_client, mut server, mut c, mut s) = connected();
    let (from, to) = (register(&c, 1, Access::empty()), register(&s, 2, Access::LOCAL_WRITE));
    let bystander = register(&s, 3, Access::LOCAL_WRITE);
    s.qp.post_recv(7, to.sge(0..64)).expect("post_recv");
    s.qp.post_recv((1 << 62) - 1, to.sge(64..128)).expect("post_recv");
    let bystander = pinned(bystander);
    assert_eq!(s.qp.post_recv(8, bystander.sge(0..64)), Err(Errno::EINVAL), "its end has begun");
    let requests = [SendWr::send(5, from.sge(0..64)), SendWr::send(6, from.sge(0..64))];
    assert_eq!(c.qp.post_sends(requests), Ok(2));
    success(polled(&mut c.cq), 5, WcOpcode::SEND);
    success(polled(&mut c.cq), 6, WcOpcode::SEND);
    success(polled(&mut s.cq), 7, WcOpcode::RECV);
    let bystander = pinned(bystander);
    // Posted later.
    assert_eq!(s.qp.post_recvs([(9, to.sge(0..64)), (10, to.sge(0..64))]), Ok(2));
    success(polled(&mut s.cq), (1 << 62) - 1, WcOpcode::RECV);
    assert_eq!(returned(bystander)[0], 3);
    assert_eq!(bytes::<1>(&to, 64), [1]);
    let to = pinned(to);
    returned(from);

    // After a failure the opcode is not valid; `wr_id` and `qp_num` are. Both receives are flushed.
    server.ok(&Call::Disconnect { id: s.id });
    let flushed = [polled(&mut s.cq), polled(&mut s.cq)];
    assert_eq!(flushed.map(|done| (done.wr_id, done.status)), [9, 10].map(|wr_id| (wr_id, WcStatus::WR_FLUSH_ERR)));
    assert_eq!(returned(to)[0], 1);
}

/// What cannot be counted is refused.
pub(crate) fn refusals() {
    let (mut client, _server, mut c, _s) = connected();
    let mr = register(&c, 1, Access::LOCAL_WRITE);
    let wr = |wr_id| SendWr::send(wr_id, mr.sge(0..64));
    assert_eq!(c.qp.post_send(wr(1).unsignaled()), Err(Errno::EINVAL));
    assert_eq!(c.qp.post_sends([wr(1), wr(2).unsignaled()]).map_err(|error| error.errno), Err(Errno::EINVAL));
    for wr_id in [1 << 62, 1 << 63, u64::MAX] {
        assert_eq!(c.qp.post_send(wr(wr_id)), Err(Errno::EINVAL));
        assert_eq!(c.qp.post_recv(wr_id, mr.sge(0..64)), Err(Errno::EINVAL));
        assert_eq!(c.qp.post_recvs([(wr_id, mr.sge(0..64))]).map_err(|error| error.errno), Err(Errno::EINVAL));
    }
    for wr_id in 0..u64::from(CAPS.max_recv_wr) {
        c.qp.post_recv(wr_id, mr.sge(0..64)).expect("post_recv");
    }
    assert_eq!(c.qp.post_recv(99, mr.sge(0..64)), Err(Errno::ENOMEM), "full");
    let srq = c.pd.create_srq(SrqCaps { max_wr: 4, max_sge: 1 }).expect("create_srq");
    let id = client.bound(crate::env::CLIENT);
    let qp = client.device.create_qp_with_srq(Attaching::bare(id), &c.pd, &c.cq, &c.cq, &srq, CAPS);
    assert_eq!(qp.map(drop), Err(Errno::EINVAL));
    pinned(mr);
}
