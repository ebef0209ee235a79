//! The poller's copy of the counting queues of a CQ; see wr_count.rs.

use std::collections::BTreeMap;
use std::sync::Arc;

use cmid_proto::datapath::Completion;

use crate::accounting::wr_ring::{RECEIVE, WrRing};

/// A counting queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CountedKey {
    pub(crate) qp_num: u32,
    pub(crate) is_recv: bool,
}

/// The rings of the counting queues of a CQ.
pub(crate) struct Counted {
    /// The QP of the last completion, and its queues of sends and of receives, by the upper two bits of their `wr_id`s.
    /// Most completions are of the same QP as the one before. Posts of the application itself have the upper bit.
    qp_num: u32,
    rings: [Option<Arc<WrRing>>; 4],
    by_qp_num: BTreeMap<u32, [Option<Arc<WrRing>>; 2]>,
}

/// A number that no QP has: QP numbers have 24 bits.
const NO_QP: u32 = u32::MAX;

impl Counted {
    pub(crate) fn new() -> Self {
        Counted { qp_num: NO_QP, rings: [const { None }; 4], by_qp_num: BTreeMap::new() }
    }

    /// Sets the ring of a queue, or removes it.
    pub(crate) fn set(&mut self, key: CountedKey, wr_ring: Option<Arc<WrRing>>) {
        self.qp_num = NO_QP;
        let rings = self.by_qp_num.entry(key.qp_num).or_default();
        let [sends, recvs] = rings;
        *(if key.is_recv { recvs } else { sends }) = wr_ring;
        if matches!(rings, [None, None]) {
            self.by_qp_num.remove(&key.qp_num);
        }
    }

    /// Counts a polled completion of the same QP as the last one, and returns the user's `wr_id`. `None` for another
    /// QP.
    #[inline(always)]
    pub(crate) fn retire_next(&self, completion: &Completion) -> Option<u64> {
        if completion.qp_num != self.qp_num {
            return None;
        }
        self.rings.get((completion.wr_id / RECEIVE) as usize)?.as_ref()?.count_retired();
        Some(completion.wr_id & !RECEIVE)
    }

    /// The same for any QP. `None` if its queue is not known: a destroyed QP has left the completion.
    #[cold]
    pub(crate) fn retire(&mut self, completion: &Completion) -> Option<u64> {
        let [sends, recvs] = self.by_qp_num.get(&completion.qp_num)?.clone();
        self.rings = [sends, recvs, None, None];
        self.qp_num = completion.qp_num;
        self.retire_next(completion)
    }
}
