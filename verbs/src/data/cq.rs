//! Completion queues.

use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, Ordering};
use core::{fmt, mem};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use cmid_proto::Errno;
use cmid_proto::datapath::CqRoom;
use cmid_proto::datapath::{Completion, CompletionQueue, CreateCall, CreateError};

use crate::accounting::cq_slots::CqSlots;
use crate::accounting::poll::{Poller, Provider};
use crate::accounting::slot_cache::SlotCache;
use crate::data::Context;
use crate::data::comp_channel::{CompChannel, RawChannel};
use crate::data::notifications::PendingNotifications;
use crate::data::resize::{PollCall, entries_of, usable};
use crate::data::window_qps::WindowQps;
use crate::errno;
use crate::ffi::{self, ReqNotifyCq, c_int, ibv_context, ibv_cq, ibv_moderate_cq, ibv_modify_cq_attr};
use crate::raw;

/// `IBV_CQ_ATTR_MODERATE`.
const MODERATE: u32 = 1;

/// A completion queue with its own completion channel, or a shared one. It can move between threads. One thread at a
/// time polls: a poll takes `&mut self`, because it ends the work in flight (see [`Mr`](crate::Mr)).
///
/// After the handle is dropped, the CQ exists until its last QP is destroyed.
///
/// # What does not compile
///
/// Polling it on two threads at a time:
///
/// ```compile_fail,E0499
/// # use cmid_verbs::Cq;
/// # use cmid_verbs::datapath::prelude::*;
/// fn both(cq: &mut Cq) {
///     std::thread::scope(|scope| {
///         scope.spawn(|| cq.poll_one().is_ok());
///         scope.spawn(|| cq.poll_one().is_ok());
///     });
/// }
/// ```
#[doc(alias = "ibv_cq")]
pub struct Cq {
    inner: Arc<CqInner>,
    slot_cache: SlotCache,
    pending_notifications: PendingNotifications,
    /// Whether [`wait`](CompletionQueue::wait) has armed it, and no notification was taken since. Only a wait sets it.
    is_awaited: AtomicBool,
}

/// Destroyed after the handle and all QPs of it.
pub(crate) struct CqInner {
    /// The work queues that report to it.
    cq_slots: CqSlots,
    raw: NonNull<ibv_cq>,
    poll: PollCall,
    request_notification: ReqNotifyCq,
    /// Whether other CQs may use the channel.
    shares_channel: bool,
    window_qps: WindowQps,
    // Dropped after the CQ.
    channel: Arc<RawChannel>,
}

// SAFETY: libibverbs is thread-safe: several threads may poll, arm and ack a CQ at a time. Neither it nor its channel
// is tied to a thread.
unsafe impl Send for CqInner {}
// SAFETY: libibverbs is thread-safe: it locks a CQ itself. The slots are behind a lock and an atomic.
unsafe impl Sync for CqInner {}

impl Cq {
    /// Creates a CQ with its own channel.
    pub(crate) fn create(context: Arc<Context>, depth: u32, vector: u32) -> Result<Self, Errno> {
        Cq::on(Arc::new(RawChannel::create(context)?), false, depth, vector)
    }

    pub(crate) fn create_with_channel(channel: &CompChannel, depth: u32, vector: u32) -> Result<Self, Errno> {
        Cq::on(Arc::clone(channel.raw()), true, depth, vector)
    }

    fn on(channel: Arc<RawChannel>, shares_channel: bool, depth: u32, vector: u32) -> Result<Self, Errno> {
        let context = channel.context();
        let number = |value| c_int::try_from(value).map_err(|_| Errno::EINVAL);
        let each = context.entries_each();
        let (entries, vector) = (number(depth.saturating_mul(each))?, number(vector)?);
        // SAFETY: the context is open; its operation table does not change after that.
        let (poll, request_notification) = unsafe {
            let operations = &(*context.as_ptr()).ops;
            (operations.poll_cq.ok_or(Errno::ENOSYS)?, operations.req_notify_cq.ok_or(Errno::ENOSYS)?)
        };
        // SAFETY: context and channel are open and outlive the CQ; it has no application context. The kernel
        // refuses a vector that the device does not have.
        let raw = errno::of_new(|| unsafe {
            ffi::ibv_create_cq(context.as_ptr(), entries, ptr::null_mut(), channel.as_ptr(), vector)
        })?;
        // SAFETY: the CQ was just created, and is alive.
        let cq_slots = CqSlots::new(usable(depth, unsafe { entries_of(raw) }, each));
        let inner = Arc::new(CqInner {
            cq_slots,
            raw,
            poll: PollCall::new(poll),
            request_notification,
            shares_channel,
            window_qps: WindowQps::default(),
            channel,
        });
        let (slot_cache, pending_notifications) = (SlotCache::default(), PendingNotifications::default());
        Ok(Cq { inner, slot_cache, pending_notifications, is_awaited: AtomicBool::new(false) })
    }

