//! The drain of a QP: success, timeout, cancel, and a CQ on a shared channel.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::thread;
use std::time::{Duration, Instant};

use cmid_blocking::{Connection, Error, Listener};
use cmid_proto::Errno;
use cmid_proto::datapath::{
    Access, Attaching, Caps, CreateError, DrainError, QpState, SendWr, Unpolled, WcStatus, prelude::*,
};
use cmid_sim::{Cq, Host, Mr, Qp, SimDevice};

use common::{A_WHILE, SOON, host, patient, server};

/// The parts of a side: its QP with a CQ of sends and one of receives, and memory.
struct Parts {
    qp: Qp,
    send_cq: Cq,
    recv_cq: Cq,
    mr: Mr,
}

fn parts(shared: bool) -> impl FnOnce(&mut SimDevice, Attaching<'_>) -> Result<Parts, CreateError> {
    move |device, attaching| {
        let nic = device.device_of(attaching.id())?;
        let pd = device.alloc_pd_on(&nic)?;
        let [send_cq, recv_cq] = if shared {
            let channel = device.create_comp_channel(&nic)?;
            [device.create_cq_at(&nic, Some(&channel), 8, 0)?, device.create_cq_at(&nic, Some(&channel), 8, 0)?]
        } else {
            [device.create_cq_on(&nic, 8)?, device.create_cq_on(&nic, 8)?]
        };
        let caps = Caps { max_send_wr: 2, max_recv_wr: 4, ..Caps::default() };
        let qp = device.create_qp(attaching, &pd, &send_cq, &recv_cq, caps)?;
        let mr = pd.register(vec![0; 8], Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
        Ok(Parts { qp, send_cq, recv_cq, mr })
    }
}

type End = (Connection<SimDevice>, Parts);

fn connected(host: &Host, shared: bool) -> (End, End) {
    let mut listener = Listener::bind(host.device(), server()).unwrap();
    let passive = thread::spawn(move || listener.accept(SOON).unwrap().accept(&patient(), parts(shared)).unwrap());
    let active = Connection::connect(host.device(), server(), &patient(), parts(shared)).unwrap();
    (active, passive.join().unwrap())
}

#[test]
fn everything_is_polled_after_a_disconnect_and_the_memory_is_free() {
    for shared in [false, true] {
        let ((mut connection, Parts { mut qp, mut send_cq, mut recv_cq, mr }), (mut peer, peer_parts)) =
            connected(&host(), shared);
        qp.post_recvs((0..3).map(|n| (n, mr.sge(0..8)))).unwrap();
        qp.post_send(SendWr::write(9, mr.sge(0..8), peer_parts.mr.remote(0)).unsignaled()).unwrap();
        let mut cqs = [&mut send_cq, &mut recv_cq];
        let early = connection.drain(&mut qp, &mut cqs, SOON, |_| ()).unwrap_err();
        assert!(matches!(early, Error::Drain(DrainError::NotEnded(QpState::RTS))), "{early}");
        let other = thread::spawn(move || {
            peer.wait_closed(SOON).unwrap();
            peer.disconnect(SOON).unwrap();
            peer_parts
        });
        connection.disconnect(SOON).unwrap();
        let mut flushed = 0;
        let begun = Instant::now();
        let drained = connection.drain(&mut qp, &mut cqs, SOON, |completion| {
            flushed += usize::from(completion.opcode.is_recv() && completion.status == WcStatus::WR_FLUSH_ERR);
        });
        drained.unwrap();
        assert_eq!((flushed, qp.unpolled()), (3, Unpolled::default()));
        assert!(begun.elapsed() < SOON);
        mr.deregister().unwrap();
        drop(other.join().unwrap());
    }
}

/// The queue is full of unsignaled requests, so there is no room for a last one.
fn stuck(host: &Host, shared: bool) -> (End, End) {
    let (mut active, passive) = connected(host, shared);
    for n in 0..2 {
        let write = SendWr::write(n, active.1.mr.sge(0..8), passive.1.mr.remote(0)).unsignaled();
        active.1.qp.post_send(write).unwrap();
    }
    // Until both are executed.
    thread::sleep(A_WHILE);
    let _no_answer = active.0.disconnect(Duration::from_millis(1));
    (active, passive)
}

#[test]
fn a_drain_times_out_with_what_is_left_and_not_before() {
    for shared in [false, true] {
        let ((mut connection, mut parts), _peer) = stuck(&host(), shared);
        let begun = Instant::now();
        let mut cqs = [&mut parts.send_cq, &mut parts.recv_cq];
        let error = connection.drain(&mut parts.qp, &mut cqs, A_WHILE, |_| ()).unwrap_err();
        assert_eq!(error.errno(), Errno::ETIMEDOUT);
        let left = Unpolled { sends: 2, receives: 0 };
        assert!(matches!(error, Error::Drain(DrainError::TimedOut(found)) if found == left), "{error}");
        assert!((A_WHILE..SOON).contains(&begun.elapsed()));
    }
}

#[test]
fn a_cancel_ends_a_drain() {
    let ((mut connection, mut parts), _peer) = stuck(&host(), false);
    let canceller = connection.canceller();
    let cancel = thread::spawn(move || {
        thread::sleep(A_WHILE);
        canceller.cancel();
    });
    let mut cqs = [&mut parts.send_cq, &mut parts.recv_cq];
    let error = connection.drain(&mut parts.qp, &mut cqs, SOON, |_| ()).unwrap_err();
    assert!(matches!(error, Error::Cancelled { during: "drain" }), "{error}");
    cancel.join().unwrap();
}
