//! Waits for completions: those that come, the deadline, a cancel, and the end of the connection.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::thread;
use std::time::{Duration, Instant};

use cmid_blocking::{Connection, Error, Listener};
use cmid_proto::datapath::{
    Access, Attaching, Completion, CreateError, QpParts, SendWr, SrqCaps, WcStatus, prelude::*,
};
use cmid_proto::{Errno, State};
use cmid_sim::{Host, Mr, SimDevice, Srq};

use common::{A_WHILE, FOR_EVER, SOON, host, listening, patient, server};

/// A side: its QP has one receive.
type Side = (Connection<SimDevice>, (QpParts<SimDevice>, Mr));

fn attach(device: &mut SimDevice, to: Attaching<'_>) -> Result<(QpParts<SimDevice>, Mr), CreateError> {
    let mut made = device.qp(to).attach()?;
    let mr = made.pd.register(b"hello".to_vec(), Access::LOCAL_WRITE)?;
    made.qp.post_recv(1, mr.sge(0..5))?;
    Ok((made, mr))
}

fn connected(host: &Host) -> (Side, Side) {
    let mut listener = Listener::bind(host.device(), server()).unwrap();
    let passive = thread::spawn(move || listener.accept(SOON).unwrap().accept(&patient(), attach).unwrap());
    let active = Connection::connect(host.device(), server(), &patient(), attach).unwrap();
    (active, passive.join().unwrap())
}

#[test]
fn completions_come_during_a_wait_and_before_it_and_the_end_is_0() {
    let ((mut client, (mut active, sent)), (mut connection, (mut passive, mr))) = connected(&host());
    let mut some = [Completion::default(); 4];
    let begun = Instant::now();
    let early = connection.next_completions(&mut passive.cq, &mut some, A_WHILE).unwrap_err();
    assert!(matches!(early, Error::TimedOut { during: "next_completions" }) && begun.elapsed() >= A_WHILE, "{early}");
    let peer = thread::spawn(move || {
        thread::sleep(A_WHILE);
        active.qp.post_send(SendWr::send(2, sent.sge(0..5))).unwrap();
        assert_eq!(client.next_completions(&mut active.cq, &mut [Completion::default()], SOON).unwrap(), 1);
        client.disconnect(SOON).unwrap();
        client
    });
    assert_eq!(connection.next_completions(&mut passive.cq, &mut some, SOON).unwrap(), 1);
    assert_eq!((some[0].wr_id, some[0].status), (1, WcStatus::SUCCESS));
    passive.qp.post_recv(3, mr.sge(0..5)).unwrap();
    // The peer's end causes no completion, and ends the wait.
    assert_eq!(connection.next_completions(&mut passive.cq, &mut some, SOON).unwrap(), 0);
    assert_eq!(connection.state(), State::PeerClosed);
    connection.disconnect(SOON).unwrap();
    let mut flushed = Vec::new();
    connection.drain(&mut passive.qp, &mut [&mut passive.cq], SOON, |completion| flushed.push(completion)).unwrap();
    assert_eq!(flushed.iter().find(|it| it.wr_id == 3).map(|it| it.status), Some(WcStatus::WR_FLUSH_ERR));
    assert_eq!(connection.next_completions(&mut passive.cq, &mut some, Duration::ZERO).unwrap(), 0);
    assert_eq!(peer.join().unwrap().state(), State::TimeWait);
}

#[test]
fn a_wait_is_cancelled_and_a_cq_of_a_shared_channel_is_refused() {
    let ((mut connection, (mut made, _mr)), _peer) = connected(&host());
    let canceller = connection.canceller();
    let thread = thread::spawn(move || {
        thread::sleep(A_WHILE);
        canceller.cancel();
    });
    let mut some = [Completion::default()];
    let error = connection.next_completions(&mut made.cq, &mut some, FOR_EVER).unwrap_err();
    assert!(matches!(error, Error::Cancelled { .. }), "{error}");
    thread.join().unwrap();
    let (id, driver) = connection.parts();
    let device = driver.drive().device_mut();
    let nic = device.device_of(id).unwrap();
    let channel = device.create_comp_channel(&nic).unwrap();
    let mut shared = device.create_cq_at(&nic, Some(&channel), 8, 0).unwrap();
    let error = connection.next_completions(&mut shared, &mut some, SOON).unwrap_err();
    assert_eq!((error.errno(), shared.wait(&mut some)), (Errno::EINVAL, Err(Errno::EINVAL)));
}