    pub(crate) fn inner(&self) -> &Arc<CqInner> {
        &self.inner
    }

    fn request_notification(&self, solicited_only: bool) -> Result<(), Errno> {
        // SAFETY: the CQ is alive and the function is its provider's.
        errno::of_call(|| unsafe {
            (self.inner.request_notification)(self.inner.raw.as_ptr(), c_int::from(solicited_only))
        })?;
        self.pending_notifications.armed();
        Ok(())
    }

    /// Acks notifications of its own channel that were just taken.
    fn taken(&self, taken: u32) {
        self.is_awaited.store(false, Ordering::Relaxed);
        // SAFETY: the CQ is alive and the only one on its channel, and these notifications were not acked before.
        unsafe { ffi::ibv_ack_cq_events(self.inner.raw.as_ptr(), taken) };
    }
}

impl CompletionQueue for Cq {
    /// Completions of a destroyed QP are dropped. Some devices remove them from the queue. When a call finds the queue
    /// empty, work of destroyed QPs no longer pins memory; the call also deregisters each [`Mr`](crate::Mr) that was dropped
    /// while such work pinned it. A call ends when it has dropped more completions than the queue has room for.
    ///
    /// # Errors
    /// `EIO` if the provider fails, or completes a work request that was not posted, twice, or out of order. The other
    /// completions of the same poll are returned before, or by the next call; of a provider that fails they may be lost
    /// (`mlx5_poll_cq`), and what they name stays pinned.
    #[inline(always)]
    fn poll(&mut self, completions: &mut [Completion]) -> Result<usize, Errno> {
        Poller::poll(self, completions)
    }

    fn wait(&mut self, completions: &mut [Completion]) -> Result<usize, Errno> {
        if self.inner.shares_channel {
            return Err(Errno::EINVAL);
        }
        loop {
            let polled = Poller::poll(self, completions)?;
            if polled > 0 {
                return Ok(polled);
            }
            if !*self.is_awaited.get_mut() {
                self.arm()?;
                *self.is_awaited.get_mut() = true;
                // Earlier completions cause no notification: poll once more.
                continue;
            }
            if completions.is_empty() || self.is_idle() && !self.inner.cq_slots.awaits_srq() {
                return Ok(0);
            }
            self.inner.channel.await_notification()?;
            self.pending_notifications.awaits_more();
            self.taken(1);
        }
    }

    fn num(&self) -> u32 {
        // SAFETY: the CQ is alive, and nothing writes the field after its creation.
        unsafe { (*self.inner.raw.as_ptr()).handle }
    }

    fn room(&self) -> CqRoom {
        self.inner.cq_slots.room()
    }

    fn resize(&mut self, depth: u32) -> Result<(), CreateError> {
        self.inner.resize(depth).map_err(CreateCall::ResizeCq.failed())
    }

    fn is_idle(&self) -> bool {
        self.slot_cache.is_idle(&self.inner.cq_slots)
    }

    fn arm(&self) -> Result<(), Errno> {
        self.request_notification(false)
    }

    fn arm_solicited(&self) -> Result<(), Errno> {
        self.request_notification(true)
    }

    fn moderate(&self, count: u16, period_us: u16) -> Result<(), Errno> {
        let moderate = ibv_moderate_cq { cq_count: count, cq_period: period_us };
        let mut attr = ibv_modify_cq_attr { attr_mask: MODERATE, moderate };
        // SAFETY: the CQ is alive, and the attributes are read during the call.
        unsafe { ffi::ibv_modify_cq(self.inner.raw.as_ptr(), &raw mut attr) }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.inner.channel.fd()
    }

