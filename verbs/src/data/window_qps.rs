//! The QPs of a CQ through which memory windows were bound.

use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

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
    tokens: QpTokens,
    pd: Weak<PdInner>,
}

/// What tells the completions of a QP from those that a destroyed QP with its number has left.
#[derive(Clone, Copy)]
pub(super) struct QpTokens {
    pub(super) qp_num: u32,
    /// The upper half of the tokens of its sends. `None` at a CQ that they do not report to: it means another queue there.
    pub(super) sends: Option<u32>,
    /// The same of its receives, or of those of its SRQ. `None` also for an SRQ from which a destroyed QP with this number may
    /// have left receives: which of the two a receive is of is not known, so none of them ends a binding.
    pub(super) receives: Option<u32>,
}

impl QpTokens {
    /// Those of one of the CQs of its sends and of its receives.
    pub(super) fn at<C>(self, cq: &C, [of_sends, of_receives]: [&C; 2]) -> Self {
        let [sends, receives] = [(self.sends, of_sends), (self.receives, of_receives)]
            .map(|(tokens, own)| tokens.filter(|_| ptr::eq(cq, own)));
        QpTokens { sends, receives, ..self }
    }

    /// Whether a completion is of this QP.
    fn has(&self, completion: &Completion) -> bool {
        let queue = if completion.opcode.is_recv() { self.receives } else { self.sends };
        self.qp_num == completion.qp_num && queue == Some((completion.wr_id >> 32) as u32)
    }
}

impl WindowQps {
    /// Adds a QP, before the first bind through it.
    pub(super) fn add(&self, tokens: QpTokens, pd: &Arc<PdInner>) {
        let mut qps = self.qps.lock();
        // A QP with the same number is destroyed, and so are its windows, which keep it.
        qps.retain(|other| other.tokens.qp_num != tokens.qp_num && other.pd.strong_count() > 0);
        qps.push(WindowQp { tokens, pd: Arc::downgrade(pd) });
        // The bind is posted after this.
        self.any.store(true, Ordering::Relaxed);
    }

    /// Removes a QP before its destruction. Another QP may have its number after that.
    pub(super) fn remove(&self, qp_num: u32) {
        self.qps.lock().retain(|other| other.tokens.qp_num != qp_num && other.pd.strong_count() > 0);
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
            let pd = qps.iter().find(|qp| qp.tokens.has(completion)).and_then(|qp| qp.pd.upgrade());
            if let Some(pd) = pd {
                pd.bindings().handle_completion(completion);
                pds.push(pd);
            }
        }
        drop(qps);
        polled
    }
}

#[cfg(test)]
mod tests {
    use cmid_proto::datapath::WcOpcode;

    use super::*;

    #[test]
    fn what_a_destroyed_qp_has_left_is_not_of_a_later_one_with_its_number() {
        let own = QpTokens { qp_num: 17, sends: Some(3), receives: Some(4) };
        let of =
            |qp_num, queue: u64, opcode| Completion { qp_num, wr_id: queue << 32 | 9, opcode, ..Completion::default() };
        assert!(own.has(&of(17, 3, WcOpcode::LOCAL_INV)) && own.has(&of(17, 4, WcOpcode::RECV)));
        for other in [
            of(17, 4, WcOpcode::LOCAL_INV),
            of(17, 3, WcOpcode::RECV),
            of(17, 5, WcOpcode::RECV),
            of(18, 4, WcOpcode::RECV),
        ] {
            assert!(!own.has(&other), "{other:?}");
        }
        // A number of a queue means another one at each CQ.
        let cqs = [&0_u8, &1, &2];
        let left = [of(17, 3, WcOpcode::LOCAL_INV), of(17, 4, WcOpcode::RECV)];
        let has = |cq| left.map(|completion| own.at(cq, [cqs[0], cqs[1]]).has(&completion));
        assert_eq!(cqs.map(has), [[true, false], [false, true], [false; 2]]);
        assert_eq!(own.at(cqs[0], [cqs[0]; 2]).receives, own.receives);
        let unsure = QpTokens { receives: None, ..own };
        assert!(!unsure.has(&of(17, 4, WcOpcode::RECV)) && unsure.has(&of(17, 3, WcOpcode::LOCAL_INV)));
    }
}
