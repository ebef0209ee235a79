//! What a QP does with a packet of its peer, up to the answer.

use cmid_proto::datapath::{Access, WcOpcode, WcStatus};

use crate::data::packet::{Extra, Operation};
use crate::data::receive::{Put, Receive};
use crate::data::space::KeyedRange;
use crate::data::transfer::count;
use crate::fabric::world::World;
use crate::index::{MrHandle, PdNo, QpNo};

/// The result of a packet at its receiver.
pub(super) enum Handled {
    Answer(Result<Vec<u8>, WcStatus>),
    /// No receive is posted: the sender retries until one is.
    NotReady,
    /// A write or an atomic operation to this region is copied later.
    Later(MrHandle),
}

impl World {
    /// The length of a packet, except for the last one of a message.
    fn path_mtu(&self) -> usize {
        (self.config.mtu as usize).max(1)
    }

    pub(super) fn carry_out(&mut self, qp: QpNo, operation: &Operation) -> Handled {
        let Some(pair) = self.queues.pairs.get(&qp) else {
            return Handled::Answer(Err(WcStatus::RETRY_EXC_ERR));
        };
        let pd = pair.pd;
        let refused = Handled::Answer(Err(WcStatus::REM_ACCESS_ERR));
        match operation {
            Operation::Read(_) | Operation::CompareSwap(..) | Operation::FetchAdd(..) if !pair.answers_reads => {
                Handled::Answer(Err(WcStatus::REM_INV_REQ_ERR))
            }
            Operation::Send(bytes, extra) => match self.take_receive(qp) {
                None => Handled::NotReady,
                Some(receive) => self.receive_message(qp, pd, &receive, bytes, *extra),
            },
            Operation::Write(range, bytes, extra) => {
                // As rxe: the last packet takes the receive, and the first one checks the key. If that is the same packet, the
                // receive is taken before, and ends with the error.
                let (mtu, is_ready) = (self.path_mtu(), extra.is_none() || self.next_receive(qp).is_some());
                let before_last = bytes.len().saturating_sub(1) / mtu * mtu;
                if before_last == 0 && !is_ready {
                    return Handled::NotReady;
                }
                if self.memory.for_remote(qp, pd, *range, Access::REMOTE_WRITE).is_none() {
                    if let Some(extra) = extra.filter(|_| before_last == 0) {
                        self.receive_immediate(qp, Err(WcStatus::REM_ACCESS_ERR), extra);
                    }
                    return refused;
                }
                if !is_ready {
                    self.copy(range.addr, bytes.get(..before_last).unwrap_or_default());
                    return Handled::NotReady;
                }
                self.permitted(qp, *range, operation)
            }
            &Operation::Read(range) => {
                // siw checks no right of a peer that reads (`siw_qp_sq_proc_tx`).
                let needs = if self.is_iwarp(qp.host) { Access::empty() } else { Access::REMOTE_READ };
                match self.memory.for_remote(qp, pd, range, needs) {
                    Some(memory) => Handled::Answer(Ok(memory.to_vec())),
                    None => refused,
                }
            }
            &(Operation::CompareSwap(range, ..) | Operation::FetchAdd(range, _)) => {
                let memory = self.memory.for_remote(qp, pd, range, Access::REMOTE_ATOMIC);
                if memory.is_some_and(|memory| memory.len() == 8) {
                    self.permitted(qp, range, operation)
                } else {
                    refused
                }
            }
        }
    }

    /// Carries out a write or an atomic operation whose key is checked, or begins to.
    fn permitted(&mut self, qp: QpNo, range: KeyedRange, operation: &Operation) -> Handled {
        match self.memory.named_by(range.key).filter(|_| self.config.copies_late) {
            Some(mr) => Handled::Later(mr),
            None => {
                let answer = self.execute(operation);
                self.written(qp, operation);
                Handled::Answer(Ok(answer))
            }
        }
    }

    /// Copies the bytes of a write, or exchanges those of an atomic operation, in the byte order of this machine, as in rxe.
    /// Returns the answer.
    pub(super) fn execute(&mut self, operation: &Operation) -> Vec<u8> {
        let (range, change): (_, &dyn Fn(u64) -> u64) = match operation {
            Operation::Write(range, bytes, _) => {
                self.copy(range.addr, bytes);
                return Vec::new();
            }
            Operation::CompareSwap(range, compare, swap) => (range, &|old| if old == *compare { *swap } else { old }),
            Operation::FetchAdd(range, add) => (range, &|old| old.wrapping_add(*add)),
            Operation::Send(..) | Operation::Read(_) => return Vec::new(),
        };
        let old = self.memory.space.bytes(range.stretch()).and_then(|bytes| bytes.try_into().ok());
        let old = u64::from_ne_bytes(old.unwrap_or_default());
        self.copy(range.addr, &change(old).to_ne_bytes());
        old.to_ne_bytes().to_vec()
    }

    /// Executes a send, which consumes a receive.
    fn receive_message(&mut self, qp: QpNo, pd: PdNo, receive: &Receive, bytes: &[u8], extra: Extra) -> Handled {
        if self.is_iwarp(qp.host) {
            return Handled::Answer(self.siw_receive(qp, pd, receive, bytes, extra.invalidate));
        }
        let (mut outcome, answer) = if bytes.len() > receive.len() {
            // As rxe: `copy_data` returns EINVAL for a message that does not fit, and `send_data_in` takes that for a
            // malformed receive. Hardware reports LOC_LEN_ERR and REM_INV_REQ_ERR. The packets that fit are there.
            let fitting = receive.len() - receive.len() % self.path_mtu();
            self.put(pd, &receive.ranges, bytes.get(..fitting).unwrap_or_default());
            (Err(WcStatus::LOC_QP_OP_ERR), Err(WcStatus::REM_OP_ERR))
        } else {
            match self.put(pd, &receive.ranges, bytes) {
                Some(put) => (Ok(put), Ok(Vec::new())),
                None => (Err(WcStatus::LOC_PROT_ERR), Err(WcStatus::REM_OP_ERR)),
            }
        };
        if outcome.is_ok() {
            if let Some(rkey) = extra.invalidate {
                // As rxe: the message is acknowledged, also with the key of a region (`rxe_invalidate_mr`). Only the receive
                // fails, and its QP.
                if self.invalidate_mw(qp.host, rkey).is_none() {
                    outcome = Err(WcStatus::REM_INV_REQ_ERR);
                }
            }
        }
        let failed = outcome.is_err();
        self.finish_receive(qp, receive, receive.ended(outcome, WcOpcode::RECV, extra));
        if failed {
            self.qp_to_error(qp);
        }
        Handled::Answer(answer)
    }

    /// A write or an atomic operation has been copied.
    pub(super) fn written(&mut self, qp: QpNo, operation: &Operation) {
        if let Operation::Write(_, bytes, Some(extra)) = operation {
            let put = Put { byte_len: count(bytes.len()), scatter: Vec::new() };
            self.receive_immediate(qp, Ok(put), *extra);
        }
    }

    /// Executes a write with immediate data. It consumes a receive, and does not use the memory of the receive.
    fn receive_immediate(&mut self, qp: QpNo, outcome: Result<Put, WcStatus>, extra: Extra) {
        if let Some(receive) = self.take_receive(qp) {
            self.finish_receive(qp, &receive, receive.ended(outcome, WcOpcode::RECV_RDMA_WITH_IMM, extra));
        }
    }
}
