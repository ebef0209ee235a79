//! Completion queues.

use core::fmt;
use core::mem::offset_of;
use core::ptr::{self, NonNull};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use cmid_proto::Errno;

use crate::channel::set_nonblocking;
use crate::data::Context;
use crate::errno;
use crate::ffi::{
    self, PollCq, ReqNotifyCq, c_int, ibv_comp_channel, ibv_cq, ibv_wc, ibv_wc_flags, ibv_wc_opcode, ibv_wc_status,
};

/// A completion queue with a completion channel of its own. Cheap to clone; any thread may use it.
#[derive(Clone)]
pub struct Cq(Arc<CqInner>);

/// Destroyed when neither a handle nor a QP needs it any more.
pub(crate) struct CqInner {
    raw: NonNull<ibv_cq>,
    poll: PollCq,
    request_notification: ReqNotifyCq,
    // Dropped after the CQ, in this order.
    channel: CompChannel,
    context: Arc<Context>,
}

/// The `ibv_comp_channel` of one CQ.
struct CompChannel(NonNull<ibv_comp_channel>);

// SAFETY: libibverbs is thread-safe: a CQ may be polled, armed and acked by several threads at a time, and neither it nor
// its channel is tied to a thread.
unsafe impl Send for CqInner {}
// SAFETY: as above.
unsafe impl Sync for CqInner {}

/// One completion, laid out as `struct ibv_wc`, so that the device's library fills it in place.
///
/// Of a failed one only `wr_id`, `status` and `qp_num` mean something (ibv_poll_cq(3)).
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Completion {
    /// The number that was given when posting.
    pub wr_id: u64,
    /// How it ended.
    pub status: WcStatus,
    /// What it was: one of the constants of this type.
    pub opcode: u32,
    vendor_err: u32,
    /// How many bytes were received or read; for a datagram with the [`GRH_LEN`](crate::GRH_LEN) bytes in front.
    pub byte_len: u32,
    imm_data: u32,
    /// The number of the QP that it was posted to.
    pub qp_num: u32,
    /// For a datagram that was received, the QP that sent it.
    pub src_qp: u32,
    wc_flags: u32,
    pkey_index: u16,
    slid: u16,
    sl: u8,
    dlid_path_bits: u8,
}

// `poll` hands a slice of these to C as an array of ibv_wc.
const _: () = assert!(size_of::<Completion>() == size_of::<ibv_wc>());
const _: () = assert!(align_of::<Completion>() == align_of::<ibv_wc>());
const _: () = assert!(offset_of!(Completion, wr_id) == offset_of!(ibv_wc, wr_id));
const _: () = assert!(offset_of!(Completion, status) == offset_of!(ibv_wc, status));
const _: () = assert!(offset_of!(Completion, opcode) == offset_of!(ibv_wc, opcode));
const _: () = assert!(offset_of!(Completion, vendor_err) == offset_of!(ibv_wc, vendor_err));
const _: () = assert!(offset_of!(Completion, byte_len) == offset_of!(ibv_wc, byte_len));
const _: () = assert!(offset_of!(Completion, qp_num) == offset_of!(ibv_wc, qp_num));
const _: () = assert!(offset_of!(Completion, src_qp) == offset_of!(ibv_wc, src_qp));
const _: () = assert!(offset_of!(Completion, wc_flags) == offset_of!(ibv_wc, wc_flags));
const _: () = assert!(offset_of!(Completion, slid) == offset_of!(ibv_wc, slid));
const _: () = assert!(offset_of!(Completion, sl) == offset_of!(ibv_wc, sl));
const _: () = assert!(offset_of!(Completion, dlid_path_bits) == offset_of!(ibv_wc, dlid_path_bits));

