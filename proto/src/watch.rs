//! A device around a device that keeps a poller told of the channels that come and go. No driver keeps a second list.

use core::net::SocketAddr;
use core::ops::{Deref, DerefMut};
use std::os::fd::BorrowedFd;

use crate::device::{Call, Device, Outcome, Pollable};
use crate::errno::Errno;
use crate::event::{Ece, RawEvent};
use crate::key::{ChannelKey, IdKey};

/// What waits for the descriptors of channels.
pub trait Poller {
    /// Waits for this descriptor too, on behalf of a channel. Told once per channel.
    ///
    /// # Errors
    /// What the system says; the channel is then not opened.
    fn add(&mut self, channel: ChannelKey, fd: BorrowedFd<'_>) -> Result<(), Errno>;

    /// Does so no longer. Told before the descriptor is closed or leaves.
    fn remove(&mut self, channel: ChannelKey, fd: BorrowedFd<'_>);
}

/// A device whose channels are all known to a poller. Derefs to the device, for its data path.
#[derive(Debug)]
pub struct Watched<D, P> {
    device: D,
    poller: P,
}

impl<D: Pollable, P: Poller> Watched<D, P> {
    /// A device without channels.
    pub fn new(device: D, poller: P) -> Self {
        Watched { device, poller }
    }

    /// The poller.
    pub fn poller(&self) -> &P {
        &self.poller
    }

    fn add(&mut self, channel: ChannelKey) -> Result<(), Errno> {
        let fd = self.device.fd(channel).ok_or(Errno::EBADF)?;
        self.poller.add(channel, fd)
    }

    fn remove(&mut self, channel: ChannelKey) {
        if let Some(fd) = self.device.fd(channel) {
            self.poller.remove(channel, fd);
        }
    }
}

impl<D, P> Deref for Watched<D, P> {
    type Target = D;
    fn deref(&self) -> &D {
        &self.device
    }
}

impl<D, P> DerefMut for Watched<D, P> {
    fn deref_mut(&mut self) -> &mut D {
        &mut self.device
    }
}

impl<D: Pollable, P: Poller> Device for Watched<D, P> {
    type Handle = D::Handle;

    fn fetch(&mut self, on: ChannelKey, child: IdKey) -> Result<Option<RawEvent<'_>>, Errno> {
        self.device.fetch(on, child)
    }

    fn call(&mut self, call: &Call, private_data: &[u8]) -> Outcome {
        if let Call::CloseChannel { channel } = *call {
            self.remove(channel);
        }
        self.device.call(call, private_data)?;
        if let Call::OpenChannel { channel } = *call
            && let Err(errno) = self.add(channel)
        {
            // The channel was opened a moment ago and is empty; if it cannot be watched it must not be.
            self.device.call(&Call::CloseChannel { channel }, &[])?;
            return Err(errno);
        }
        Ok(())
    }

    fn local_addr(&self, id: IdKey) -> Result<SocketAddr, Errno> {
        self.device.local_addr(id)
    }

    fn peer_addr(&self, id: IdKey) -> Result<SocketAddr, Errno> {
        self.device.peer_addr(id)
    }

    fn remote_ece(&self, id: IdKey) -> Result<Ece, Errno> {
        self.device.remote_ece(id)
    }

    fn release(&mut self, id: IdKey, channel: ChannelKey) -> Result<Self::Handle, Errno> {
        self.remove(channel);
        self.device.release(id, channel)
    }

    fn adopt(&mut self, id: IdKey, channel: ChannelKey, handle: Self::Handle) -> Result<(), Errno> {
        self.device.adopt(id, channel, handle)?;
        self.add(channel).inspect_err(|_| {
            // Nothing is to be left of it; that it cannot be destroyed either is beyond help.
            let _ = self.device.call(&Call::Destroy { id }, &[]);
            let _ = self.device.call(&Call::CloseChannel { channel }, &[]);
        })
    }
}
