//! Every end of a wait: success, timeout, cancellation, device removal; and the requests that are legal afterwards.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::os::fd::BorrowedFd;
use std::thread;
use std::time::{Duration, Instant};

use cmid_blocking::{Canceller, Connection, Error, Listener, Options, Ready};
use cmid_proto::datapath::Attaching;
use cmid_proto::datapath::{Access, Caps, CreateError, WcStatus, prelude::*};
use cmid_proto::{CmEvent, Errno, Pollable, State};
use cmid_sim::{Cq, Host, Mr, Qp, SimDevice};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use common::{A_WHILE, FOR_EVER, SOON, Silent, connected, host, incoming, listening, patient, qp, server};

#[track_caller]
fn timed_out<T>(result: Result<T, Error>, expected: &str) {
    match result {
        Err(error @ Error::TimedOut { during }) => {
            assert_eq!((during, error.errno()), (expected, Errno::ETIMEDOUT));
        }
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("{expected} succeeded"),
    }
}

/// Runs a wait on this thread; another thread cancels it after a while.
fn cancelled<T>(canceller: &Canceller, wait: impl FnOnce() -> Result<T, Error>) -> Error {
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(A_WHILE);
            canceller.cancel();
        });
        wait().err().expect("it was cancelled")
    })
}

#[test]
fn waits_for_events_take_as_long_as_they_may_and_no_longer() {
    let ((mut active, _qp), (mut passive, _other_qp)) = connected(&host());
    let begun = Instant::now();
    timed_out(active.next_event(A_WHILE), "next_event");
    timed_out(active.wait_for(None, A_WHILE), "wait_for");
    timed_out(active.wait_closed(A_WHILE), "wait_closed");
    assert!(begun.elapsed() >= 3 * A_WHILE);
    // The peer does not reply: the kernel leaves the reply to the application.
    timed_out(active.disconnect(Duration::from_secs(2)), "disconnect");
    assert_eq!(active.state(), State::TimeWait);
    passive.wait_closed(SOON).unwrap();
    passive.wait_closed(Duration::ZERO).unwrap();
    passive.disconnect(SOON).unwrap();
}

#[test]
fn no_time_is_enough_to_tell_the_peer() {
    for teardown in [false, true] {
        let ((mut active, _qp), (mut passive, _other_qp)) = connected(&host());
        if teardown {
            timed_out(active.teardown(Duration::ZERO), "teardown");
        } else {
            timed_out(active.disconnect(Duration::ZERO), "disconnect");
        }
        passive.wait_closed(SOON).unwrap();
    }
}

#[test]
fn an_accept_that_took_too_long_loses_no_request() {
    let (host, mut listener) = listening();
    timed_out(listener.accept(Duration::ZERO), "accept");
    timed_out(listener.accept(A_WHILE), "accept");
    let _clients = [Silent::connecting(&host), Silent::connecting(&host)];
    let ports: Vec<_> = [(); 2].map(|()| listener.accept(SOON).unwrap().peer_addr().unwrap().port()).into();
    assert_ne!(ports[0], ports[1]);
    timed_out(listener.accept(A_WHILE), "accept");
}

#[test]
fn the_peer_s_confirmation_may_not_come() {
    let (_client, incoming) = incoming(&host());
    timed_out(incoming.accept(&Options { timeout: A_WHILE, ..Options::default() }, qp), "accept");
}

#[test]
fn the_peer_s_answer_may_not_come() {
    let (host, mut listener) = listening();
    // The kernel's own limit is a quarter of an hour.
    let options = Options { timeout: Duration::from_secs(3), ..Options::default() };
    timed_out(Connection::connect(host.device(), server(), &options, qp), "connect");
    // A time limit that passes before a step starts gives the same error.
    let options = Options { timeout: Duration::ZERO, ..Options::default() };
    timed_out(Connection::connect(host.device(), server(), &options, qp), "resolve_addr");
    drop(listener.accept(SOON).unwrap());
    timed_out(listener.accept(A_WHILE), "accept");
}

#[test]
fn a_wait_without_time_takes_what_is_in_the_kernel() {
    let ((mut active, _qp), (mut passive, _other_qp)) = connected(&host());
    timed_out(passive.next_event(Duration::ZERO), "next_event");
    timed_out(active.disconnect(Duration::from_secs(2)), "disconnect");
    // The event is readable, but not read.
    let (id, driver) = passive.parts();
    let home = driver.drive().core().channel(id).unwrap();
    let mut fds = [PollFd::from_borrowed_fd(driver.drive().device().fd(home).unwrap(), PollFlags::IN)];
    let soon = Timespec { tv_sec: SOON.as_secs() as i64, tv_nsec: 0 };
    assert_eq!(poll(&mut fds, Some(&soon)).unwrap(), 1);
    assert_eq!(passive.next_event(Duration::ZERO).unwrap().cm(), Some(CmEvent::Disconnected));
}

