//! No call leaves a descriptor open, however it ends. The only test of its process, because it counts the process's
//! descriptors.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::time::Duration;

use cmid_blocking::{Canceller, Connection, Error, Listener, Options};
use cmid_proto::Errno;
use cmid_proto::datapath::Attaching;
use cmid_proto::datapath::CreateError;
use cmid_sim::{Host, Qp, SimDevice};

use common::{A_WHILE, SOON, connected, host, incoming, patient, qp, server};

fn open() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn no_qp(_: &mut SimDevice, _: Attaching<'_>) -> Result<Qp, CreateError> {
    Err(Errno::ENOMEM.into())
}

/// Makes every call, and ends it in every way.
fn round(host: &Host) {
    let short = || Options { timeout: A_WHILE, ..Options::default() };
    assert!(Connection::connect(host.device(), server(), &patient(), qp).is_err(), "no listener");
    assert_eq!(Connection::connect(host.device(), server(), &patient(), no_qp).unwrap_err().errno(), Errno::ENOMEM);
    drop(connected(host));
    {
        let _listener = Listener::bind(host.device(), server()).unwrap();
        assert!(Listener::bind(host.device(), server()).is_err(), "taken");
        assert!(matches!(Connection::connect(host.device(), server(), &short(), qp), Err(Error::TimedOut { .. })));
    }
    drop(incoming(host));
    let (_client, request) = incoming(host);
    request.reject(b"no").unwrap();
    let (_client, request) = incoming(host);
    assert_eq!(request.accept(&patient(), no_qp).unwrap_err().errno(), Errno::ENOMEM);
    let (_client, request) = incoming(host);
    assert!(matches!(request.accept(&short(), qp), Err(Error::TimedOut { .. })));
    let canceller = Canceller::new().unwrap();
    canceller.cancel();
    let cancelled = Connection::observed(host.device(), (), Some(canceller), server(), &patient(), qp);
    assert!(matches!(cancelled, Err(Error::Cancelled { .. })));
    let ((mut active, _qp), (mut passive, _other_qp)) = connected(host);
    let answer = std::thread::spawn(move || {
        passive.wait_closed(SOON).unwrap();
        passive.disconnect(SOON).unwrap();
        assert!(passive.next_event(Duration::ZERO).is_err());
    });
    active.disconnect(SOON).unwrap();
    answer.join().unwrap();
}

#[test]
fn no_descriptor_is_left_open() {
    let host = host();
    round(&host);
    let before = open();
    for _ in 0..3 {
        round(&host);
    }
    assert_eq!(open(), before);
}
