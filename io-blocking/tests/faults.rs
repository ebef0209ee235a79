//! A device that fails to read its channels although they are readable, or fails at one of its operations.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use cmid_blocking::{Connection, Error, Listener};
use cmid_harness::Fragile;
use cmid_proto::datapath::Attaching;
use cmid_proto::{CmEvent, DeviceLayer, Errno, Fault};
use cmid_sim::SimDevice;

use common::{A_WHILE, FOR_EVER, SOON, Silent, host, patient, qp, server};

/// The device makes no call between the failed reads and the request, so nothing else wakes the listener.
#[test]
fn a_wait_goes_on_after_reads_that_failed() {
    let host = host();
    let device = Fragile::new(host.device(), Arc::new(AtomicU32::new(3)), Errno::ENOMEM);
    let mut listener = Listener::bind(device, server()).unwrap();
    let _client = Silent::connecting(&host);
    listener.accept(SOON).unwrap();
}

#[test]
fn a_wait_ends_when_nothing_can_be_read_and_may_be_tried_again() {
    let (host, failures) = (host(), Arc::new(AtomicU32::new(u32::MAX)));
    let device = Fragile::new(host.device(), Arc::clone(&failures), Errno::EIO);
    let mut listener = Listener::bind(device, server()).unwrap();
    let _client = Silent::connecting(&host);
    for _ in 0..2 {
        match listener.accept(FOR_EVER) {
            Err(Error::Core(cmid_proto::Error::Fault(Fault::Channel { errno, .. }))) => assert_eq!(errno, Errno::EIO),
            Err(error) => panic!("{error}"),
            Ok(_) => panic!("a request that was not read"),
        }
    }
    failures.store(0, Ordering::Relaxed);
    listener.accept(SOON).unwrap();
}

/// Each operation of an accept fails once. The next accept returns the request, or the peer was rejected.
#[test]
fn an_accept_that_fails_at_any_operation_loses_no_request() {
    let mut ends = Vec::new();
    for nth in 1.. {
        let (host, left) = (host(), Arc::new(AtomicU32::new(0)));
        let mut listener =
            Listener::bind(Fragile::nth(host.device(), Arc::clone(&left), Errno::ENOMEM), server()).unwrap();
        let mut client = Silent::connecting(&host);
        left.store(nth, Ordering::Relaxed);
        let first = listener.accept(SOON);
        if left.swap(0, Ordering::Relaxed) > 0 {
            first.unwrap();
            break;
        }
        let end = match first.map_err(|error| error.errno()) {
            Ok(_) => "at once",
            Err(Errno::ENOMEM) if listener.accept(A_WHILE).is_ok() => "the next",
            Err(Errno::ENOMEM) => {
                let _other = Silent::connecting(&host);
                listener.accept(SOON).unwrap();
                // At the latest now: a device that fails to release an id keeps it.
                drop(listener);
                assert_eq!(client.awaits().cm(), Some(CmEvent::Rejected));
                "rejected"
            }
            Err(errno) => panic!("{errno}"),
        };
        ends.push(end);
    }
    // A read, the channel of its own and the migration to it can be repeated; a release and an adopt cannot.
    assert_eq!(ends, ["at once", "the next", "the next", "rejected", "rejected"]);
}

/// Each operation of an end fails once. The next call goes on where the first one was.
#[test]
fn an_end_that_fails_at_any_operation_can_be_repeated() {
    type End = fn(&mut Connection<Fragile<SimDevice>>) -> Result<(), Error>;
    let ends: [End; 3] = [
        |connection| connection.disconnect(SOON),
        |connection| connection.teardown(SOON),
        |connection| connection.wait_closed(SOON).and_then(|()| connection.disconnect(SOON)),
    ];
    for (end, peer_is_first) in ends.into_iter().zip([false, false, true]) {
        let mut failed = 0;
        for nth in 1.. {
            let (host, left) = (host(), Arc::new(AtomicU32::new(0)));
            let mut listener = Listener::bind(host.device(), server()).unwrap();
            let peer = thread::spawn(move || {
                let (mut peer, _qp) = listener.accept(SOON).unwrap().accept(&patient(), qp).unwrap();
                if !peer_is_first {
                    peer.wait_closed(SOON).unwrap();
                }
                peer.teardown(SOON).unwrap();
            });
            let device = Fragile::nth(host.device(), Arc::clone(&left), Errno::ENOMEM);
            let attach = |device: &mut Fragile<SimDevice>, to: Attaching<'_>| qp(device.inner_mut(), to);
            let (mut connection, _qp) = Connection::connect(device, server(), &patient(), attach).unwrap();
            left.store(nth, Ordering::Relaxed);
            let first = end(&mut connection);
            let has_fired = left.swap(0, Ordering::Relaxed) == 0;
            if let Err(error) = first {
                assert_eq!(error.errno(), Errno::ENOMEM, "{nth}: {error}");
                end(&mut connection).unwrap_or_else(|error| panic!("{nth}: {error}"));
                failed += 1;
            }
            peer.join().unwrap();
            if !has_fired {
                break;
            }
        }
        assert!(failed > 0);
    }
}
