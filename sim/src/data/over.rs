//! Whether work requests are over: no longer in flight, so that their blocks can come back.

use crate::data::queues::Queues;
use crate::data::receive::RecvOf;
use crate::index::QpNo;

impl Queues {
    /// Whether a QP exists, or has left completions; or an SRQ exists, or a QP has left completions of its receives.
    pub(crate) fn may_complete(&self, of: RecvOf) -> bool {
        match of {
            RecvOf::Qp(qp) => self.pairs.contains_key(&qp) || self.cqs.any(|cq| cq.holds(|ready| ready.qp == qp)),
            RecvOf::Srq(srq) => {
                self.srqs.get(srq).is_ok() || self.cqs.any(|cq| cq.holds(|ready| ready.receive_of == Some(of)))
            }
        }
    }

    /// Whether a receive is no longer in flight.
    pub(crate) fn is_receive_over(&self, of: RecvOf, sequence: u64) -> bool {
        self.recv_queue(of).map_or_else(|| !self.may_complete(of), |queue| queue.is_over(sequence))
    }

    /// Whether a request of the send queue is no longer in flight.
    pub(crate) fn is_send_over(&self, qp: QpNo, sequence: u64) -> bool {
        self.pairs.get(&qp).map_or_else(
            || !self.may_complete(RecvOf::Qp(qp)),
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
}
