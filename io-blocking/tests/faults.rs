//! A device that fails to read its channels although they are readable.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use cmid_blocking::{Error, Listener};
use cmid_harness::Fragile;
use cmid_proto::{Errno, Fault};

use common::{FOR_EVER, SOON, Silent, host, server};

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