/// As docs/data-path.md says: a disconnect of the thread with the driver ends a wait of another thread.
#[test]
fn a_thread_waits_for_a_cq_alone_until_the_connection_is_disconnected() {
    let ((mut client, (mut active, sent)), (mut connection, (mut passive, mr))) = connected(&host());
    passive.qp.post_recv(2, mr.sge(0..5)).unwrap();
    let waits = thread::spawn(move || {
        let mut some = [Completion::default()];
        assert_eq!(passive.cq.wait(&mut []), Ok(0), "no room");
        let ends = [(); 2].map(|()| (passive.cq.wait(&mut some), some[0].wr_id, some[0].status));
        assert_eq!(ends, [(Ok(1), 1, WcStatus::SUCCESS), (Ok(1), 2, WcStatus::WR_FLUSH_ERR)]);
        assert_eq!(passive.cq.wait(&mut some), Ok(0), "nothing is in flight any more");
    });
    thread::sleep(A_WHILE);
    active.qp.post_send(SendWr::send(3, sent.sge(0..5))).unwrap();
    assert_eq!(active.cq.wait(&mut [Completion::default()]), Ok(1));
    thread::sleep(A_WHILE);
    client.disconnect(A_WHILE).unwrap_err();
    // The peer's end alone does not.
    connection.wait_closed(SOON).unwrap();
    assert!(!waits.is_finished());
    connection.disconnect(SOON).unwrap();
    waits.join().unwrap();
}

/// The receives are those of an SRQ: none is of its QP. A send behind the disconnect ends the wait.
#[test]
fn a_thread_waits_for_a_cq_whose_qp_takes_the_receives_of_an_srq() {
    let shared = |device: &mut SimDevice, to: Attaching<'_>| -> Result<(QpParts<SimDevice>, Srq, Mr), CreateError> {
        let pd = device.alloc_pd(to.id())?;
        let mut srq = pd.create_srq(SrqCaps { max_wr: 2, max_sge: 1 })?;
        let made = device.qp(to).pd(&pd).srq(&srq).attach()?;
        let mr = pd.register(vec![0; 5], Access::LOCAL_WRITE)?;
        (1..3).try_for_each(|wr_id| srq.post_recv(wr_id, mr.sge(0..5))).map_err(|error| error.errno())?;
        Ok((made, srq, mr))
    };
    let (host, mut listener) = listening();
    let passive = thread::spawn(move || listener.accept(SOON).unwrap().accept(&patient(), shared).unwrap());
    let (mut client, (mut active, sent)) = Connection::connect(host.device(), server(), &patient(), attach).unwrap();
    let (mut connection, (mut passive, _srq, mr)) = passive.join().unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let mut one = [Completion::default()];
            [(); 2].map(|()| (passive.cq.wait(&mut one), one[0].wr_id, one[0].status))
        });
        thread::sleep(A_WHILE);
        active.qp.post_send(SendWr::send(3, sent.sge(0..5))).unwrap();
        assert_eq!(active.cq.wait(&mut [Completion::default()]), Ok(1));
        client.disconnect(A_WHILE).unwrap_err();
        connection.disconnect(SOON).unwrap();
        thread::sleep(A_WHILE);
        assert!(!waits.is_finished());
        passive.qp.post_send(SendWr::send(4, mr.sge(0..5))).unwrap();
        let ends = waits.join().unwrap();
        assert_eq!(ends, [(Ok(1), 1, WcStatus::SUCCESS), (Ok(1), 4, WcStatus::WR_FLUSH_ERR)]);
    });
    drop((connection, passive.qp));
    assert_eq!(passive.cq.wait(&mut [Completion::default()]), Ok(0), "no QP takes the other receive");
}

/// As docs/data-path.md says: siblings share a PD.
#[test]
fn two_connections_of_sibling_devices_share_a_pd() {
    let (host, mut listener) = listening();
    let passive = thread::spawn(move || {
        [(); 2].map(|()| listener.accept(SOON).unwrap().accept(&patient(), QpParts::attach).unwrap())
    });
    let first = host.device();
    let second = first.sibling();
    let (_a, made) = Connection::connect(first, server(), &patient(), QpParts::attach).unwrap();
    let pd = made.pd.clone();
    let (_b, _other) =
        Connection::connect(second, server(), &patient(), |device, to| device.qp(to).pd(&pd).attach()).unwrap();
    assert_eq!(pd.users(), 2, "both QPs");
    passive.join().unwrap();
}
