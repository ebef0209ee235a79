//! What soft-iWARP does otherwise than soft-RoCE when something fails (`siw_qp.c`, `siw_qp_rx.c`, `siw_qp_tx.c`).

use cmid_proto::datapath::{AsyncEventKind, AsyncSource, WcFlags, WcOpcode, WcStatus};

use crate::data::memory::{IbMr, Keyed, Memory};
use crate::data::packet::{Extra, Operation};
use crate::data::pending::{Order, Pending, is_read};
use crate::data::qp::PairState;
use crate::data::queues::Pair;
use crate::data::receive::Receive;
use crate::fabric::world::World;
use crate::index::{HostNo, PdNo, QpNo};

impl World {
    /// Ends a receive that a message has taken. An error ends the connection, but for an invalidation that fails
    /// (`siw_proc_send`, `siw_rdmap_complete`).
    pub(super) fn siw_receive(
        &mut self,
        qp: QpNo,
        pd: PdNo,
        receive: &Receive,
        bytes: &[u8],
        invalidate: Option<u32>,
    ) -> Result<Vec<u8>, WcStatus> {
        let put = if bytes.len() > receive.len() {
            self.siw_event(qp, AsyncEventKind::QP_FATAL);
            Err(WcStatus::LOC_LEN_ERR)
        } else {
            let put = self.put(pd, &receive.ranges, bytes).ok_or(WcStatus::GENERAL_ERR);
            put.inspect_err(|_| self.siw_event(qp, AsyncEventKind::QP_ACCESS_ERR))
        };
        let answer = put.as_ref().map(|_| Vec::new()).map_err(|status| *status);
        let is_done = |rkey| self.memory.invalidate_mr(pd, rkey).is_some();
        let outcome =
            put.and_then(|put| if invalidate.is_none_or(is_done) { Ok(put) } else { Err(WcStatus::REM_INV_REQ_ERR) });
        // `siw_rqe_complete` tells neither that it is solicited nor what was invalidated, and libsiw sets no flag (`copy_cqe`).
        let mut received = receive.ended(outcome, WcOpcode::RECV, Extra::default());
        received.completion.flags = WcFlags::empty();
        self.finish_receive(qp, receive, received);
        answer
    }

    /// Ends the connection of a QP that refuses a packet. One that may not answer a read fails to send (`siw_qp_sq_process`).
    /// A write with a key of nothing is not reported (`siw_proc_write`), and a send was, if it had a receive.
    pub(super) fn siw_refuse(&mut self, qp: QpNo, operation: &Operation) {
        match operation {
            Operation::Read(_) => {
                self.siw_event(qp, AsyncEventKind::QP_REQ_ERR);
                return self.siw_suspend(qp);
            }
            Operation::Write(range, ..) if self.memory.has_mr(qp.host, range.key) => {
                self.siw_event(qp, AsyncEventKind::QP_ACCESS_ERR);
            }
            Operation::Write(..) | Operation::Send(..) | Operation::CompareSwap(..) | Operation::FetchAdd(..) => {}
        }
        self.qp_to_error(qp);
    }

    /// Reports what siw reports of a failing QP.
    pub(super) fn siw_event(&mut self, qp: QpNo, kind: AsyncEventKind) {
        if let Some(pd) = self.queues.pairs.get(&qp).map(|pair| pair.pd) {
            self.raise(pd, kind, AsyncSource::Qp(qp.num));
        }
    }

    /// `siw_qp_cm_drop` of a QP that fails to send: TCP is closed. The QP stays in RTS, sends no more, and nothing is
    /// flushed.
    pub(super) fn siw_suspend(&mut self, qp: QpNo) {
        let Some(pair) = self.queues.pairs.get_mut(&qp).filter(|pair| pair.state == PairState::Rts) else { return };
        pair.state = PairState::Suspended;
        pair.inbound.clear();
        self.iw_qp_gone(qp);
    }

    /// The change to SQD that a disconnect makes: receives are flushed. Reads that await their answers are not, unless
    /// something else is being sent (`siw_qp_nextstate_from_rts`).
    pub(crate) fn siw_shut_down(&mut self, qp: QpNo) {
        let is_sending = |pair: &Pair| matches!(pair.state, PairState::Rts | PairState::Suspended);
        let Some(pair) = self.queues.pairs.get_mut(&qp).filter(|pair| is_sending(pair)) else { return };
        let is_idle = |first| pair.state == PairState::Suspended && first <= pair.rung;
        if !pair.unsent().is_none_or(is_idle) {
            return self.qp_to_error(qp);
        }
        pair.state = PairState::Closing;
        self.flush_receives(qp);
    }
}

impl Pair {
    /// The first request that is not sent. In a suspended QP the kernel has begun with it if its doorbell was rung
    /// afterwards.
    fn unsent(&self) -> Option<u64> {
        let is_unsent = |pending: &Pending| pending.action.is_some() || !is_read(pending.opcode);
        self.sends.iter().find(|pending| is_unsent(pending)).map(|pending| pending.sequence)
    }

    /// Whether soft-iWARP reports SQ_DRAINED when it flushes: the kernel has not begun with a request of the queue. It begins
    /// with one that waits, and in a suspended QP with the first one whose doorbell was rung afterwards (`siw_sq_flush`).
    pub(super) fn drains(&self) -> bool {
        let has_begun = |first: &Pending| (first.sequence > self.rung) == (self.state == PairState::Suspended);
        let mut unsent = self.sends.iter().filter(|pending| pending.action.is_some());
        let is_queued = unsent.next().is_some_and(|first| !has_begun(first) || unsent.next().is_some());
        is_queued && self.order == Order::OfTransport
    }

    /// Whether libsiw does not ring for new requests: the kernel takes none, or the one before is in the queue and will
    /// never be sent.
    pub(super) fn rings_no_more(&self) -> bool {
        let is_left = |first| self.state == PairState::Closing && first <= self.rung;
        self.state == PairState::Suspended || self.unsent().is_some_and(is_left)
    }
}

impl Memory {
    /// Whether a key is that of a region, also of an invalidated one.
    fn has_mr(&self, host: HostNo, key: u32) -> bool {
        let keyed = self.keyed.get(&key);
        keyed.is_some_and(|keyed| matches!(keyed, Keyed::Mr(mr) if self.mrs.get(mr).is_some_and(|mr| mr.host == host)))
    }

    /// `siw_invalidate_stag`: makes a region of the domain useless. The low byte of the key is not compared.
    fn invalidate_mr(&mut self, pd: PdNo, rkey: u32) -> Option<()> {
        let is_named = |mr: &IbMr| mr.pd == pd && mr.keys.rkey >> 8 == rkey >> 8;
        let named = self.mrs.keys_of(|_, mr| is_named(mr)).pop()?;
        self.mrs.get_mut(&named)?.hardware = None;
        Some(())
    }
}
