//! Sends that are repeated: to a QP that is gone, where no packet is answered, and to one without a receive.

use std::time::{Duration, Instant};

use cmid_proto::datapath::{QpAttrs, QpState, RnrTimer, SendWr, WcStatus, prelude::*};
use cmid_proto::memory::Access;
use cmid_proto::{Call, CmOption, ConnParam, PortSpace};

use crate::env::{Side, answered, param, readable};

/// About 67 ms, the exponent of 4.096 us. Without it, Linux 6.1 waits 2.1 s for each answer.
const ACK_TIMEOUT: CmOption = CmOption::AckTimeout(14);

/// Soft-RoCE counts every `retry_count` but 7, with which it never gives up (hazard P48).
pub(crate) fn without_limit() {
    let (mut client, mut server) = (Side::new(), Side::new());
    let (_listener, addr) = server.listener();
    let mut connected = |retry_count| {
        let id = client.id_in(PortSpace::Tcp);
        client.ok(&Call::SetOption { id, option: ACK_TIMEOUT });
        client.resolve(id, addr);
        let (c, s) = answered(&mut client, &mut server, id, ConnParam { retry_count, ..param() });
        server.device.destroy_qp(s.id).expect("destroy_qp");
        drop(s.qp);
        c
    };
    let mut ends = [6, 7].map(&mut connected);
    let memory = ends.each_ref().map(|end| end.pd.register(vec![0; 8], Access::LOCAL_WRITE).expect("register"));
    for (end, memory) in ends.iter_mut().zip(&memory) {
        end.cq.arm().expect("arm");
        end.qp.post_send(SendWr::send(1, memory.sge(0..8))).expect("post_send");
    }
    let begun = Instant::now();
    let [six, seven] = &mut ends;
    assert!(readable(six.cq.fd(), begun + Duration::from_secs(30)), "no completion");
    let failed = six.cq.poll_one().expect("poll").expect("a completion");
    assert_eq!((failed.wr_id, failed.status), (1, WcStatus::RETRY_EXC_ERR));
    // Ten times as long, for an emulated machine at least 5 s.
    let long = (begun.elapsed() * 10).max(Duration::from_secs(5));
    assert!(!readable(seven.cq.fd(), begun + long), "it has ended");
    assert_eq!(seven.qp.state(), Ok(QpState::RTS));
}

/// The ACK timeout passes while a sender waits to repeat a message that has found no receive, and counts as a retry (hazard
/// P108). With a shorter wait than the timeout it does not pass on Linux 6.12.
pub(crate) fn for_a_receive() {
    let brief = RnrTimer::at_least(Duration::from_millis(30));
    let (mut client, mut server) = (Side::new(), Side::new());
    let (_listener, addr) = server.listener();
    let mut ends = [None, Some(brief)].map(|min_rnr_timer| {
        let id = client.resolved(addr);
        let param = ConnParam { retry_count: 1, rnr_retry_count: 7, ..param() };
        let (c, mut s) = answered(&mut client, &mut server, id, param);
        s.qp.modify(QpAttrs { min_rnr_timer, ..QpAttrs::default() }).expect("modify");
        (c, s)
    });
    let memory = ends.each_ref().map(|(c, _)| c.pd.register(vec![0; 8], Access::LOCAL_WRITE).expect("register"));
    for ((c, _), memory) in ends.iter_mut().zip(&memory) {
        c.cq.arm().expect("arm");
        c.qp.post_send(SendWr::send(1, memory.sge(0..8))).expect("post_send");
    }
    let begun = Instant::now();
    let [(long, _), (short, s)] = &mut ends;
    // 655 + 537 ms, or 4 * 655 + 2147 ms on Linux 6.1, and the timers' own grain.
    assert!(readable(long.cq.fd(), begun + Duration::from_secs(20)), "no completion");
    let failed = long.cq.poll_one().expect("poll").expect("a completion");
    assert_eq!((failed.wr_id, failed.status), (1, WcStatus::RETRY_EXC_ERR));
    if crate::srq::is_6_1() {
        return;
    }
    assert!(!readable(short.cq.fd(), begun + Duration::from_secs(10)), "it has ended");
    let into = s.pd.register(vec![0; 8], Access::LOCAL_WRITE).expect("register");
    s.qp.post_recv(2, into.sge(0..8)).expect("post_recv");
    assert_eq!(crate::data::polled(&mut short.cq).status, WcStatus::SUCCESS);
}
