//! The queue pairs and completion queues of all hosts.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use cmid_proto::Errno;

use crate::data::cq::{Completion, CqNo, CqState, WcStatus, opcode};
use crate::data::memory::{MrKey, PdNo};
use crate::data::qp::{Caps, QpNo, QpState};
use crate::data::transfer::Packet;
use crate::host::HostNo;

/// A posted receive.
#[derive(Debug)]
pub(crate) struct Receive {
    pub(crate) wr_id: u64,
    pub(crate) mr: MrKey,
    pub(crate) range: Range<usize>,
}

/// A posted send, read or write that has not completed.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) sequence: u64,
    pub(crate) wr_id: u64,
    pub(crate) opcode: u32,
    /// Where a read puts what it gets.
    pub(crate) target: Option<(MrKey, Range<usize>)>,
}

#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) state: QpState,
    pub(crate) pd: PdNo,
    pub(crate) send_cq: CqNo,
    pub(crate) recv_cq: CqNo,
    pub(crate) caps: Caps,
    pub(crate) peer: Option<QpNo>,
    pub(crate) retry_count: u8,
    pub(crate) sends: VecDeque<Pending>,
    pub(crate) receives: VecDeque<Receive>,
    /// What the peer has sent and could not be carried out yet: no receive is posted, or the QP is not ready.
    pub(crate) inbound: VecDeque<Packet>,
    pub(crate) sequence: u64,
    /// An id has it; else it goes with its handle.
    pub(crate) attached: bool,
    /// Its handle lives.
    pub(crate) held: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Queues {
    pub(crate) cqs: BTreeMap<CqNo, CqState>,
    pub(crate) pairs: BTreeMap<QpNo, Pair>,
    next_cq: u64,
}

impl Queues {
    pub(crate) fn add_cq(&mut self, depth: usize, fd: Arc<OwnedFd>) -> CqNo {
        self.next_cq += 1;
        let no = CqNo(self.next_cq);
        self.cqs.insert(no, CqState::new(depth, fd));
        no
    }

    /// `ibv_modify_qp`, as far as librdmacm goes.
    pub(crate) fn modify(&mut self, qp: QpNo, to: QpState) -> Result<(), Errno> {
        let pair = self.pairs.get_mut(&qp).ok_or(Errno::EINVAL)?;
        let legal = match to {
            QpState::Init => pair.state == QpState::Init,
            QpState::Rtr => pair.state == QpState::Init,
            QpState::Rts => matches!(pair.state, QpState::Rtr | QpState::Rts),
            QpState::Err => true,
        };
        if !legal {
            return Err(Errno::EINVAL);
        }
        pair.state = to;
        Ok(())
    }

    pub(crate) fn set_peer(&mut self, qp: QpNo, peer: Option<(HostNo, u32)>, retry_count: u8) {
        if let Some(pair) = self.pairs.get_mut(&qp) {
            pair.peer = peer.map(|(host, num)| QpNo { host, num });
            pair.retry_count = retry_count;
        }
    }

    /// Adds a completion of a send queue; false if its queue overran.
    #[must_use]
    pub(crate) fn complete_send(&mut self, qp: QpNo, pending: &Pending, status: WcStatus, byte_len: u32) -> bool {
        let completion = Completion { wr_id: pending.wr_id, status, opcode: pending.opcode, byte_len, qp_num: qp.num };
        let cq = self.pairs.get(&qp).map(|pair| pair.send_cq);
        self.complete(cq, completion)
    }

    /// Adds a completion of a receive queue; false if its queue overran.
    #[must_use]
    pub(crate) fn complete_receive(&mut self, qp: QpNo, wr_id: u64, status: WcStatus, byte_len: u32) -> bool {
        let completion = Completion { wr_id, status, opcode: opcode::RECV, byte_len, qp_num: qp.num };
        let cq = self.pairs.get(&qp).map(|pair| pair.recv_cq);
        self.complete(cq, completion)
    }

    /// Completions for a queue that is gone go nowhere.
    fn complete(&mut self, cq: Option<CqNo>, completion: Completion) -> bool {
        cq.and_then(|cq| self.cqs.get_mut(&cq)).is_none_or(|cq| cq.complete(completion))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_qp_goes_from_init_by_rtr_to_rts_and_from_everywhere_to_err() {
        use QpState::{Err, Init, Rtr, Rts};
        let legal = [(Init, Init), (Init, Rtr), (Rtr, Rts), (Rts, Rts)];
        for from in [Init, Rtr, Rts, Err] {
            for to in [Init, Rtr, Rts, Err] {
                let mut queues = Queues::default();
                let qp = QpNo { host: HostNo(0), num: 1 };
                let pair = Pair {
                    state: from,
                    pd: PdNo(0),
                    send_cq: CqNo(0),
                    recv_cq: CqNo(0),
                    caps: Caps::default(),
                    peer: None,
                    retry_count: 0,
                    sends: VecDeque::new(),
                    receives: VecDeque::new(),
                    inbound: VecDeque::new(),
                    sequence: 0,
                    attached: true,
                    held: true,
                };
                queues.pairs.insert(qp, pair);
                let expected =
                    if to == Err || legal.contains(&(from, to)) { Ok(()) } else { Result::Err(Errno::EINVAL) };
                assert_eq!(queues.modify(qp, to), expected, "{from:?} to {to:?}");
            }
        }
    }
}
