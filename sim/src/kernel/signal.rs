//! What wakes a program that waits: a count, and a descriptor that shows it. WebAssembly has no descriptors, and programs of a
//! world wait for none.

#[cfg(unix)]
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use cmid_proto::Errno;
#[cfg(unix)]
use rustix::event::{EventfdFlags, eventfd};

/// A count, and an eventfd that is readable while it is not zero. Only a descriptor that somebody has seen is written to and read.
#[derive(Debug)]
pub(crate) struct Signal {
    count: Mutex<Count>,
    #[cfg(unix)]
    fd: OwnedFd,
}

#[derive(Debug, Default)]
struct Count {
    signals: u64,
    /// Whether somebody has seen the descriptor.
    #[cfg(unix)]
    is_shown: bool,
}

impl Signal {
    pub(crate) fn new() -> Result<Self, Errno> {
        Ok(Signal {
            count: Mutex::default(),
            #[cfg(unix)]
            fd: eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)
                .map_err(|error| Errno(error.raw_os_error()))?,
        })
    }

    fn count(&self) -> MutexGuard<'_, Count> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds 1.
    pub(crate) fn raise(&self) {
        let mut count = self.count();
        count.signals = count.signals.saturating_add(1);
        #[cfg(unix)]
        if count.is_shown {
            self.show(1);
        }
    }

    /// Takes the count and makes the descriptor unreadable; 0 if it was unreadable.
    pub(crate) fn take(&self) -> u64 {
        let mut count = self.count();
        let signals = std::mem::take(&mut count.signals);
        #[cfg(unix)]
        if count.is_shown && signals > 0 {
            let _ = rustix::io::read(&self.fd, &mut [0; 8]);
        }
        signals
    }

    /// Adds to the count of the descriptor. Fails only at 2^64 − 2; the descriptor is readable then anyway.
    #[cfg(unix)]
    fn show(&self, signals: u64) {
        let _ = rustix::io::write(&self.fd, &signals.to_ne_bytes());
    }
}

#[cfg(unix)]
impl AsFd for Signal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        let mut count = self.count();
        if !std::mem::replace(&mut count.is_shown, true) && count.signals > 0 {
            self.show(count.signals);
        }
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::time::Timespec;

    use super::*;

    fn is_readable(signal: &Signal) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(signal, PollFlags::IN)], Some(&now)).unwrap() == 1
    }

    #[test]
    fn a_descriptor_shows_what_came_before_and_after_it_was_seen() {
        for seen_first in [false, true] {
            let signal = Signal::new().unwrap();
            assert!(!seen_first || !is_readable(&signal));
            signal.raise();
            signal.raise();
            assert!(is_readable(&signal) && signal.take() == 2, "{seen_first}");
            assert!(!is_readable(&signal) && signal.take() == 0, "{seen_first}");
            signal.raise();
            assert!(is_readable(&signal), "{seen_first}");
        }
    }
}
