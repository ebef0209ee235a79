//! The QPs of a CQ through which memory windows were bound.

use core::ffi::c_int;
use std::sync::Arc;
use std::sync::Weak;
use std::sync::atomic::{AtomicBool, Ordering};

use cmid_proto::datapath::Completion;
use cmid_proto::memory::Bindings;
use parking_lot::Mutex;

use crate::data::pd::PdInner;

/// The QPs of a CQ through which memory windows were bound, each with its PD, which records the bindings. A poll of a
/// CQ without such QPs does not look at its completions.
#[derive(Default)]
pub(super) struct WindowQps {
    any: AtomicBool,
    qps: Mutex<Vec<WindowQp>>,
}

struct WindowQp {
    qp_num: u32,
    /// The id of its queue of sends at the CQ, which tokens have.
    send_queue: u32,
    pd: Weak<PdInner>,
}

impl WindowQp {
    /// Whether a completion is of this QP. One that a destroyed QP has left may have the number of a later one; those of
    /// sends are told apart by their tokens.
    fn has(&self, completion: &Completion) -> bool {
        let is_send = !completion.opcode.is_recv();
        self.qp_num == completion.qp_num && (!is_send || (completion.wr_id >> 32) as u32 == self.send_queue)
    }
}

impl WindowQps {
    /// Adds a QP, before the first bind through it. `send_queue` is the upper half of the tokens of its sends.
    pub(super) fn add(&self, qp_num: u32, send_queue: u32, pd: &Arc<PdInner>) {
        let mut qps = self.qps.lock();
        // A QP with the same number is destroyed, and so are its windows, which keep it.
        qps.retain(|other| other.qp_num != qp_num && other.pd.strong_count() > 0);
        qps.push(WindowQp { qp_num, send_queue, pd: Arc::downgrade(pd) });
        // The bind is posted after this.
        self.any.store(true, Ordering::Relaxed);
    }

    /// Removes a QP before its destruction. Another QP may have its number after that.
    pub(super) fn remove(&self, qp_num: u32) {
        self.qps.lock().retain(|other| other.qp_num != qp_num && other.pd.strong_count() > 0);
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.any.load(Ordering::Relaxed)
    }

    /// Polls by this call, whose completions have tokens, and reports them to the PDs. The QPs stay the same meanwhile: none is destroyed
    /// before its completions are reported, and no other one gets its number. An invalidation that completes in the first
    /// poll after the first bind on another thread may be missed; its binding then ends with the window.
    #[cold]
    pub(super) fn poll(&self, completions: &mut [Completion], poll: impl FnOnce(&mut [Completion]) -> c_int) -> c_int {
        let qps = self.qps.lock();
        let polled = poll(completions);
        let count = usize::try_from(polled).unwrap_or(0);
        // Not dropped under the lock.
        let mut pds = Vec::new();
        for completion in completions.iter().take(count).filter(|completion| Bindings::concerns(completion)) {
            let pd = qps.iter().find(|qp| qp.has(completion)).and_then(|qp| qp.pd.upgrade());
            if let Some(pd) = pd {
                pd.bindings().handle_completion(completion);
                pds.push(pd);
            }
        }
        drop(qps);
        polled
    }
}
