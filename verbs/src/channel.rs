//! One event channel.

use core::ptr::NonNull;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};

use cmid_proto::{Errno, IdKey, Outcome};
use rustix::event::{EventfdFlags, epoll, eventfd};

use crate::acm::{self, Answer};
use crate::data::lock;
use crate::errno;
use crate::ffi::{self, c_int, rdma_event_channel};

/// An open, non-blocking `rdma_event_channel`; dropping it closes it.
pub(crate) struct Channel {
    raw: Arc<RawChannel>,
    /// How many ids report here. `rdma_cm_id` points at its channel, so the channel must outlive them.
    pub(crate) ids: usize,
    /// Where ibacm is there.
    bell: Option<Arc<Bell>>,
}

/// What librdmacm has of it.
pub(crate) struct RawChannel(NonNull<rdma_event_channel>);

/// Wakes whoever waits for a channel, for what did not come from librdmacm.
pub(crate) struct Bell {
    /// An epoll instance that is readable when the channel or `event` is.
    both: OwnedFd,
    event: OwnedFd,
    answers: Mutex<VecDeque<Answer>>,
}

// SAFETY: an rdma_event_channel is a descriptor in malloc'ed memory; librdmacm ties neither to a thread.
unsafe impl Send for RawChannel {}
// SAFETY: nothing writes to it before it is destroyed; that takes its last owner.
unsafe impl Sync for RawChannel {}

impl Channel {
    /// `rdma_create_event_channel`, which sets close-on-exec, plus `O_NONBLOCK`.
    pub(crate) fn open() -> Result<Self, Errno> {
        // SAFETY: takes no arguments.
        let raw = unsafe { ffi::rdma_create_event_channel() };
        let raw = RawChannel(NonNull::new(raw).ok_or_else(errno::last)?);
        set_nonblocking(raw.fd())?;
        let bell = if acm::is_present() { Some(Arc::new(Bell::beside(raw.as_fd())?)) } else { None };
        Ok(Channel { raw: Arc::new(raw), ids: 0, bell })
    }

    pub(crate) fn as_ptr(&self) -> *mut rdma_event_channel {
        self.raw.0.as_ptr()
    }

    pub(crate) fn raw(&self) -> &Arc<RawChannel> {
        &self.raw
    }

    pub(crate) fn bell(&self) -> Option<&Arc<Bell>> {
        self.bell.as_ref()
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        match &self.bell {
            Some(bell) => bell.both.as_fd(),
            None => self.raw.as_fd(),
        }
    }
}

impl RawChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor stays open as long as `self` is borrowed; it is not −1, or creation had failed.
        unsafe { BorrowedFd::borrow_raw(self.fd()) }
    }

    fn fd(&self) -> c_int {
        // SAFETY: the channel is open as long as `self` lives, and only rdma_destroy_event_channel writes to it.
        unsafe { (*self.0.as_ptr()).fd }
    }
}

impl Drop for RawChannel {
    fn drop(&mut self) {
        // SAFETY: made by rdma_create_event_channel and destroyed only here. `Verbs` and `Handle` drop their ids before
        // their channels and close no channel that has ids, an anchor and a call that is under way hold its channel; so no
        // rdma_cm_id points at it any more.
        unsafe { ffi::rdma_destroy_event_channel(self.0.as_ptr()) };
    }
}

impl Bell {
    fn beside(channel: BorrowedFd<'_>) -> Result<Self, Errno> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(errno_of)?;
        let both = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(errno_of)?;
        for fd in [channel, event.as_fd()] {
            epoll::add(&both, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN).map_err(errno_of)?;
        }
        Ok(Bell { both, event, answers: Mutex::default() })
    }

    /// Leaves word of what came of a call.
    pub(crate) fn ring(&self, id: IdKey, outcome: Outcome) {
        lock(&self.answers).push_back((id, outcome));
        // It cannot be full.
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }

    /// The next answer. With the last one the descriptor is silent again.
    pub(crate) fn answer(&self) -> Option<Answer> {
        let mut answers = lock(&self.answers);
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

/// Adds `O_NONBLOCK` to an open descriptor.
pub(crate) fn set_nonblocking(fd: c_int) -> Result<(), Errno> {
    // SAFETY: fcntl with these two commands touches no memory of ours, whatever the descriptor is.
    let flags = unsafe { ffi::fcntl(fd, ffi::F_GETFL) };
    if flags < 0 {
        return Err(errno::last());
    }
    // SAFETY: as for the first command.
    if unsafe { ffi::fcntl(fd, ffi::F_SETFL, flags | ffi::O_NONBLOCK) } < 0 {
        return Err(errno::last());
    }
    Ok(())
}
