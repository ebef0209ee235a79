//! The epoll instance: channels come and go, their keys are the data of their events.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use cmid_proto::{ChannelKey, Errno, Poller};
use rustix::event::epoll;

/// Registers each channel, edge-triggered: the core remembers who has not been read to the end, so nothing has to be
/// disarmed when it is full, and a channel that nobody can read now does not wake anyone.
#[derive(Debug)]
pub struct Interest {
    epoll: OwnedFd,
}

impl Interest {
    pub(crate) fn new() -> Result<Self, Errno> {
        epoll::create(epoll::CreateFlags::CLOEXEC).map(|epoll| Interest { epoll }).map_err(errno)
    }

    /// A descriptor of the driver's own, level-triggered, without a key.
    pub(crate) fn add_own(&self, fd: BorrowedFd<'_>) -> Result<(), Errno> {
        epoll::add(&self.epoll, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN).map_err(errno)
    }
}

impl Poller for Interest {
    fn add(&mut self, channel: ChannelKey, fd: BorrowedFd<'_>) -> Result<(), Errno> {
        let data = epoll::EventData::new_u64(channel.to_bits());
        epoll::add(&self.epoll, fd, data, epoll::EventFlags::IN | epoll::EventFlags::ET).map_err(errno)
    }

    fn remove(&mut self, _channel: ChannelKey, fd: BorrowedFd<'_>) {
        // It can only fail for a descriptor that is not registered, and then there is nothing to remove.
        let _ = epoll::delete(&self.epoll, fd);
    }
}

impl AsFd for Interest {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

pub(crate) fn errno(error: rustix::io::Errno) -> Errno {
    Errno(error.raw_os_error())
}
