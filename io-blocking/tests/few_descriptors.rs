//! Accepts without descriptors. The tests take turns, because they lower the limit of their process.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::sync::{Mutex, PoisonError};

use cmid_proto::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use common::{SOON, Silent, listening, patient, qp};

/// Of the test whose turn it is.
static TURN: Mutex<()> = Mutex::new(());

/// Runs `action` while this process can open at most `left` more descriptors.
fn with_descriptors<T>(left: u64, action: impl FnOnce() -> T) -> T {
    let lowest = u64::try_from(File::open("/dev/null").unwrap().as_raw_fd()).unwrap();
    let before = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(lowest + left), ..before }).unwrap();
    let result = action();
    setrlimit(Resource::Nofile, before).unwrap();
    result
}

#[test]
fn a_request_that_cannot_be_accepted_for_lack_of_descriptors_waits_for_the_next_accept() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let (host, mut listener) = listening();
    let mut client = Silent::connecting(&host);
    let mut failures = 0;
    let incoming = loop {
        match with_descriptors(failures, || listener.accept(SOON)) {
            Ok(incoming) => break incoming,
            Err(error) => assert_eq!(error.errno(), Errno::EMFILE, "with {failures} descriptors"),
        }
        failures += 1;
        assert!(failures < 20, "20 descriptors are not enough");
    };
    assert!(failures > 0, "an accept needs a descriptor");
    let answer = std::thread::spawn(move || incoming.accept(&patient(), qp).map(drop));
    assert_eq!(client.awaits().cm(), Some(cmid_proto::CmEvent::ConnectResponse));
    drop(client);
    // The client does not confirm.
    assert!(answer.join().unwrap().is_err());
}

#[test]
fn a_request_that_waits_for_descriptors_does_not_hide_that_the_device_is_removed() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let (host, mut listener) = listening();
    let _client = Silent::connecting(&host);
    let error = with_descriptors(0, || listener.accept(SOON)).unwrap_err();
    assert_eq!((error.errno(), error.to_string().as_str()), (Errno::EMFILE, "creating a canceller: EMFILE"));
    host.remove_device();
    let mut errors = (0..10).map(|_| listener.accept(SOON).unwrap_err().errno());
    assert!(errors.any(|errno| errno == Errno::ENODEV), "the listener ends");
}
