//! A device around a device that keeps a poller told of the channels that come and go. No driver keeps a second list.

use core::ops::{Deref, DerefMut};
use std::os::fd::BorrowedFd;

use crate::around::Around;
use crate::device::{Call, Outcome, Pollable};
use crate::errno::Errno;
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

impl<D: Pollable, P: Poller> Around for Watched<D, P> {
    type Inner = D;
    type Handle = D::Handle;

    fn inner(&self) -> &D {
        &self.device
    }

    fn inner_mut(&mut self) -> &mut D {
        &mut self.device
    }

    fn on_call(&mut self, call: &Call, private_data: &[u8]) -> Outcome {
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

    fn on_release(&mut self, id: IdKey, channel: ChannelKey) -> Result<D::Handle, Errno> {
        self.remove(channel);
        self.device.release(id, channel)
    }

    fn on_adopt(&mut self, id: IdKey, channel: ChannelKey, handle: D::Handle) -> Outcome {
        self.device.adopt(id, channel, handle)?;
        self.add(channel).inspect_err(|_| {
            // Nothing is to be left of it; that it cannot be destroyed either is beyond help.
            let _ = self.device.call(&Call::Destroy { id }, &[]);
            let _ = self.device.call(&Call::CloseChannel { channel }, &[]);
        })
    }
}
