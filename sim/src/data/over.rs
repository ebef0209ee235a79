//! Whether work requests are over: no longer in flight, so that their blocks can come back.

use crate::data::completion::Ready;
use crate::data::queues::Queues;
use crate::index::{QpNo, SrqNo};

impl Queues {
    /// Whether a QP exists, or has left completions.
    pub(crate) fn may_complete(&self, qp: QpNo) -> bool {
        self.pairs.get(&qp).is_some() || self.cqs.any(|cq| cq.holds(|ready| ready.qp == qp))
    }

    /// Whether an SRQ exists, or a QP has left completions of its receives.
    pub(crate) fn may_complete_of_srq(&self, srq: SrqNo) -> bool {
        let of_srq = |ready: &Ready| ready.srq_entry.is_some_and(|entry| entry.srq == srq);
        self.srqs.get(srq).is_ok() || self.cqs.any(|cq| cq.holds(of_srq))
    }

    /// Whether a request of the send queue is no longer in flight.
    pub(crate) fn is_send_over(&self, qp: QpNo, sequence: u64) -> bool {
        self.pairs.get(&qp).map_or_else(
            || !self.may_complete(qp),
            |pair| pair.filed.binary_search_by_key(&sequence, |filed| filed.sequence).is_err(),
        )
    }

    /// Whether one of these requests may still be executed, as far as a program knows: it is not polled, and its QP is on
    /// its id, which moves the QP to its error state when it ends.
    pub(crate) fn may_execute(&self, requests: &[(QpNo, u64)]) -> bool {
        let may = |&(qp, sequence): &(QpNo, u64)| {
            self.pairs.get(&qp).is_some_and(|pair| pair.attached) && !self.is_send_over(qp, sequence)
        };
        requests.iter().any(may)
    }

    /// Whether the receive of this number, counted from 1, is no longer in flight.
    pub(crate) fn is_receive_over(&self, qp: QpNo, number: u64) -> bool {
        self.pairs.get(&qp).map_or_else(
            || !self.may_complete(qp),
            |pair| number + u64::from(pair.unpolled_receives) <= pair.posted_receives,
        )
    }

    /// Whether a receive of an SRQ is no longer in flight.
    pub(crate) fn is_srq_receive_over(&self, srq: SrqNo, sequence: u64) -> bool {
        self.srqs.get(srq).map_or_else(|_| !self.may_complete_of_srq(srq), |srq| !srq.filed.contains_key(&sequence))
    }
}
