//! QPs that have neither a handle nor an id, and their destruction.

use core::mem;
use core::ptr::NonNull;
use std::sync::Arc;

use cmid_proto::datapath::{Lent, Part};

use crate::accounting::work_queue::WorkQueues;
use crate::data::Piece;
use crate::data::cq::CqInner;
use crate::data::parked::TryEnd;
use crate::data::pd::PdUse;
use crate::data::srq::SrqUse;
use crate::errno;
use crate::ffi::{self, ibv_qp};

/// What is left of a [`QpInner`](crate::data::QpInner), which names the fields.
pub(super) struct LeftQp {
    pub(super) raw: NonNull<ibv_qp>,
    pub(super) blocks: Option<[Lent<Piece>; 2]>,
    pub(super) parts: Vec<Arc<[Part<Piece>]>>,
    pub(super) queues: WorkQueues<CqInner>,
    pub(super) srq: Option<SrqUse>,
    pub(super) pd: PdUse,
}

// SAFETY: libibverbs is thread-safe, and a QP is tied to no thread; the other fields are Send by themselves.
unsafe impl Send for LeftQp {}

impl TryEnd for LeftQp {
    /// Destroys it, unless its provider forbids that until its completions are polled. If the kernel refuses, or the
    /// device is gone before that, it is leaked, and with it the memory that its work requests name.
    fn try_end(&mut self) -> bool {
        let pd = self.pd.inner();
        let may_destroy = pd.vendor().destroys(self.queues.is_idle());
        if pd.is_inherited() || !may_destroy && !pd.is_gone() {
            return false;
        }
        self.srq.iter().for_each(SrqUse::leaves);
        // SAFETY: made by `QpInner::create` and destroyed only here, once, because an end that is not put off is the
        // last. No id points at it: an `Id` with a QP holds its `QpInner`, and detaches it from its multicast groups
        // before it drops it (the kernel would refuse otherwise). The call waits at most until another thread has acked
        // an asynchronous event.
        let destroy = || errno::of_call(|| unsafe { ffi::ibv_destroy_qp(self.raw.as_ptr()) }).is_ok();
        let destroyed = match pd.late_writers() {
            _ if !may_destroy => false,
            Some(qps) => qps.remove(self.raw, destroy),
            None => destroy(),
        };
        let over = if destroyed {
            self.queues.close(pd, self.blocks.take())
        } else {
            self.queues.leak(pd);
            mem::forget((self.blocks.take(), mem::take(&mut self.parts)));
            if let Some(srq) = self.srq.take() {
                srq.leak();
            }
            [None, None]
        };
        pd.parked().released();
        // Last, because the owner of a buffer may panic.
        drop(over);
        true
    }
}