impl Completion {
    /// [`Qp::post_send`](crate::Qp::post_send) (`IBV_WC_SEND`).
    pub const SEND: u32 = ibv_wc_opcode::IBV_WC_SEND;
    /// [`Qp::post_write`](crate::Qp::post_write) (`IBV_WC_RDMA_WRITE`).
    pub const WRITE: u32 = ibv_wc_opcode::IBV_WC_RDMA_WRITE;
    /// [`Qp::post_read`](crate::Qp::post_read) (`IBV_WC_RDMA_READ`).
    pub const READ: u32 = ibv_wc_opcode::IBV_WC_RDMA_READ;
    /// [`Qp::post_recv`](crate::Qp::post_recv) (`IBV_WC_RECV`).
    pub const RECV: u32 = ibv_wc_opcode::IBV_WC_RECV;

    /// Whether a datagram that was received has a global route header in front, and not just room for one. On RoCE
    /// always.
    #[must_use]
    pub fn has_grh(&self) -> bool {
        self.wc_flags & ibv_wc_flags::IBV_WC_GRH.0 != 0
    }
}

/// How a work request ended (`enum ibv_wc_status`, ibv_poll_cq(3)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct WcStatus(pub u32);

impl WcStatus {
    /// It was done.
    pub const SUCCESS: WcStatus = WcStatus(ibv_wc_status::IBV_WC_SUCCESS);
    /// The message did not fit, here or in the receive buffer.
    pub const LOC_LEN_ERR: WcStatus = WcStatus(ibv_wc_status::IBV_WC_LOC_LEN_ERR);
    /// The local memory was not registered, not of this PD, or without the right that it takes.
    pub const LOC_PROT_ERR: WcStatus = WcStatus(ibv_wc_status::IBV_WC_LOC_PROT_ERR);
    /// Not done: the QP was in the error state, or went there.
    pub const WR_FLUSH_ERR: WcStatus = WcStatus(ibv_wc_status::IBV_WC_WR_FLUSH_ERR);
    /// The peer's memory may not be used so.
    pub const REM_ACCESS_ERR: WcStatus = WcStatus(ibv_wc_status::IBV_WC_REM_ACCESS_ERR);
    /// The peer does not answer.
    pub const RETRY_EXC_ERR: WcStatus = WcStatus(ibv_wc_status::IBV_WC_RETRY_EXC_ERR);
    /// The peer had no receive posted for too long.
    pub const RNR_RETRY_EXC_ERR: WcStatus = WcStatus(ibv_wc_status::IBV_WC_RNR_RETRY_EXC_ERR);
}

impl Cq {
    pub(crate) fn create(context: Arc<Context>, depth: u32) -> Result<Self, Errno> {
        let depth = c_int::try_from(depth).map_err(|_| Errno::EINVAL)?;
        // SAFETY: the context is open; its operation table does not change after that.
        let (poll, request_notification) = unsafe {
            let operations = &(*context.as_ptr()).ops;
            (operations.poll_cq.ok_or(Errno::ENOSYS)?, operations.req_notify_cq.ok_or(Errno::ENOSYS)?)
        };
        let channel = CompChannel::create(&context)?;
        // SAFETY: context and channel are open and outlive the CQ; it has no application context, and takes vector 0,
        // which every device has.
        let raw = unsafe { ffi::ibv_create_cq(context.as_ptr(), depth, ptr::null_mut(), channel.0.as_ptr(), 0) };
        let raw = NonNull::new(raw).ok_or_else(errno::last)?;
        Ok(Cq(Arc::new(CqInner { raw, poll, request_notification, channel, context })))
    }

    pub(crate) fn inner(&self) -> &Arc<CqInner> {
        &self.0
    }

    /// Takes completions off the queue, as many as there are and fit, and says how many (ibv_poll_cq(3)).
    ///
    /// # Errors
    /// `EIO` if the provider fails.
    #[inline]
    pub fn poll(&self, completions: &mut [Completion]) -> Result<usize, Errno> {
        let room = c_int::try_from(completions.len()).unwrap_or(c_int::MAX);
        // SAFETY: the CQ is alive, the function is its provider's, and a Completion is laid out as an ibv_wc (asserted
        // above), all of whose bit patterns are values of it. There is room for `room` of them.
        let polled = unsafe { (self.0.poll)(self.0.raw.as_ptr(), room, completions.as_mut_ptr().cast()) };
        usize::try_from(polled).map_err(|_| Errno::EIO)
    }

