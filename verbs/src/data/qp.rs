//! Queue pairs.

use core::fmt;
use core::mem::MaybeUninit;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

use cmid_proto::Errno;
use cmid_proto::datapath::{Caps, Part, PostReason, QpState};

use parking_lot::Mutex;

use crate::accounting::work_queue::WorkQueues;
use crate::data::Piece;
use crate::data::blocks::QpBlocks;
use crate::data::cq::CqInner;
use crate::data::pd::PdUse;
use crate::data::post_checks::DatagramLimit;
use crate::data::poster::Poster;
use crate::data::qp_attrs::Chosen;
use crate::data::srq::SrqUse;
use crate::data::window_qps::QpTokens;
use crate::data::wr_api::{PostCalls, WrApi};
use crate::errno;
use crate::ffi::{self, PostRecv, PostSend, ibv_qp, ibv_qp_attr, ibv_qp_attr_mask, ibv_qp_init_attr};
use crate::raw;
use crate::sign::signed;

/// The handle of a queue pair, reliable connected or for datagrams. It can move between threads. One thread at a time
/// posts: a post takes `&mut self`, so recording work in flight needs no atomic read-modify-write (see
/// [`Mr`](crate::Mr)).
///
/// The QP is destroyed when it is detached from its id and the handle is dropped. That also deregisters each
/// [`Mr`](crate::Mr) that was dropped while this QP pinned it, which may block for the duration of `ibv_dereg_mr`. Work
/// in flight pins its memory until the CQs are polled empty after the destruction. On devices of QLogic (qedr) and
/// Chelsio it stays until the context is closed, in the error state, if completions of it were not polled: [drain] it
/// first.
///
/// A post checks that each MR is of the PD of the QP, that each range is inside its MR, and that the MR has the access
/// that the request needs. The device checks the rest.
///
/// [drain]: cmid_proto::datapath::Drain
#[doc(alias = "ibv_qp")]
pub struct Qp {
    pub(super) poster: Poster,
    /// The blocks that its requests have. Created by the first post of a block.
    pub(super) blocks: Option<Box<QpBlocks>>,
}

// The handle is moved when it is created and returned.
static_assertions::const_assert!(size_of::<Qp>() <= 128);

/// A QP. Its id and its handle hold it.
pub(crate) struct QpInner {
    pub(super) raw: NonNull<ibv_qp>,
    pub(super) wr_api: Option<WrApi>,
    pub(super) post_send: PostSend,
    pub(super) post_recv: PostRecv,
    pub(super) is_datagram: bool,
    pub(super) is_iwarp: bool,
    /// Whether the QP is known to be in RTS, or to have been.
    pub(super) sends: AtomicBool,
    /// The number of reads and atomic operations that the peer answers at a time, if `sends`; on iWARP from ESTABLISHED on.
    pub(super) initiator_depth: AtomicU8,
    /// The capacities as the provider has rounded them.
    pub(super) caps: Caps,
    /// What the program has chosen before RTS.
    pub(super) chosen: Chosen,
    pub(super) datagram_limit: DatagramLimit,
    /// Whether a window was bound through it.
    pub(super) has_windows: AtomicBool,
    /// Whether it is in the error state for good, and executes nothing any more.
    pub(super) is_stopped: AtomicBool,
    /// The blocks that the handle has left.
    pub(super) blocks: OnceLock<QpBlocks>,
    // Dropped after the QP.
    /// Parts that windows had, and that the peer may be writing to.
    pub(super) parts: Mutex<Vec<Arc<[Part<Piece>]>>>,
    pub(super) queues: WorkQueues<CqInner>,
    pub(super) srq: Option<SrqUse>,
    pub(super) pd: PdUse,
}

// SAFETY: libibverbs is thread-safe: several threads may post to, modify and query a QP at a time. A QP is tied to no
// thread.
unsafe impl Send for QpInner {}
// SAFETY: libibverbs is thread-safe. Of this crate's fields these change: the rings (`OnceLock`), and those of the
// slots and the PD, which are behind locks or atomics.
unsafe impl Sync for QpInner {}

