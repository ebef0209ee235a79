//! The seam: what a device must do.

use core::net::SocketAddr;

use crate::call::{Call, Outcome};
use crate::drive::StepRecord;
use crate::errno::Errno;
use crate::event::{Ece, RawEvent};
use crate::key::{ChannelKey, IdKey};
use crate::time::Time;

/// A device: librdmacm, the simulator, or something around one of them. Everything here returns at once.
///
/// A device knows ids and channels by the keys that the core gave them. It never judges a call: what the core asks is
/// done, and what the kernel says about it is the outcome. But it must not crash: where librdmacm would follow a null
/// pointer (an id without a device) the outcome is `EINVAL`. An id that it does not know is `ENOENT`, a channel `EBADF`.
///
/// The [slot](IdKey::slot) of a key is dense: slots are numbered from 0, so a table can be indexed by it. The whole key has
/// to be compared then, because a slot has many tenants, and because a key of another core is unknown here.
pub trait Device {
    /// An id with a channel of its own, outside of any device; see [`Device::release`]. Dropping one destroys
    /// both the id and the channel.
    type Handle: Send;

    /// Takes the next event off a channel, acks it to librdmacm at once and reports it; `None` if there is none.
    ///
    /// `child` is the key under which the device files the new id, should the event be a CONNECT_REQUEST.
    ///
    /// # Errors
    /// What reading failed with, never `EAGAIN` or `EINTR`; `EBADF` for a channel that the device does not know.
    fn fetch(&mut self, on: ChannelKey, child: IdKey) -> Result<Option<RawEvent<&[u8]>>, Errno>;

    /// Makes one call; `private_data` is sent along with connect, accept and reject.
    ///
    /// # Errors
    /// The errno that the call left.
    fn call(&mut self, call: &Call, private_data: &[u8]) -> Outcome;

    /// The local address of an id (`rdma_get_local_addr`).
    ///
    /// # Errors
    /// `ENOENT` for an unknown id, `EADDRNOTAVAIL` while it has none.
    fn local_addr(&self, id: IdKey) -> Result<SocketAddr, Errno>;

    /// The peer's address (`rdma_get_peer_addr`). Of the id of a request, an IPv6 link-local address names no link, nor does its
    /// local one: take the link from the listener's address.
    ///
    /// # Errors
    /// `ENOENT` for an unknown id, `EADDRNOTAVAIL` while it has none.
    fn peer_addr(&self, id: IdKey) -> Result<SocketAddr, Errno>;

    /// What the peer told of enhanced connection establishment in its request or answer (`rdma_get_remote_ece`).
    ///
    /// # Errors
    /// `ENOENT` for an unknown id, `EOPNOTSUPP` where the library has it not, otherwise what it said.
    fn remote_ece(&self, id: IdKey) -> Result<Ece, Errno>;

    /// Takes an id and the channel that only it uses out of this device, to be adopted by another of the same kind.
    ///
    /// # Errors
    /// `ENOENT` if either is not known, `EINVAL` if the id is not alone on that channel.
    fn release(&mut self, id: IdKey, channel: ChannelKey) -> Result<Self::Handle, Errno>;

    /// Files a released id and its channel under new keys.
    ///
    /// # Errors
    /// Nothing is filed, and the id and its channel are destroyed: `EINVAL` if the handle is of a device of another kind
    /// or place, or a key is taken; what the poller said if the channel cannot be waited for.
    fn adopt(&mut self, id: IdKey, channel: ChannelKey, handle: Self::Handle) -> Result<(), Errno>;

    /// Whether a channel that has more to read is reported as readable again by itself, as a level-triggered poller does
    /// (poll(2), epoll(7) without `EPOLLET`). [`Drive`](crate::Drive) then reads one event of it per report. Where not, it
    /// reads on until a read finds nothing.
    const LEVEL_TRIGGERED: bool = false;

    /// The present time, for [`Drive::within`](crate::Drive::within), if the device has a clock.
    fn clock(&self) -> Option<Time> {
        None
    }

    /// A channel that may have something to read is not read now: there is no room for it, or it is paused. It need not be
    /// reported as readable until the next [`fetch`](Device::fetch) on it.
    fn leave_unread(&mut self, _channel: ChannelKey) {}

    /// Whether it is to [hear](Device::observe) of what its [`Drive`](crate::Drive) does. Where not, that costs nothing.
    const OBSERVES: bool = false;

    /// Hears of a step that its drive has taken: for a device around another one, which keeps a record.
    fn observe(&mut self, _heard: &StepRecord<'_>) {}
}

/// A device whose channels have file descriptors that a poller can wait for.
#[cfg(feature = "std")]
pub trait Pollable: Device {
    /// The channel's descriptor: readable while it has an event. `None` for a channel that the device does not know.
    fn fd(&self, on: ChannelKey) -> Option<std::os::fd::BorrowedFd<'_>>;

    /// Another device on the same hardware, with no ids: what a second core gets.
    #[must_use]
    fn sibling(&self) -> Self
    where
        Self: Sized;
}
