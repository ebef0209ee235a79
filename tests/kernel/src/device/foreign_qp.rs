//! A QP that is created, moved and used outside of cmid, on a connection that cmid manages.

use std::time::{Duration, Instant};
use std::{mem, ptr};

use cmid_proto::datapath::{
    CompletionQueue, DataPath, MemoryRegion, ProtectionDomain, QpState, QueuePair, SendWr, WcOpcode,
};
use cmid_proto::{Call, CmEvent, ConnParam, Errno, IdKey};
use cmid_verbs::{Access, Backend, Completion, WcStatus};
use rdma_sys::{
    ibv_cq, ibv_create_cq, ibv_create_qp, ibv_destroy_cq, ibv_destroy_qp, ibv_modify_qp, ibv_qp, ibv_qp_init_attr,
    ibv_qp_type, ibv_recv_wr, ibv_send_flags, ibv_send_wr, ibv_sge, ibv_wc, ibv_wr_opcode,
};

use crate::data::{polled, success};
use crate::env::{Side, backend, param};

/// A QP and a CQ of the test's own.
struct Foreign {
    qp: *mut ibv_qp,
    cq: *mut ibv_cq,
}

impl Foreign {
    fn open(side: &mut Side, id: IdKey, pd: &cmid_verbs::Pd) -> Self {
        let nic = side.device.device_of(id).expect("device_of");
        // SAFETY: the context is open as long as `nic` or `pd` lives, and the CQ is destroyed before `pd`.
        let cq = unsafe { ibv_create_cq(nic.raw_context().as_ptr().cast(), 8, ptr::null_mut(), ptr::null_mut(), 0) };
        assert!(!cq.is_null());
        // SAFETY: zeros are a value of the attributes.
        let mut init: ibv_qp_init_attr = unsafe { mem::zeroed() };
        (init.send_cq, init.recv_cq, init.qp_type) = (cq, cq, ibv_qp_type::IBV_QPT_RC);
        (init.cap.max_send_wr, init.cap.max_recv_wr, init.cap.max_send_sge, init.cap.max_recv_sge) = (4, 4, 1, 1);
        // SAFETY: the PD is open, and the QP is destroyed before it; the attributes are read during the call.
        let qp = unsafe { ibv_create_qp(pd.raw_pd().as_ptr().cast(), &raw mut init) };
        assert!(!qp.is_null());
        Foreign { qp, cq }
    }

    fn num(&self) -> u32 {
        // SAFETY: the QP is alive.
        unsafe { (*self.qp).qp_num }
    }

    fn to(&self, side: &mut Side, id: IdKey, state: QpState) {
        let mut attr = side.device.qp_attr(id, state).expect("qp_attr");
        assert_eq!(attr.state(), state);
        // SAFETY: the QP is alive, and the attributes are of `struct ibv_qp_attr`, read during the call.
        let moved = unsafe { ibv_modify_qp(self.qp, attr.as_mut_ptr().cast(), attr.mask()) };
        assert_eq!(moved, 0, "to {state}");
    }

    fn post_recv(&self, mr: &cmid_verbs::Mr) {
        let mut sge = ibv_sge { addr: mr.addr(), length: 8, lkey: mr.lkey() };
        let mut request = ibv_recv_wr { wr_id: 7, next: ptr::null_mut(), sg_list: &raw mut sge, num_sge: 1 };
        let mut bad = ptr::null_mut();
        // SAFETY: the QP is alive, its operations do not change, and the request is copied during the call. The memory
        // lives until the completion is polled.
        let posted = unsafe {
            (*(*self.qp).context).ops.post_recv.expect("rxe has it")(self.qp, &raw mut request, &raw mut bad)
        };
        assert_eq!(posted, 0);
    }

    fn post_send(&self, mr: &cmid_verbs::Mr) {
        let mut sge = ibv_sge { addr: mr.addr() + 8, length: 8, lkey: mr.lkey() };
        // SAFETY: zeros are a value of the request.
        let mut request: ibv_send_wr = unsafe { mem::zeroed() };
        (request.wr_id, request.sg_list, request.num_sge) = (8, &raw mut sge, 1);
        (request.opcode, request.send_flags) = (ibv_wr_opcode::IBV_WR_SEND, ibv_send_flags::IBV_SEND_SIGNALED.0);
        let mut bad = ptr::null_mut();
        // SAFETY: as in `post_recv`.
        let posted = unsafe {
            (*(*self.qp).context).ops.post_send.expect("rxe has it")(self.qp, &raw mut request, &raw mut bad)
        };
        assert_eq!(posted, 0);
    }