impl Qp {
    pub(crate) fn new(inner: Arc<QpInner>) -> Self {
        Qp { poster: Poster::new(inner), blocks: None }
    }

    /// Returns the calls that post to the send queue.
    #[must_use]
    pub fn post_calls(&self) -> PostCalls {
        if self.poster.wr_api.is_some() { PostCalls::Extended } else { PostCalls::Classic }
    }
}

impl QpInner {
    pub(crate) fn as_ptr(&self) -> *mut ibv_qp {
        self.raw.as_ptr()
    }

    pub(crate) fn qp_num(&self) -> u32 {
        // SAFETY: the QP is alive, and its number does not change.
        unsafe { (*self.raw.as_ptr()).qp_num }
    }

    /// Prepares for the first bind of a window: the PD gets to know the completions of the QP from now on. `token` is one of
    /// its sends.
    pub(super) fn add_window(&self, token: u64) {
        let (pd, qp_num) = (self.pd.inner(), self.qp_num());
        let receives = self.srq.as_ref().map_or_else(|| self.queues.recv_queue(), SrqUse::tokens);
        let (tokens, cqs) = (QpTokens { qp_num, sends: Some((token >> 32) as u32), receives }, self.queues.cqs());
        pd.bindings().reuse(qp_num);
        cqs.into_iter().for_each(|cq| cq.window_qps().add(tokens.at(cq, cqs), pd));
    }

    /// Whether the request of its send queue of this number, which was posted, may still be executed.
    pub(super) fn may_execute(&self, number: u32) -> bool {
        !self.is_stopped.load(Ordering::Acquire) && self.queues.has_send_in_flight(number)
    }

    /// Notes that it executes nothing any more: the windows that its requests name can go.
    pub(super) fn note_stopped(&self) {
        self.is_stopped.store(true, Ordering::Release);
        if self.has_windows.load(Ordering::Relaxed) {
            self.pd.inner().parked().released();
        }
    }

    /// Forgets its binds and invalidations, before its destruction. The windows that were bound through it are
    /// deallocated, because they hold it.
    #[cold]
    fn end_windows(&self) {
        let qp_num = self.qp_num();
        self.pd.inner().bindings().reuse(qp_num);
        self.queues.cqs().into_iter().for_each(|cq| cq.window_qps().remove(qp_num));
    }

    /// Keeps the blocks of requests whose handle is dropped, until the queues are drained.
    pub(super) fn keep(&self, blocks: QpBlocks) {
        if self.is_inherited() {
            core::mem::forget(blocks);
        } else if let Err(again) = self.blocks.set(blocks) {
            // There is one handle.
            core::mem::forget(again);
        }
    }

    /// Keeps parts until the QP is destroyed. Other QPs may keep them too.
    pub(super) fn keep_parts(&self, parts: &Arc<[Part<Piece>]>) {
        self.parts.lock().push(Arc::clone(parts));
    }

    /// Whether it was made in another process, before a fork.
    pub(super) fn is_inherited(&self) -> bool {
        self.pd.inner().is_inherited()
    }

    /// The capacities as requested.
    pub(super) fn requested(&self) -> &Caps {
        self.queues.caps()
    }

    pub(super) fn query_state(&self) -> Result<QpState, Errno> {
        Ok(QpState(self.query(ibv_qp_attr_mask::IBV_QP_STATE.0)?.qp_state))
    }

    pub(super) fn query(&self, mask: u32) -> Result<ibv_qp_attr, Errno> {
        let (mut attr, mut init) = (MaybeUninit::<ibv_qp_attr>::zeroed(), MaybeUninit::<ibv_qp_init_attr>::zeroed());
        // SAFETY: the QP is alive and the results have places; they are zeroed, which is a value of both types.
        unsafe {
            errno::of_call(|| {
                ffi::ibv_query_qp(self.raw.as_ptr(), attr.as_mut_ptr(), signed(mask), init.as_mut_ptr())
            })?;
            Ok(attr.assume_init())
        }
    }

