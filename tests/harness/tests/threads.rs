//! Which types may change threads, and which may be used by several at once.

use cmid_blocking::{Blocking, Canceller, Connection, Incoming, Listener};
use cmid_epoll::Epoll;
use cmid_mio::Mio;
use cmid_proto::{Core, Drive, Error};
use cmid_sim::SimDevice;
use static_assertions::{assert_impl_all, assert_not_impl_any};

/// A driver changes its state in what looks like a read: a query of the time may read the clock.
#[test]
fn drivers_are_sent_and_not_shared() {
    assert_impl_all!(Drive<SimDevice>: Send);
    assert_not_impl_any!(Drive<SimDevice>: Sync);
    assert_impl_all!(Epoll<SimDevice>: Send);
    assert_not_impl_any!(Epoll<SimDevice>: Sync);
    assert_impl_all!(Mio<SimDevice>: Send);
    assert_not_impl_any!(Mio<SimDevice>: Sync);
    assert_impl_all!(Blocking<SimDevice>: Send);
    assert_not_impl_any!(Blocking<SimDevice>: Sync);
}

#[test]
fn what_contains_a_driver_is_as_the_driver() {
    assert_impl_all!(Connection<SimDevice>: Send);
    assert_not_impl_any!(Connection<SimDevice>: Sync);
    assert_impl_all!(Listener<SimDevice>: Send);
    assert_not_impl_any!(Listener<SimDevice>: Sync);
    assert_impl_all!(Incoming<SimDevice>: Send);
    assert_not_impl_any!(Incoming<SimDevice>: Sync);
}

#[test]
fn what_ends_a_wait_from_elsewhere_is_shared() {
    assert_impl_all!(cmid_epoll::Waker: Clone, Send, Sync);
    assert_impl_all!(cmid_mio::Waker: Clone, Send, Sync);
    assert_impl_all!(Canceller: Clone, Send, Sync);
    assert_impl_all!(Core: Send, Sync);
    assert_impl_all!(Error: Copy, Send, Sync);
}