    /// Returns the number and the status of the next completion.
    fn polled(&self) -> (u64, u32) {
        let deadline = Instant::now() + Duration::from_secs(5);
        // SAFETY: zeros are a value of a completion.
        let mut completion: ibv_wc = unsafe { mem::zeroed() };
        loop {
            // SAFETY: the CQ is alive, its operations do not change, and there is room for one completion.
            let polled =
                unsafe { (*(*self.cq).context).ops.poll_cq.expect("rxe has it")(self.cq, 1, &raw mut completion) };
            if polled == 1 {
                return (completion.wr_id, completion.status);
            }
            assert!(polled == 0 && Instant::now() < deadline, "no completion");
        }
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        // SAFETY: both were created by this test, and nothing else uses them.
        let destroyed = unsafe { (ibv_destroy_qp(self.qp), ibv_destroy_cq(self.cq)) };
        assert_eq!(destroyed, (0, 0));
    }
}

/// The client's QP is the test's own, the server's is cmid's.
pub(crate) fn connected() {
    let (mut client, mut server) = (Side::new(), Side::new());
    let (_, addr) = server.listener();
    let id = client.resolved(addr);
    let pd = client.device.alloc_pd(id).expect("alloc_pd");
    let mr = pd.register((0..16).collect::<Vec<_>>(), Access::LOCAL_WRITE).expect("register");
    let foreign = Foreign::open(&mut client, id, &pd);
    assert_eq!(client.device.qp_attr(id, QpState::ERR).map(drop), Err(Errno::EINVAL));
    assert_eq!(client.device.qp_attr(crate::env::id_key(99, 1), QpState::INIT).map(drop), Err(Errno::ENOENT));
    foreign.to(&mut client, id, QpState::INIT);
    foreign.post_recv(&mr);
    client.ok(&Call::Connect { id, param: ConnParam { qp_num: foreign.num(), ..param() } });
    let request = server.expect(CmEvent::ConnectRequest);
    let mut end = server.end(request.id);
    let memory = end.pd.register(vec![0; 16], Access::LOCAL_WRITE).expect("register");
    end.qp.post_recv(1, memory.sge(0..8)).expect("post_recv");
    server.ok(&Call::Accept { id: end.id, param: param() });
    client.expect(CmEvent::ConnectResponse);
    foreign.to(&mut client, id, QpState::RTR);
    foreign.to(&mut client, id, QpState::RTS);
    client.ok(&Call::Establish { id });
    server.expect(CmEvent::Established);
    foreign.post_send(&mr);
    assert_eq!(foreign.polled(), (8, WcStatus::SUCCESS.0));
    let arrived: Completion = success(polled(&mut end.cq), 1, WcOpcode::RECV);
    assert_eq!((arrived.byte_len, arrived.qp_num), (8, end.qp.num()));
    let mut bytes = [0; 8];
    memory.read(0, &mut bytes).expect("read");
    assert_eq!(bytes, [8, 9, 10, 11, 12, 13, 14, 15]);
    end.qp.post_send(SendWr::send(2, memory.sge(0..8))).expect("post_send");
    assert_eq!(foreign.polled(), (7, WcStatus::SUCCESS.0));
    success(polled(&mut end.cq), 2, WcOpcode::SEND);
    mr.read(0, &mut bytes).expect("read");
    assert_eq!(bytes, [8, 9, 10, 11, 12, 13, 14, 15]);
    assert_eq!(end.cq.poll_one().expect("poll").map(|done| done.wr_id), None);
    // SAFETY: nothing is done with the pointers but to look at their presence and at one field.
    unsafe {
        let qp: *mut ibv_qp = end.qp.raw_qp().as_ptr().cast();
        assert_eq!((*qp).qp_num, end.qp.num());
        assert_eq!((*qp).send_cq, end.cq.raw_cq().as_ptr().cast());
        assert!(memory.raw_mr().is_some());
        let has_id = client.device.raw_id(id).map(drop);
        assert_eq!(has_id, if backend() == Backend::Kernel { Err(Errno::ENOSYS) } else { Ok(()) });
    }
    client.ok(&Call::Disconnect { id });
    server.expect(CmEvent::Disconnected);
    drop(foreign);
}
