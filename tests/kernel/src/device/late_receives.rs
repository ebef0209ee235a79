//! Receives that are posted after their QP has entered its error state.

use std::thread;
use std::time::{Duration, Instant};

use cmid_proto::datapath::{QpState, SendWr, WcStatus, prelude::*};
use cmid_proto::memory::Access;
use cmid_proto::{Call, Errno, ErrorWith};
use cmid_verbs::{Completion, Cq};

use crate::env::Pair;

fn within(cq: &mut Cq, at_most: Duration) -> Option<Completion> {
    let deadline = Instant::now() + at_most;
    loop {
        if let Some(done) = cq.poll_one().expect("poll") {
            return Some(done);
        }
        if Instant::now() >= deadline {
            return None;
        }
        thread::yield_now();
    }
}

/// The library posts receives without a system call, and soft-RoCE looks at its receive queue only when something else
/// gives it a reason: on Linux 6.12 a request of the send queue, on Linux 6.1 not even that. So a late receive may
/// never complete. It pins its memory until the QP is destroyed and its CQ is polled empty.
pub(crate) fn not_flushed() {
    const QUIET: Duration = Duration::from_millis(300);
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("the kernel's release");
    let Pair { client: _client, mut server, mut s, c: _c, .. } = Pair::connected();
    let memory = s.pd.register(vec![0; 8], Access::LOCAL_WRITE).expect("register");
    s.qp.post_recv(1, memory.sge(0..8)).expect("post_recv");
    server.ok(&Call::Disconnect { id: s.id });
    assert_eq!(s.qp.state(), Ok(QpState::ERR));
    let flushed = |done: Option<Completion>| done.map(|done| (done.wr_id, done.status));
    let early = within(&mut s.cq, Duration::from_secs(5));
    assert_eq!(flushed(early), Some((1, WcStatus::WR_FLUSH_ERR)));
    thread::sleep(QUIET);
    s.qp.post_recv(2, memory.sge(0..8)).expect("post_recv");
    assert_eq!(flushed(within(&mut s.cq, QUIET)), None);
    s.qp.post_send(SendWr::send(3, memory.sge(0..8))).expect("post_send");
    let send = within(&mut s.cq, Duration::from_secs(5));
    assert_eq!(flushed(send), Some((3, WcStatus::WR_FLUSH_ERR)));
    let expected = (!release.starts_with("6.1.")).then_some((2, WcStatus::WR_FLUSH_ERR));
    assert_eq!(flushed(within(&mut s.cq, QUIET)), expected, "{release}");
    s.qp.post_recv(4, memory.sge(0..8)).expect("post_recv");
    assert_eq!(flushed(within(&mut s.cq, QUIET)), None);
    let ErrorWith { given: memory, error } = memory.deregister().expect_err("it is pinned");
    assert_eq!(error.errno(), Errno::EBUSY);
    server.device.destroy_qp(s.id).expect("destroy_qp");
    drop(s.qp);
    assert_eq!(s.cq.poll_one(), Ok(None));
    memory.deregister().expect("its QP is gone, and the CQ is empty");
}
