//! The interface that a device implements.

use core::net::SocketAddr;

use crate::call::{Call, Outcome};
use crate::errno::Errno;
use crate::event::{Ece, RawEvent};
use crate::key::{ChannelKey, IdKey};
use crate::transport::Transport;

/// A device: the kernel's interface, librdmacm, the simulator, or a layer over one of them. No method blocks, with the
/// exceptions that [`Call`] documents.
///
/// A device names ids and channels by the keys of the core. It makes each call as given and returns the kernel's result
/// as the outcome. It must not crash: where librdmacm would follow a null pointer (an id without a device), the outcome
/// is `EINVAL`. For an unknown id the outcome is `ENOENT`, for an unknown channel `EBADF`.
///
/// The [slot](IdKey::slot) of a key is dense: slots are numbered from 0, so a key can be an index into a table.
/// Compare the whole key after a look-up, because later ids use the slot again, and because keys of other cores have
/// the same slots.
pub trait Device {
    /// A released id with its channel, outside of any device; see [`Device::release`]. Dropping a handle destroys the
    /// id and the channel.
    type Handle: Send;

    /// Reads the next event of a channel and acks it at once (rdma_get_cm_event(3), rdma_ack_cm_event(3)). `None` if
    /// there is none. Does not wait.
    ///
    /// `child` is the key for the new id if the event is a CONNECT_REQUEST.
    ///
    /// # Errors
    /// The errno of the read, never `EAGAIN` or `EINTR`; `EBADF` for an unknown channel.
    fn fetch(&mut self, on: ChannelKey, child: IdKey) -> Result<Option<RawEvent<&[u8]>>, Errno>;

    /// Makes one call; `private_data` is sent with connect, accept and reject.
    ///
    /// # Errors
    /// The errno of the call.
    fn call(&mut self, call: &Call, private_data: &[u8]) -> Outcome;

    /// Returns the local address of an id (`rdma_get_local_addr`). An IPv6 link-local address has a scope: that of its
    /// interface, also where the kernel reports none. It has none if several interfaces have the address.
    ///
    /// # Errors
    /// `ENOENT` for an unknown id, `EADDRNOTAVAIL` while the id has no such address.
    #[doc(alias("rdma_get_local_addr", "rdma_get_src_port"))]
    fn local_addr(&self, id: IdKey) -> Result<SocketAddr, Errno>;

    /// Returns the peer's address (`rdma_get_peer_addr`). An IPv6 link-local address has the scope of the local address, so
    /// that one can connect back to it.
    ///
    /// # Errors
    /// `ENOENT` for an unknown id, `EADDRNOTAVAIL` while the id has no such address.
    #[doc(alias("rdma_get_peer_addr", "rdma_get_dst_port"))]
    fn peer_addr(&self, id: IdKey) -> Result<SocketAddr, Errno>;

    /// Returns the peer's options for enhanced connection establishment, from its request or answer
    /// (`rdma_get_remote_ece`).
    ///
    /// # Errors
    /// `ENOENT` for an unknown id, `EOPNOTSUPP` if the library has no such function, otherwise the errno of the call.
    #[doc(alias = "rdma_get_remote_ece")]
    fn remote_ece(&self, id: IdKey) -> Result<Ece, Errno>;

    /// Returns the transport of an id's device (`ibv_transport_type`); `None` while it has no device, and if the
    /// transport is not known. The default is for a device without iWARP.
    #[doc(alias = "ibv_transport_type")]
    fn transport(&mut self, _id: IdKey) -> Option<Transport> {
        None
    }

    /// Whether an id has a QP of the device's data path; `None` if the device does not know. The closures of
    /// [`Drive::attach_qp`](crate::Drive::attach_qp) and [`Drive::detach_qp`](crate::Drive::detach_qp) are not believed
    /// where the device knows.
    fn has_qp(&self, _id: IdKey) -> Option<bool> {
        None
    }

    /// Destroys the QP of an id, if it has one: [`Drive::attach_qp`](crate::Drive::attach_qp) has created it and then
    /// failed.
    fn discard_qp(&mut self, _id: IdKey) {}

    /// Removes an id, and the channel that only this id uses, from this device. Another device of the same kind can
    /// adopt them.
    ///
    /// # Errors
    /// `ENOENT` if either is unknown, `EINVAL` if other ids are on that channel.
    fn release(&mut self, id: IdKey, channel: ChannelKey) -> Result<Self::Handle, Errno>;

    /// Adopts a released id and its channel under new keys.
    ///
    /// # Errors
    /// The id and its channel are destroyed: `EINVAL` if the handle is of a device of another kind or host, or if a
    /// key is in use.
    fn adopt(&mut self, id: IdKey, channel: ChannelKey, handle: Self::Handle) -> Result<(), Errno>;
}

/// A device with a file descriptor per channel, for pollers.
#[cfg(feature = "std")]
pub trait Pollable: Device {
    /// Returns the channel's descriptor: readable while the channel has an event. `None` for an unknown channel. Only
    /// for poll(2) and the like: what is written to it is a command to the kernel, past the device (hazard P103). Only
    /// on Unix: WebAssembly, on which the simulator runs, has none to wait for.
    #[cfg(unix)]
    fn fd(&self, on: ChannelKey) -> Option<std::os::fd::BorrowedFd<'_>>;

    /// Creates another device on the same hardware, without ids, for a second core.
    ///
    /// Objects of the data path, such as a PD, may be used with ids of all siblings: on the simulator and on both backends
    /// of `cmid_verbs`. A device that is opened another time instead may share none
    /// ([`CreateReason::OtherDevice`](crate::datapath::CreateReason::OtherDevice)).
    #[must_use]
    fn sibling(&self) -> Self
    where
        Self: Sized;
}
