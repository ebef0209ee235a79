//! What wakes a program that waits: an eventfd. WebAssembly has no descriptors, and programs of a world wait for none: there
//! it is only the count.

#[cfg(not(unix))]
pub(crate) use count::Signal;
#[cfg(unix)]
pub(crate) use descriptor::Signal;

#[cfg(unix)]
mod descriptor {
    use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

    use cmid_proto::Errno;
    use rustix::event::{EventfdFlags, eventfd};

    /// A count, and a descriptor that is readable while it is not zero.
    #[derive(Debug)]
    pub(crate) struct Signal(OwnedFd);

    impl Signal {
        pub(crate) fn new() -> Result<Self, Errno> {
            let fd = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC);
            fd.map(Signal).map_err(|error| Errno(error.raw_os_error()))
        }

        /// Adds 1. Fails only at 2^64 − 2 unread signals; the descriptor is readable then anyway.
        pub(crate) fn raise(&self) {
            let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
        }

        /// Takes the count and makes the descriptor unreadable; 0 if it was unreadable.
        pub(crate) fn take(&self) -> u64 {
            let mut count = [0; 8];
            match rustix::io::read(&self.0, &mut count) {
                Ok(8) => u64::from_ne_bytes(count),
                Ok(_) | Err(_) => 0,
            }
        }
    }

    impl AsFd for Signal {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }
    }
}

#[cfg(not(unix))]
mod count {
    use std::sync::atomic::{AtomicU64, Ordering};

    use cmid_proto::Errno;

    /// A count.
    #[derive(Debug)]
    pub(crate) struct Signal(AtomicU64);

    impl Signal {
        pub(crate) fn new() -> Result<Self, Errno> {
            Ok(Signal(AtomicU64::new(0)))
        }

        /// Adds 1.
        pub(crate) fn raise(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }

        /// Takes the count.
        pub(crate) fn take(&self) -> u64 {
            self.0.swap(0, Ordering::Relaxed)
        }
    }
}