#[test]
fn a_descriptor_of_the_user_s_own_ends_a_wait() {
    let ((mut active, _qp), _passive) = connected(&host());
    let own = Canceller::new().unwrap();
    own.cancel();
    let fd: BorrowedFd<'_> = std::os::fd::AsFd::as_fd(&own);
    assert!(matches!(active.wait_for(Some(fd), SOON).unwrap(), Ready::Descriptor));
}

#[test]
fn a_listener_is_cancelled_and_goes_on_with_another_canceller() {
    let (host, mut listener) = listening();
    let canceller = listener.canceller();
    let error = cancelled(&canceller, || listener.accept(FOR_EVER));
    assert!(matches!(error, Error::Cancelled { during: "accept" }), "{error}");
    assert!(matches!(listener.accept(FOR_EVER), Err(Error::Cancelled { .. })), "for good");
    let _client = Silent::connecting(&host);
    listener.set_canceller(Canceller::new().unwrap());
    listener.accept(SOON).unwrap();
}

#[test]
fn a_connect_is_cancelled() {
    let (host, mut listener) = listening();
    let canceller = Canceller::new().unwrap();
    let options = Options { timeout: FOR_EVER, ..Options::default() };
    let (device, of_connect) = (host.device(), Some(canceller.clone()));
    thread::scope(|scope| {
        let connecting =
            scope.spawn(move || Connection::observed(device, (), of_connect, server(), &options, qp).map(drop));
        // After the request has arrived, the client waits for the reply.
        let _unanswered = listener.accept(SOON).unwrap();
        canceller.cancel();
        assert!(matches!(connecting.join().unwrap(), Err(Error::Cancelled { during: "connect" })));
    });
}

#[test]
fn an_accept_is_cancelled() {
    let (mut client, mut incoming) = incoming(&host());
    let canceller = Canceller::new().unwrap();
    incoming.parts().1.set_canceller(canceller.clone());
    let options = Options { timeout: FOR_EVER, ..Options::default() };
    thread::scope(|scope| {
        let accepting = scope.spawn(move || incoming.accept(&options, qp).map(drop));
        assert_eq!(client.awaits().cm(), Some(CmEvent::ConnectResponse));
        canceller.cancel();
        assert!(matches!(accepting.join().unwrap(), Err(Error::Cancelled { during: "accept" })));
    });
    // All resources of the accept are released, and the client is rejected.
    assert!(matches!(client.awaits().cm(), Some(CmEvent::Rejected | CmEvent::Disconnected)));
}

#[test]
fn a_disconnect_is_cancelled_and_the_connection_still_torn_down() {
    let ((mut active, _qp), (mut passive, _other_qp)) = connected(&host());
    let canceller = active.canceller();
    let error = cancelled(&canceller, || active.disconnect(FOR_EVER));
    assert!(matches!(error, Error::Cancelled { during: "disconnect" }), "{error}");
    assert_eq!(active.state(), State::Disconnecting);
    assert!(matches!(active.disconnect(FOR_EVER), Err(Error::Cancelled { during: "disconnect" })));
    active.set_canceller(Canceller::new().unwrap());
    timed_out(active.disconnect(A_WHILE), "disconnect");
    let answering = thread::spawn(move || {
        passive.wait_closed(SOON).unwrap();
        passive.teardown(SOON).unwrap();
    });
    active.teardown(SOON).unwrap();
    assert_eq!(active.state(), State::Closed);
    answering.join().unwrap();
}

#[test]
fn a_teardown_waits_out_the_time_wait_on_both_sides() {
    let ((mut active, _qp), (mut passive, _other_qp)) = connected(&host());
    let begun = Instant::now();
    let other = thread::spawn(move || {
        passive.teardown(SOON).unwrap();
        passive.state()
    });
    active.teardown(SOON).unwrap();
    // The time wait of the simulated kernel.
    assert!(begun.elapsed() >= Duration::from_millis(512));
    assert_eq!((active.state(), other.join().unwrap()), (State::Closed, State::Closed));
    // A closed connection stays closed.
    active.teardown(SOON).unwrap();
    active.wait_closed(Duration::ZERO).unwrap();
}

#[test]
fn a_teardown_that_comes_to_its_deadline_never_says_that_memory_is_free() {
    let ((mut active, _qp), _passive) = connected(&host());
    timed_out(active.teardown(A_WHILE), "teardown");
    timed_out(active.teardown(SOON), "teardown");

    let ((mut active, _qp), _passive) = connected(&host());
    let canceller = active.canceller();
    cancelled(&canceller, || active.teardown(Duration::from_secs(2)));
    active.set_canceller(Canceller::new().unwrap());
    timed_out(active.teardown(SOON), "teardown");
}

#[test]
fn where_there_is_nothing_to_tear_down_it_is_refused() {
    let host = host();
    let ((mut active, _qp), _passive) = connected(&host);
    host.remove_device();
    active.wait_closed(SOON).unwrap();
    assert_eq!(active.state(), State::Removed);
    for error in [active.teardown(SOON).unwrap_err(), active.disconnect(SOON).unwrap_err()] {
        assert!(matches!(error, Error::Core(cmid_proto::Error::Refused(_))), "{error}");
    }
}

