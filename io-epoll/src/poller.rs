//! The epoll instance. Channels are registered with their key as event data.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use cmid_proto::{ChannelKey, Errno, Pollable, Poller, Time};
use rustix::event::epoll;

use cmid_io_common::now;

/// The event data of the waker. It differs from every key, because the lower bits of a key are its generation, which is
/// not 0.
pub(crate) const WAKER: u64 = 1 << 63;

/// Registers each channel, level-triggered. One event is read per report; the others are reported again. A channel is
/// disarmed while the core cannot read it, because the core is full or the channel is paused. A disarmed channel wakes
/// no wait.
#[derive(Debug)]
pub struct Channels {
    epoll: OwnedFd,
}

impl Channels {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Channels { epoll: epoll::create(epoll::CreateFlags::CLOEXEC)? })
    }

    /// Registers a descriptor of the driver itself, level-triggered, without a key.
    pub(crate) fn add_own(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?)
    }

    fn report(&self, channel: ChannelKey, device: &impl Pollable, flags: epoll::EventFlags) {
        if let Some(fd) = device.fd(channel) {
            // This fails only for a descriptor that is not registered.
            let _ = epoll::modify(&self.epoll, fd, data(channel), flags);
        }
    }

    /// Registers the descriptor of a waker, edge-triggered: it is reported once per wake, and never read.
    pub(crate) fn add_waker(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        Ok(epoll::add(&self.epoll, fd, epoll::EventData::new_u64(WAKER), flags)?)
    }
}

impl<D: Pollable> Poller<D> for Channels {
    fn add(&mut self, channel: ChannelKey, device: &D) -> Result<(), Errno> {
        let fd = device.fd(channel).ok_or(Errno::EBADF)?;
        let added = epoll::add(&self.epoll, fd, data(channel), epoll::EventFlags::IN);
        added.map_err(|error| Errno(error.raw_os_error()))
    }

    fn remove(&mut self, channel: ChannelKey, device: &D) {
        if let Some(fd) = device.fd(channel) {
            // This fails only for a descriptor that is not registered. There is then nothing to remove.
            let _ = epoll::delete(&self.epoll, fd);
        }
    }

    fn is_level_triggered(&self) -> bool {
        true
    }

    fn arm(&mut self, channel: ChannelKey, device: &D) {
        self.report(channel, device, epoll::EventFlags::IN);
    }

    fn disarm(&mut self, channel: ChannelKey, device: &D) {
        self.report(channel, device, epoll::EventFlags::empty());
    }

    fn clock(&self) -> Option<Time> {
        Some(now())
    }
}

impl AsFd for Channels {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

fn data(channel: ChannelKey) -> epoll::EventData {
    epoll::EventData::new_u64(channel.to_bits())
}
