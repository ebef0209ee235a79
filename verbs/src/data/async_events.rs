//! Asynchronous events of a device.

use core::ffi::c_int;
use core::fmt;
use core::mem::{MaybeUninit, offset_of};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use cmid_proto::Errno;
use cmid_proto::datapath::{AsyncEvent, AsyncEventKind, AsyncEventQueue, AsyncSource};

use crate::data::Context;
use crate::errno;
use crate::ffi::{self, ibv_async_event, ibv_cq, ibv_qp, ibv_srq};
use crate::librdmacm::set_nonblocking;
use crate::sign::unsigned;

/// The asynchronous events of a device. It keeps the device open.
pub struct AsyncEvents {
    context: Arc<Context>,
}

/// `struct ibv_async_event`. The type of the event is a number here, because newer libraries have types that the enum
/// of the bindings lacks.
#[repr(C)]
struct RawAsyncEvent {
    element: Element,
    event_type: c_int,
}

#[repr(C)]
#[derive(Clone, Copy)]
union Element {
    cq: *mut ibv_cq,
    qp: *mut ibv_qp,
    srq: *mut ibv_srq,
    port_num: c_int,
}

static_assertions::const_assert!(size_of::<RawAsyncEvent>() == size_of::<ibv_async_event>());
static_assertions::const_assert!(align_of::<RawAsyncEvent>() == align_of::<ibv_async_event>());
static_assertions::const_assert!(offset_of!(RawAsyncEvent, element) == offset_of!(ibv_async_event, element));
static_assertions::const_assert!(offset_of!(RawAsyncEvent, event_type) == offset_of!(ibv_async_event, event_type));

impl AsyncEvents {
    pub(crate) fn open(context: Arc<Context>) -> Result<Self, Errno> {
        if context.is_gone() {
            return Err(Errno::ENODEV);
        }
        let events = AsyncEvents { context };
        events.is_own()?;
        set_nonblocking(events.raw_fd(), true)?;
        Ok(events)
    }

    /// Refuses reads in a forked child: its parent would wait for ever for the ack of what the child has read, in the
    /// destruction of the object.
    fn is_own(&self) -> Result<(), Errno> {
        if self.context.is_inherited() { Err(Errno::EACCES) } else { Ok(()) }
    }

    fn raw_fd(&self) -> c_int {
        // SAFETY: the context is open as long as `self` lives, and nothing writes the field after it was opened.
        unsafe { (*self.context.as_ptr()).async_fd }
    }
}

impl AsyncEventQueue for AsyncEvents {
    fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the context is open as long as `self` is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.raw_fd()) }
    }

    fn next_event(&mut self) -> Result<Option<AsyncEvent>, Errno> {
        self.is_own()?;
        let mut raw = MaybeUninit::<RawAsyncEvent>::zeroed();
        // SAFETY: the context is open, and the result has a place of the right layout (asserted above).
        let read = || unsafe { ffi::ibv_get_async_event(self.context.as_ptr(), raw.as_mut_ptr().cast()) };
        if !errno::of_read(read)? {
            return Ok(None);
        }
        // SAFETY: the call has written it; zeros are a value of it too.
        let mut event = unsafe { raw.assume_init() };
        let kind = AsyncEventKind(unsigned(event.event_type));
        // SAFETY: it is the event that was just returned, and not acknowledged. Until it is, the library keeps its
        // object: a destruction on another thread waits for the acknowledgement.
        let source = unsafe { event.element.source(kind) };
        // SAFETY: as above; it is acknowledged once.
        unsafe { ffi::ibv_ack_async_event((&raw mut event).cast()) };
        Ok(Some(AsyncEvent { kind, source }))
    }
}

impl Element {
    /// # Safety
    /// The value is from an event of this kind that is not acknowledged.
    unsafe fn source(self, kind: AsyncEventKind) -> AsyncSource {
        match kind {
            AsyncEventKind::QP_FATAL
            | AsyncEventKind::QP_REQ_ERR
            | AsyncEventKind::QP_ACCESS_ERR
            | AsyncEventKind::COMM_EST
            | AsyncEventKind::SQ_DRAINED
            | AsyncEventKind::PATH_MIG
            | AsyncEventKind::PATH_MIG_ERR
            | AsyncEventKind::QP_LAST_WQE_REACHED => {
                // SAFETY: events of these kinds name a QP, which lives until they are acknowledged (the caller).
                AsyncSource::Qp(unsafe { (*self.qp).qp_num })
            }
            // SAFETY: as above, for a CQ.
            AsyncEventKind::CQ_ERR => AsyncSource::Cq(unsafe { (*self.cq).handle }),
            AsyncEventKind::SRQ_ERR | AsyncEventKind::SRQ_LIMIT_REACHED => {
                // SAFETY: as above, for an SRQ.
                AsyncSource::Srq(unsafe { (*self.srq).handle })
            }
            AsyncEventKind::PORT_ACTIVE
            | AsyncEventKind::PORT_ERR
            | AsyncEventKind::LID_CHANGE
            | AsyncEventKind::PKEY_CHANGE
            | AsyncEventKind::SM_CHANGE
            | AsyncEventKind::CLIENT_REREGISTER
            | AsyncEventKind::GID_CHANGE => {
                // SAFETY: every bit pattern is a value of an integer.
                AsyncSource::Port(u8::try_from(unsafe { self.port_num }).unwrap_or(0))
            }
            _ => AsyncSource::Device,
        }
    }
}

impl fmt::Debug for AsyncEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncEvents").field("fd", &self.raw_fd()).finish_non_exhaustive()
    }
}
