//! Wakes the poller of a channel for events that are not from librdmacm.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use cmid_proto::{Errno, IdKey, Outcome};
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, epoll, eventfd};

/// The result of a call, for the reader of the channel.
pub(crate) type Answer = (IdKey, Outcome);

/// Wakes the poller of a channel for events that are not from librdmacm.
pub(crate) struct Bell {
    /// An epoll instance that is readable when the channel or `event` is.
    both: OwnedFd,
    event: OwnedFd,
    answers: Mutex<VecDeque<Answer>>,
}

impl Bell {
    pub(crate) fn beside(channel: BorrowedFd<'_>) -> Result<Self, Errno> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(errno_of)?;
        let both = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(errno_of)?;
        for fd in [channel, event.as_fd()] {
            epoll::add(&both, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN).map_err(errno_of)?;
        }
        Ok(Bell { both, event, answers: Mutex::default() })
    }

    /// Readable when the channel or the bell is.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.both.as_fd()
    }

    /// Queues the outcome of a call and wakes the poller.
    pub(crate) fn ring(&self, id: IdKey, outcome: Outcome) {
        self.answers.lock().push_back((id, outcome));
        // The counter cannot be full.
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }

    /// Takes the next outcome. Without further outcomes the descriptor is not readable.
    pub(crate) fn answer(&self) -> Option<Answer> {
        let mut answers = self.answers.lock();
        let answer = answers.pop_front();
        if answer.is_some() && answers.is_empty() {
            let _ = rustix::io::read(&self.event, &mut [0; size_of::<u64>()]);
        }
        answer
    }
}

fn errno_of(error: rustix::io::Errno) -> Errno {
    Errno(error.raw_os_error())
}
