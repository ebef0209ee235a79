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
    fd: Option<(AsyncFd<OwnedFd>, Process)>,
}

impl Watch {
    /// Ready once after the descriptor became readable. The caller then reads until nothing is left, because tokio
    /// reports edges.
    pub(crate) fn poll(&mut self, fd: BorrowedFd<'_>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let fd = match &mut self.fd {
            Some((fd, _)) => fd,
            None => &mut self.fd.insert((register(fd)?, Process::default())).0,
        };
        ready!(fd.poll_read_ready(context))?.clear_ready();
        Poll::Ready(Ok(()))
    }
}

/// In a forked child it removes nothing from the runtime, which is that of the parent too.
impl Drop for Watch {
    fn drop(&mut self) {
        mem::forget(self.fd.take_if(|(_, process)| process.is_other()));
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
    use std::fs;
    use std::future::poll_fn;
    use std::os::fd::{AsFd, AsRawFd};

    use super::*;

    /// Whether an epoll instance of this process waits for a descriptor, as the kernel lists them.
    fn is_registered(fd: i32) -> bool {
        let infos =
            fs::read_dir("/proc/self/fdinfo").unwrap().filter_map(|info| fs::read_to_string(info.ok()?.path()).ok());
        infos.flat_map(|info| info.lines().map(str::to_owned).collect::<Vec<_>>()).any(|line| {
            line.strip_prefix("tfd:")
                .and_then(|rest| rest.split_whitespace().next())
                .is_some_and(|own| own == fd.to_string())
        })
    }

    #[tokio::test]
    async fn a_forked_child_removes_nothing_from_the_runtime_of_its_parent() {
        let (mut watch, waker) = (Watch::default(), cmid_io_common::Waker::new().unwrap());
        waker.wake();
        poll_fn(|context| watch.poll(waker.as_fd(), context)).await.unwrap();
        let (fd, process) = watch.fd.as_mut().unwrap();
        *process = Process(0);
        let fd = fd.as_raw_fd();
        drop(watch);
        assert!(is_registered(fd));
    }
}
