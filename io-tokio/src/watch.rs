//! A descriptor of a device in a runtime.

use std::io;
use std::mem;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::panic::{self, AssertUnwindSafe};
use std::task::{Context, Poll, ready};

use cmid_io_common::Process;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;

/// Waits for a descriptor in the runtime that has polled it first. It has a duplicate of the descriptor, so that the
/// device may close its own at any time.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    fd: Registered<AsyncFd<OwnedFd>>,
}

impl Watch {
    /// Ready once after the descriptor became readable. The caller then reads until nothing is left, because tokio
    /// reports edges.
    pub(crate) fn poll(&mut self, fd: BorrowedFd<'_>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let fd = match &mut self.fd.it {
            Some(fd) => fd,
            None => self.fd.insert(register(fd)?),
        };
        ready!(fd.poll_read_ready(context))?.clear_ready();
        Poll::Ready(Ok(()))
    }
}

/// What a runtime knows. In a forked child its drop does nothing: the runtime has the epoll instance of the parent, and another
/// thread of the parent may have had one of its locks.
#[derive(Debug)]
pub(crate) struct Registered<T> {
    pub(crate) it: Option<T>,
    process: Process,
}

impl<T> Registered<T> {
    pub(crate) fn insert(&mut self, it: T) -> &mut T {
        self.process = Process::default();
        self.it.insert(it)
    }
}

impl<T> Default for Registered<T> {
    fn default() -> Self {
        Registered { it: None, process: Process::default() }
    }
}

impl<T> Drop for Registered<T> {
    fn drop(&mut self) {
        if self.process.is_other() {
            mem::forget(self.it.take());
        }
    }
}

#[allow(deprecated, reason = "an `OwnedFd` keeps its descriptor; the replacement is unsafe")]
fn register(fd: BorrowedFd<'_>) -> io::Result<AsyncFd<OwnedFd>> {
    let fd = fd.try_clone_to_owned()?;
    in_runtime(|| AsyncFd::with_interest(fd, Interest::READABLE))?
}

/// Makes what is registered in the runtime. Outside of a runtime, and in one without its drivers of I/O and time, tokio
/// panics, and has no call that tells it before: here it is an error, with tokio's words.
pub(crate) fn in_runtime<T>(make: impl FnOnce() -> T) -> io::Result<T> {
    Handle::try_current().map_err(io::Error::other)?;
    caught(make)
}

/// Makes a call of tokio. A panic is an error, with its words.
pub(crate) fn caught<T>(make: impl FnOnce() -> T) -> io::Result<T> {
    // What is half made is dropped.
    panic::catch_unwind(AssertUnwindSafe(make)).map_err(|cause| {
        let words = cause.downcast::<String>().map(|words| *words);
        let words = words.or_else(|cause| cause.downcast::<&str>().map(|words| (*words).to_owned()));
        io::Error::other(words.unwrap_or_else(|_| "the runtime has no drivers of I/O and time".to_owned()))
    })
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    #[test]
    fn a_forked_child_removes_nothing_from_the_runtime_of_its_parent() {
        for (is_child, left) in [(false, 1), (true, 2)] {
            let (it, mut registered) = (Rc::new(()), Registered::default());
            registered.insert(Rc::clone(&it));
            if is_child {
                registered.process = Process(0);
            }
            drop(registered);
            assert_eq!(Rc::strong_count(&it), left);
        }
    }
}
