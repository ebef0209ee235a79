//! The QPs of a CQ through which memory windows were bound.

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
        // The bind is posted after this, and its completion is polled before the poller looks.
        self.any.store(true, Ordering::Relaxed);
    }

    /// Removes a QP before its destruction. Another QP may have its number after that.
    pub(super) fn remove(&self, qp_num: u32) {
        self.qps.lock().retain(|(other, pd)| *other != qp_num && pd.strong_count() > 0);
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.any.load(Ordering::Relaxed)
    }

    /// Reports polled completions to the PDs.
    #[cold]
    pub(super) fn note(&self, completions: &[Completion]) {
        for completion in completions.iter().filter(|completion| Bindings::concerns(completion)) {
            let qps = self.qps.lock();
            let pd = qps.iter().find(|(qp_num, _)| *qp_num == completion.qp_num).and_then(|(_, pd)| pd.upgrade());
            drop(qps);
            if let Some(pd) = pd {
                pd.bindings().handle_completion(completion);
            }
        }
    }
}