    /// It takes at most as many notifications as were requested. One may remain if the CQ was armed again before the
    /// last one was taken, or if a provider notifies more often than requested. The descriptor is then still readable.
    ///
    /// # Errors
    /// `EINVAL` for a CQ on a shared channel; the errno of reading the channel; `EIO` on a device that is gone.
    fn take_notifications(&self) -> Result<u32, Errno> {
        if self.inner.shares_channel {
            return Err(Errno::EINVAL);
        }
        let take = || self.inner.channel.take_notification().map(|cq| cq.is_some());
        let (taken, result) = self.pending_notifications.take(take);
        if taken > 0 {
            self.taken(taken);
        }
        result.map(|()| taken)
    }
}

impl CqInner {
    pub(crate) fn as_ptr(&self) -> *mut ibv_cq {
        self.raw.as_ptr()
    }

    pub(super) fn raw(&self) -> NonNull<ibv_cq> {
        self.raw
    }

    pub(super) fn poll_call(&self) -> &PollCall {
        &self.poll
    }

    /// The QPs that report to it and through which windows were bound.
    pub(super) fn window_qps(&self) -> &WindowQps {
        &self.window_qps
    }

    /// Whether it was created in another process, before a fork.
    pub(crate) fn is_inherited(&self) -> bool {
        self.channel.context().is_inherited()
    }

    pub(crate) fn context(&self) -> &Context {
        self.channel.context()
    }

    pub(crate) fn is_on(&self, verbs: NonNull<ibv_context>) -> bool {
        self.channel.context().is(verbs)
    }
}

impl Poller for Cq {
    type Provider = CqInner;

    fn parts(&mut self) -> (&CqInner, &mut SlotCache) {
        (&self.inner, &mut self.slot_cache)
    }
}

impl Provider for CqInner {
    fn cq_slots(&self) -> &CqSlots {
        &self.cq_slots
    }

    /// Calls `ibv_poll_cq` on the slice. The caller has the handle of the CQ by `&mut`.
    fn poll(&self, completions: &mut [Completion]) -> c_int {
        if self.window_qps.is_empty() {
            self.call_poll(completions)
        } else {
            self.window_qps.poll(completions, |completions| self.call_poll(completions))
        }
    }
}

impl CqInner {
    fn call_poll(&self, completions: &mut [Completion]) -> c_int {
        let room = c_int::try_from(completions.len()).unwrap_or(c_int::MAX);
        // SAFETY: the CQ is alive, and the function is its provider's. A Completion is laid out as an ibv_wc (asserted
        // in completion.rs), and each bit pattern is a value of it. The slice has room for `room` of them.
        unsafe { (self.poll.get())(self.raw.as_ptr(), room, completions.as_mut_ptr().cast()) }
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        if self.inner.is_inherited() {
            // With the blocks of queues that are gone: their return to the pool takes a lock that another thread may have had.
            mem::forget((mem::take(&mut self.slot_cache), Arc::clone(&self.inner)));
            return;
        }
        // With some providers the poll itself writes to memory.
        self.slot_cache.close(&self.inner.cq_slots);
    }
}

impl Drop for CqInner {
    fn drop(&mut self) {
        if self.is_inherited() {
            return;
        }
        // SAFETY: made by ibv_create_cq and destroyed only here; QPs hold their CQs, so none is left. It waits at most
        // until another thread has acked a notification that it has just taken from a shared channel. If the kernel
        // refuses, it is leaked, and its channel with it (ibv_destroy_comp_channel then returns EBUSY).
        let _ = unsafe { ffi::ibv_destroy_cq(self.raw.as_ptr()) };
    }
}

impl Cq {
    /// Returns the `ibv_cq`; see [`raw`].
    ///
    /// # Safety
    /// The pointer is used only as long as `self` lives, and as [`raw`] says.
    #[must_use]
    pub unsafe fn raw_cq(&self) -> NonNull<raw::IbvCq> {
        self.inner.raw.cast()
    }
}

impl fmt::Debug for Cq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cq").field("fd", &self.inner.channel.raw_fd()).finish_non_exhaustive()
    }
}