    /// Notes that the QP is in RTS, with this number of reads and atomic operations. On iWARP the number is that of the
    /// kernel's connection, which the QP does not tell.
    pub(super) fn note_sends(&self, initiator_depth: u8) {
        if !self.is_iwarp {
            self.initiator_depth.store(initiator_depth, Ordering::Relaxed);
        }
        self.sends.store(true, Ordering::Release);
    }

    /// Whether the peer is known to answer no reads and atomic operations. Called if the QP sends.
    pub(super) fn is_unanswered(&self) -> bool {
        self.initiator_depth.load(Ordering::Relaxed) == 0
    }

    /// Queries whether the QP is in RTS or was: another party moves it there, librdmacm or the kernel (iWARP).
    ///
    /// # Errors
    /// If not, or if the query fails.
    pub(super) fn learn_whether_it_sends(&self) -> Result<(), PostReason> {
        let mask = ibv_qp_attr_mask::IBV_QP_STATE.0 | ibv_qp_attr_mask::IBV_QP_MAX_QP_RD_ATOMIC.0;
        let attr = self.query(mask).map_err(PostReason::StateUnknown)?;
        if attr.qp_state < QpState::RTS.0 {
            // Soft-iWARP before Linux 6.8 does not tell the state, and says 0: it was made in INIT, and sends from ESTABLISHED on.
            let state = if self.is_iwarp { attr.qp_state.max(QpState::INIT.0) } else { attr.qp_state };
            return Err(PostReason::TooEarly(QpState(state)));
        }
        self.note_sends(attr.max_rd_atomic);
        Ok(())
    }
}

impl Drop for QpInner {
    fn drop(&mut self) {
        let blocks = self.blocks.take().map(QpBlocks::into_queues);
        if self.is_inherited() {
            core::mem::forget((blocks, core::mem::take(self.parts.get_mut())));
            return;
        }
        if *self.has_windows.get_mut() {
            self.end_windows();
        }
        self.srq.iter().for_each(SrqUse::leaves);
        // SAFETY: made by `QpInner::create` and destroyed only here. No id points at it: an `Id` with a QP holds it,
        // and detaches it from its multicast groups before it drops it (the kernel would refuse otherwise). The call
        // waits at most until another thread has acked an asynchronous event. If the kernel refuses, the QP is leaked,
        // and with it the memory that its work requests name.
        let destroy = || errno::of_call(|| unsafe { ffi::ibv_destroy_qp(self.raw.as_ptr()) }).is_ok();
        let pd = self.pd.inner();
        let destroyed = match pd.late_writers() {
            _ if !pd.vendor().destroys(self.queues.is_idle()) => {
                self.to_error();
                false
            }
            Some(qps) => qps.remove(self.raw, destroy),
            None => destroy(),
        };
        let over = if destroyed {
            self.queues.close(pd, blocks)
        } else {
            self.queues.leak(pd);
            core::mem::forget((blocks, core::mem::take(self.parts.get_mut())));
            if let Some(srq) = self.srq.take() {
                srq.leak();
            }
            [None, None]
        };
        pd.parked().released();
        // Last, because the owner of a buffer may panic.
        drop(over);
    }
}

impl Qp {
    /// Returns the `ibv_qp`; see [`raw`].
    ///
    /// # Safety
    /// The pointer is used only as long as `self` lives, and as [`raw`] says.
    #[must_use]
    pub unsafe fn raw_qp(&self) -> NonNull<raw::IbvQp> {
        self.poster.inner.raw.cast()
    }
}

impl fmt::Debug for Qp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Qp").field("num", &self.poster.inner.qp_num()).finish_non_exhaustive()
    }
}
