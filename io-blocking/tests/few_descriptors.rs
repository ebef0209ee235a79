//! An accept without descriptors. The only test of its process, because it lowers the process's limit.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::fs::File;
use std::os::fd::AsRawFd as _;

use cmid_blocking::Listener;
use cmid_proto::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use common::{SOON, Silent, host, patient, qp, server};

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
    let host = host();
    let mut listener = Listener::bind(host.device(), server()).unwrap();
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
