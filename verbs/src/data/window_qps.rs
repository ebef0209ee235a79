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
    qps: Mutex<Vec<(u32, Weak<PdInner>)>>,
}

impl WindowQps {
    /// Adds a QP, before the first bind through it.
    pub(super) fn add(&self, qp_num: u32, pd: &Arc<PdInner>) {
        let mut qps = self.qps.lock();
        // A QP with the same number is destroyed, and so are its windows, which keep it.
        qps.retain(|(other, pd)| *other != qp_num && pd.strong_count() > 0);
        qps.push((qp_num, Arc::downgrade(pd)));
        // The bind is posted after this.
        self.any.store(true, Ordering::Relaxed);
    }

    /// Removes a QP before its destruction. Another QP may have its number after that.
    pub(super) fn remove(&self, qp_num: u32) {
        self.qps.lock().retain(|(other, pd)| *other != qp_num && pd.strong_count() > 0);
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.any.load(Ordering::Relaxed)
    }

    /// Polls by this call, and reports the completions to the PDs. The QPs stay the same meanwhile: none is destroyed
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
            let pd = qps.iter().find(|(qp_num, _)| *qp_num == completion.qp_num).and_then(|(_, pd)| pd.upgrade());
            if let Some(pd) = pd {
                pd.bindings().handle_completion(completion);
                pds.push(pd);
            }
        }
        drop(qps);
        polled
    }
}
