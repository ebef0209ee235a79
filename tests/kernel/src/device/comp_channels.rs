//! Completion channels that CQs share, on soft-RoCE.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cmid_proto::datapath::{Attaching, Completion, SendWr, WcOpcode, WcStatus, prelude::*};
use cmid_proto::memory::Access;
use cmid_proto::{Call, CmEvent, Errno};

use libc::c_int;

use crate::data::{polled, register, success};
use crate::env::{CAPS, Pair, readable};

/// A CQ is dropped while another thread takes the notifications of its channel: the drop waits at most for an ack.
pub(crate) fn threads() {
    let Pair { mut client, mut server, listener: _listener, addr, mut s, c: _first } = Pair::connected();
    let id = client.resolved(addr);
    let nic = client.device.device_of(id).expect("device_of");
    let channel = client.device.create_comp_channel(&nic).expect("create_comp_channel");
    let pd = client.device.alloc_pd(id).expect("alloc_pd");
    let (taking, other) = (AtomicBool::new(true), channel.clone());
    let taken = thread::scope(|scope| {
        let taker = scope.spawn(|| {
            let mut taken = Vec::new();
            while taking.load(Ordering::Relaxed) {
                taken.extend(other.next_notification().expect("next_notification"));
            }
            taken
        });
        let mut numbers = Vec::new();
        for round in 0..20 {
            let id = if round == 0 { id } else { client.resolved(addr) };
            let cq = client.device.create_cq_at(&nic, Some(&channel), 64, 0).expect("create_cq");
            let qp = client.device.create_qp(Attaching::bare(id), &pd, &cq, &cq, CAPS).expect("create_qp");
            numbers.push(cq.num());
            let mut c = crate::env::End { id, pd: pd.clone(), cq, qp };
            client.ok(&Call::Connect { id, param: crate::env::param() });
            let request = server.expect(CmEvent::ConnectRequest);
            let far = server.end(request.id);
            server.ok(&Call::Accept { id: far.id, param: crate::env::param() });
            client.expect(CmEvent::Established);
            server.expect(CmEvent::Established);
            let memory = c.pd.register(vec![round; 8], Access::LOCAL_WRITE).expect("register");
            let target = far.pd.register(vec![0; 8], Access::LOCAL_WRITE | Access::REMOTE_WRITE).expect("register");
            c.cq.arm().expect("arm");
            c.qp.post_send(SendWr::write(1, memory.sge(0..8), target.remote(0))).expect("post_send");
            success(polled(&mut c.cq), 1, WcOpcode::RDMA_WRITE);
            // Its notification is taken now or goes with it.
            client.device.destroy_qp(id).expect("destroy_qp");
            drop((c.qp, c.cq));
        }
        taking.store(false, Ordering::Relaxed);
        let taken = taker.join().expect("the other thread");
        assert!(taken.iter().all(|number| numbers.contains(number)), "{taken:?} of {numbers:?}");
        taken.len()
    });
    assert!(taken <= 20, "{taken} notifications");
    assert_eq!(channel.next_notification(), Ok(None));
    // The first connection is as before.
    assert_eq!(s.cq.poll_one(), Ok(None));
}

/// A wait in a read of the channel ends with a completion, a signal and a flush, and does not begin if nothing is in flight.
pub(crate) fn waits() {
    let Pair { client: _client, mut server, mut s, mut c, .. } = Pair::connected();
    let (from, to) = (register(&c, 7, Access::empty()), register(&s, 0, Access::LOCAL_WRITE));
    let mut some = [Completion::default(); 4];
    assert_eq!(s.cq.wait(&mut some), Ok(0), "nothing is in flight");
    for wr_id in 1..=3 {
        s.qp.post_recv(wr_id, to.sge(0..8)).expect("post_recv");
    }
    assert_eq!(s.cq.wait(&mut []), Ok(0), "no room");
    extern "C" fn nothing(_: c_int) {}
    // SAFETY: the handler does nothing, and all zeros are an action without flags: a signal interrupts a read.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(c_int) as usize;
        assert_eq!(libc::sigaction(libc::SIGALRM, &raw const action, std::ptr::null_mut()), 0);
        libc::alarm(1);
    }
    assert_eq!(s.cq.wait(&mut some), Err(Errno::EINTR));
    let mut send = |wr_id| c.qp.post_send(SendWr::send(wr_id, from.sge(0..8))).expect("post_send");
    // One of an arm that no wait has made, and whose notification is taken: the next wait arms again.
    send(1);
    success(polled(&mut s.cq), 1, WcOpcode::RECV);
    assert!(readable(s.cq.fd(), Instant::now() + Duration::from_secs(10)));
    assert_eq!([(); 2].map(|()| s.cq.take_notifications()), [Ok(1), Ok(0)], "the second one does not wait");
    let mut wait_during = |act: &mut (dyn FnMut() + Send)| {
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(50));
                act();
            });
            assert_eq!(s.cq.wait(&mut some), Ok(1));
        });
        some[0]
    };
    success(wait_during(&mut || send(2)), 2, WcOpcode::RECV);
    let flushed = wait_during(&mut || server.ok(&Call::Disconnect { id: s.id }));
    assert_eq!((flushed.wr_id, flushed.status), (3, WcStatus::WR_FLUSH_ERR));
    assert_eq!(s.cq.wait(&mut some), Ok(0), "nothing is in flight any more");
}