/// Removes the device during a wait, after another thread has run `begun`.
#[track_caller]
fn loses_its_device<T: std::fmt::Debug>(
    host: &Host,
    begun: impl FnOnce() + Send,
    wait: impl FnOnce() -> Result<T, Error>,
) {
    let ended = thread::scope(|scope| {
        scope.spawn(|| {
            begun();
            host.remove_device();
        });
        wait()
    });
    let error = ended.unwrap_err();
    assert!(matches!(error, Error::Ended { .. }), "{error}");
    assert_eq!(error.errno(), Errno::ENODEV);
}

#[test]
fn a_listener_loses_its_device_and_says_so_at_once_from_then_on() {
    let (host, mut listener) = listening();
    loses_its_device(&host, || thread::sleep(A_WHILE), || listener.accept(FOR_EVER));
    for _ in 0..2 {
        let error = listener.accept(FOR_EVER).unwrap_err();
        assert!(matches!(error, Error::Core(cmid_proto::Error::Refused(_))), "{error}");
    }
    host.add_device();
    drop(listener);
    Listener::bind(host.device(), server()).unwrap();
}

#[test]
fn a_listener_hears_of_its_device_also_if_nobody_waited() {
    let (host, mut listener) = listening();
    timed_out(listener.accept(Duration::ZERO), "accept");
    host.remove_device();
    assert_eq!(listener.accept(FOR_EVER).unwrap_err().errno(), Errno::ENODEV);
}

#[test]
fn a_connect_an_accept_and_an_end_lose_their_device() {
    let options = Options { timeout: FOR_EVER, ..Options::default() };
    let connecting = host();
    let mut listener = Listener::bind(connecting.device(), server()).unwrap();
    let device = connecting.device();
    let mut request = None;
    let asked = || request = Some(listener.accept(SOON).unwrap());
    loses_its_device(&connecting, asked, || Connection::connect(device, server(), &options, qp));

    let accepting = host();
    let (mut client, incoming) = incoming(&accepting);
    let answered = || assert_eq!(client.awaits().cm(), Some(CmEvent::ConnectResponse));
    loses_its_device(&accepting, answered, || incoming.accept(&options, qp));

    for teardown in [false, true] {
        let ending = host();
        let ((mut active, _qp), (mut passive, _other_qp)) = connected(&ending);
        let record = || passive.wait_closed(SOON).unwrap();
        let end = || if teardown { active.teardown(FOR_EVER) } else { active.disconnect(FOR_EVER) };
        loses_its_device(&ending, record, end);
    }
}

#[test]
fn events_that_nobody_takes_are_in_nobody_s_way() {
    const CHANGES: usize = 200;
    let host = host();
    let ((mut active, _qp), (mut passive, _other_qp)) = connected(&host);
    for _ in 0..CHANGES {
        host.change_link_addr();
    }
    let answering = thread::spawn(move || {
        passive.wait_closed(SOON).unwrap();
        passive.disconnect(SOON).unwrap();
    });
    active.disconnect(SOON).unwrap();
    answering.join().unwrap();
    for _ in 0..CHANGES {
        assert_eq!(active.next_event(SOON).unwrap().cm(), Some(CmEvent::Unreachable));
    }
}

/// Hazard P60.
#[test]
fn receives_are_flushed_by_the_own_disconnect_and_not_by_that_of_the_peer() {
    let (host, mut listener) = listening();
    let passive = thread::spawn(move || listener.accept(SOON).unwrap().accept(&patient(), receiving).unwrap());
    let (active, attached) = Connection::connect(host.device(), server(), &patient(), qp).unwrap();
    let (mut passive, (_qp, mut cq, _mr)) = passive.join().unwrap();
    drop((active, attached));
    passive.wait_closed(SOON).unwrap();
    thread::sleep(A_WHILE);
    assert_eq!(cq.poll_one().unwrap(), None);
    passive.disconnect(SOON).unwrap();
    assert_eq!(cq.poll_one().unwrap().unwrap().status, WcStatus::WR_FLUSH_ERR);
}

/// A QP with a posted receive.
fn receiving(device: &mut SimDevice, attaching: Attaching<'_>) -> Result<(Qp, Cq, Mr), CreateError> {
    let (pd, cq) = (device.alloc_pd(attaching.id())?, device.create_cq(attaching.id(), 32)?);
    let mr = pd.register(vec![0; 8], Access::LOCAL_WRITE)?;
    let mut qp = device.create_qp(attaching, &pd, &cq, &cq, Caps::default())?;
    qp.post_recv(1, mr.sge(0..8))?;
    Ok((qp, cq, mr))
}

#[test]
fn a_listener_is_not_held_up_by_changes_of_its_address() {
    let (host, mut listener) = listening();
    for _ in 0..1500 {
        host.fail_over();
    }
    let passive = thread::spawn(move || listener.accept(SOON).unwrap().accept(&patient(), qp).unwrap());
    Connection::connect(host.device(), server(), &patient(), qp).unwrap();
    passive.join().unwrap();
}
