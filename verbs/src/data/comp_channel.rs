//! Completion channels.

use core::fmt;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, Ordering};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use cmid_proto::Errno;
use cmid_proto::datapath::CompletionChannel;

use crate::data::Context;
use crate::errno;
use crate::ffi::{self, c_int, ibv_comp_channel, ibv_cq};
use crate::librdmacm::set_nonblocking;

/// A completion channel for several CQs. Any thread may use it. After the handle is dropped, it exists until its last
/// CQ is destroyed.
#[derive(Clone)]
pub struct CompChannel(Arc<RawChannel>);

/// An `ibv_comp_channel`. Its CQs hold it.
pub(crate) struct RawChannel {
    raw: NonNull<ibv_comp_channel>,
    /// Whether a read of the descriptor waits.
    is_blocking: AtomicBool,
    // Dropped after the channel.
    context: Arc<Context>,
}

// SAFETY: libibverbs is thread-safe, and a channel is tied to no thread.
unsafe impl Send for RawChannel {}
// SAFETY: libibverbs is thread-safe: several threads may read a channel at a time. After its creation only one field is
// written, the count of its CQs, under a lock of the library.
// `is_blocking` is an atomic.
unsafe impl Sync for RawChannel {}

impl CompChannel {
    pub(crate) fn create(context: Arc<Context>) -> Result<Self, Errno> {
        Ok(CompChannel(Arc::new(RawChannel::create(context)?)))
    }

    pub(crate) fn raw(&self) -> &Arc<RawChannel> {
        &self.0
    }
}

impl CompletionChannel for CompChannel {
    fn fd(&self) -> BorrowedFd<'_> {
        self.0.fd()
    }

    /// # Errors
    /// The errno of reading the channel; `EIO` on a device that is gone.
    fn next_notification(&self) -> Result<Option<u32>, Errno> {
        let Some(cq) = self.0.take_notification()? else { return Ok(None) };
        // SAFETY: the notification was just taken, and is acked once, below. Until then the CQ is alive: a destruction
        // on another thread waits for the ack (ibv_destroy_cq(3)). Nothing writes the field after its creation.
        let number = unsafe { (*cq.as_ptr()).handle };
        // SAFETY: as above.
        unsafe { ffi::ibv_ack_cq_events(cq.as_ptr(), 1) };
        Ok(Some(number))
    }
}

impl RawChannel {
    pub(crate) fn create(context: Arc<Context>) -> Result<Self, Errno> {
        // SAFETY: the context is open.
        let raw = errno::of_new(|| unsafe { ffi::ibv_create_comp_channel(context.as_ptr()) })?;
        let channel = RawChannel { raw, is_blocking: AtomicBool::new(true), context };
        channel.set_blocking(false)?;
        Ok(channel)
    }

    pub(crate) fn as_ptr(&self) -> *mut ibv_comp_channel {
        self.raw.as_ptr()
    }

    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    /// Takes a notification; `None` if there is none. The caller acks it.
    pub(crate) fn take_notification(&self) -> Result<Option<NonNull<ibv_cq>>, Errno> {
        self.set_blocking(false)?;
        let mut cq = ptr::null_mut();
        let is_taken = errno::of_read(|| self.read(&mut cq))?;
        if is_taken { NonNull::new(cq).map(Some).ok_or(Errno::EIO) } else { Ok(None) }
    }

    /// Waits for a notification. The caller acks it, and is the only one who takes any.
    pub(crate) fn await_notification(&self) -> Result<(), Errno> {
        self.set_blocking(true)?;
        errno::of_call(|| self.read(&mut ptr::null_mut()))
    }

    /// `ibv_get_cq_event`.
    fn read(&self, cq: &mut *mut ibv_cq) -> c_int {
        let mut context = ptr::null_mut();
        // SAFETY: the channel is open and the results have places.
        unsafe { ffi::ibv_get_cq_event(self.raw.as_ptr(), cq, &raw mut context) }
    }

    /// Changes the descriptor before a read, if it is not as it should be.
    ///
    /// # Errors
    /// `EACCES` in a forked child: its parent would wait for ever for the ack of what the child has read (ibv_destroy_cq(3)).
    fn set_blocking(&self, blocks: bool) -> Result<(), Errno> {
        if self.context.is_inherited() {
            return Err(Errno::EACCES);
        }
        if self.is_blocking.load(Ordering::Relaxed) != blocks {
            set_nonblocking(self.raw_fd(), !blocks)?;
            self.is_blocking.store(blocks, Ordering::Relaxed);
        }
        Ok(())
    }

    pub(crate) fn raw_fd(&self) -> c_int {
        // SAFETY: the channel is open as long as `self` lives, and nothing writes the field after its creation.
        unsafe { (*self.raw.as_ptr()).fd }
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel is open as long as it is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.raw_fd()) }
    }
}

impl Drop for RawChannel {
    fn drop(&mut self) {
        if self.context.is_inherited() {
            return;
        }
        // SAFETY: made by ibv_create_comp_channel and destroyed only here, after its CQs, which hold it.
        let _ = unsafe { ffi::ibv_destroy_comp_channel(self.raw.as_ptr()) };
    }
}

impl fmt::Debug for CompChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompChannel").field("fd", &self.0.raw_fd()).finish_non_exhaustive()
    }
}