    /// Asks for one notification, at the next completion (ibv_req_notify_cq(3)). Poll once more after it: what was
    /// completed before does not notify.
    ///
    /// # Errors
    /// What the provider answers.
    #[inline]
    pub fn arm(&self) -> Result<(), Errno> {
        // SAFETY: the CQ is alive and the function is its provider's; 0 asks for any completion, not only solicited ones.
        errno::of_ibv(unsafe { (self.0.request_notification)(self.0.raw.as_ptr(), 0) })
    }

    /// The descriptor of its completion channel: readable while a notification has not been taken. It is non-blocking.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel is open as long as the CQ is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.0.channel.raw_fd()) }
    }

    /// Takes the notifications that are there and says how many; never waits (ibv_get_cq_event(3)).
    ///
    /// They are acked at once, so that destroying the CQ has nothing to wait for.
    ///
    /// # Errors
    /// What reading the channel fails with, `EIO` on a device that is gone; never `EAGAIN`.
    pub fn take_notifications(&self) -> Result<u32, Errno> {
        let mut taken = 0;
        let result = loop {
            match self.take_notification() {
                Ok(true) => taken += 1,
                Ok(false) => break Ok(taken),
                Err(errno) => break Err(errno),
            }
        };
        if taken > 0 {
            // SAFETY: the CQ is alive, and `taken` notifications of it were taken and not acked before.
            unsafe { ffi::ibv_ack_cq_events(self.0.raw.as_ptr(), taken) };
        }
        result
    }

    fn take_notification(&self) -> Result<bool, Errno> {
        let (mut cq, mut context) = (ptr::null_mut(), ptr::null_mut());
        loop {
            // SAFETY: the channel is open and the results have places. The CQ that it reports is this one, the only one on
            // the channel.
            let returned = unsafe { ffi::ibv_get_cq_event(self.0.channel.0.as_ptr(), &raw mut cq, &raw mut context) };
            match if returned == 0 { Ok(()) } else { Err(errno::last()) } {
                Ok(()) => return Ok(true),
                Err(Errno(ffi::EAGAIN)) => return Ok(false),
                // Not by a non-blocking read, as far as is known.
                Err(Errno(ffi::EINTR)) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
}

impl CqInner {
    pub(crate) fn as_ptr(&self) -> *mut ibv_cq {
        self.raw.as_ptr()
    }

    pub(crate) fn is_on(&self, context: &Context) -> bool {
        self.context.as_ptr() == context.as_ptr()
    }
}

impl Drop for CqInner {
    fn drop(&mut self) {
        // SAFETY: made by ibv_create_cq and destroyed only here; QPs hold their CQs, so none is left. It does not wait: all
        // notifications were acked when they were taken. If the kernel refuses, it is leaked, and its channel with it
        // (ibv_destroy_comp_channel then answers EBUSY).
        let _ = unsafe { ffi::ibv_destroy_cq(self.raw.as_ptr()) };
    }
}

impl CompChannel {
    fn create(context: &Context) -> Result<Self, Errno> {
        // SAFETY: the context is open.
        let raw = unsafe { ffi::ibv_create_comp_channel(context.as_ptr()) };
        let channel = CompChannel(NonNull::new(raw).ok_or_else(errno::last)?);
        set_nonblocking(channel.raw_fd())?;
        Ok(channel)
    }

    fn raw_fd(&self) -> c_int {
        // SAFETY: the channel is open as long as `self` lives, and nobody writes the field after its creation.
        unsafe { (*self.0.as_ptr()).fd }
    }
}

impl Drop for CompChannel {
    fn drop(&mut self) {
        // SAFETY: made by ibv_create_comp_channel and destroyed only here, after its CQ.
        let _ = unsafe { ffi::ibv_destroy_comp_channel(self.0.as_ptr()) };
    }
}

impl fmt::Debug for Cq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cq").field("fd", &self.0.channel.raw_fd()).finish_non_exhaustive()
    }
}
