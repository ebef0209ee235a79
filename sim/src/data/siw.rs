//! What soft-iWARP does otherwise than soft-RoCE when something fails (`siw_qp.c`, `siw_qp_rx.c`, `siw_qp_tx.c`).

use cmid_proto::datapath::WcStatus;

use crate::data::memory::{IbMr, Memory};
use crate::data::pending::is_read;
use crate::data::qp::PairState;
use crate::data::queues::Pair;
use crate::data::receive::{Put, Receive};
use crate::fabric::world::World;
use crate::index::{PdNo, QpNo};

impl World {
    /// The outcome of a receive that a message has taken, and whether it ends the connection: an invalidation that fails does not
    /// (`siw_proc_send`, `siw_rdmap_complete`).
    pub(super) fn siw_receive(
        &mut self,
        pd: PdNo,
        receive: &Receive,
        bytes: &[u8],
        invalidate: Option<u32>,
    ) -> (Result<Put, WcStatus>, bool) {
        if bytes.len() > receive.len() {
            return (Err(WcStatus::LOC_LEN_ERR), true);
        }
        let Some(put) = self.put(pd, &receive.ranges, bytes) else { return (Err(WcStatus::GENERAL_ERR), true) };
        let is_done = invalidate.is_none_or(|rkey| self.memory.invalidate_mr(pd, rkey).is_some());
        (if is_done { Ok(put) } else { Err(WcStatus::REM_INV_REQ_ERR) }, false)
    }

    /// `siw_qp_cm_drop` of a QP that fails to send: TCP is closed. The QP stays in RTS, sends no more, and nothing is flushed.
    pub(super) fn siw_suspend(&mut self, qp: QpNo) {
        let Some(pair) = self.queues.pairs.get_mut(&qp).filter(|pair| pair.state == PairState::Rts) else { return };
        pair.state = PairState::Suspended;
        pair.inbound.clear();
        self.iw_qp_gone(qp);
    }

    /// The change to SQD that a disconnect makes: receives are flushed. Reads that await their answers are not, unless something
    /// else is being sent (`siw_qp_nextstate_from_rts`).
    pub(crate) fn siw_shut_down(&mut self, qp: QpNo) {
        let is_sending = |pair: &Pair| matches!(pair.state, PairState::Rts | PairState::Suspended);
        let Some(pair) = self.queues.pairs.get_mut(&qp).filter(|pair| is_sending(pair)) else { return };
        if pair.sends.iter().any(|pending| pending.action.is_some() || !is_read(pending.opcode)) {
            return self.qp_to_error(qp);
        }
        pair.state = PairState::Closing;
        self.flush_receives(qp);
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
