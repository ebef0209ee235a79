//! What soft-iWARP does otherwise than soft-RoCE when something fails (`siw_qp.c`, `siw_qp_rx.c`, `siw_qp_tx.c`).

use cmid_proto::datapath::{WcOpcode, WcStatus};

use crate::data::memory::{IbMr, Memory};
use crate::data::packet::Extra;
use crate::data::pending::{Pending, is_read};
use crate::data::qp::PairState;
use crate::data::queues::Pair;
use crate::data::receive::Receive;
use crate::fabric::world::World;
use crate::index::{PdNo, QpNo};

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
            Err(WcStatus::LOC_LEN_ERR)
        } else {
            self.put(pd, &receive.ranges, bytes).ok_or(WcStatus::GENERAL_ERR)
        };
        let answer = put.as_ref().map(|_| Vec::new()).map_err(|status| *status);
        let is_done = |rkey| self.memory.invalidate_mr(pd, rkey).is_some();
        let outcome =
            put.and_then(|put| if invalidate.is_none_or(is_done) { Ok(put) } else { Err(WcStatus::REM_INV_REQ_ERR) });
        // `siw_rqe_complete` tells neither that it is solicited nor what was invalidated.
        self.finish_receive(qp, receive, receive.ended(outcome, WcOpcode::RECV, Extra::default()));
        answer
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

    /// Whether libsiw does not ring for new requests: the kernel takes none, or the one before is in the queue and will
    /// never be sent.
    pub(super) fn rings_no_more(&self) -> bool {
        let is_left = |first| self.state == PairState::Closing && first <= self.rung;
        self.state == PairState::Suspended || self.unsent().is_some_and(is_left)
    }
}

impl Memory {
    /// `siw_invalidate_stag`: makes a region of the domain useless. The low byte of the key is not compared.
    fn invalidate_mr(&mut self, pd: PdNo, rkey: u32) -> Option<()> {
        let is_named = |mr: &IbMr| mr.pd == pd && mr.keys.rkey >> 8 == rkey >> 8;
        let named = self.mrs.keys_of(|_, mr| is_named(mr)).pop()?;
        self.mrs.get_mut(&named)?.hardware = None;
        Some(())
    }
}
