//! Completions, and the state of a completion queue.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use cmid_proto::{CqRoom, Errno, Overrun};

use crate::data::space::Scatter;
use crate::index::{PdNo, QpNo};
use crate::kernel::channel::signal_eventfd;

/// The status of a work request (`enum ibv_wc_status`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WcStatus(pub u32);

impl WcStatus {
    /// Success.
    pub const SUCCESS: WcStatus = WcStatus(0);
    /// The message is longer than the receive that was posted for it.
    pub const LOC_LEN_ERR: WcStatus = WcStatus(1);
    /// The device does not support the operation: invalidation of a window that is not bound.
    pub const LOC_QP_OP_ERR: WcStatus = WcStatus(2);
    /// The local memory does not permit this access.
    pub const LOC_PROT_ERR: WcStatus = WcStatus(4);
    /// The QP was in its error state, or entered it.
    pub const WR_FLUSH_ERR: WcStatus = WcStatus(5);
    /// A memory window could not be bound with these parameters.
    pub const MW_BIND_ERR: WcStatus = WcStatus(6);
    /// The peer could not receive the message: its receive is too short.
    pub const REM_INV_REQ_ERR: WcStatus = WcStatus(9);
    /// The peer's memory does not permit this access.
    pub const REM_ACCESS_ERR: WcStatus = WcStatus(10);
    /// The peer could not complete the operation: its QP may not use the memory of the posted receive.
    pub const REM_OP_ERR: WcStatus = WcStatus(11);
    /// The peer did not answer.
    pub const RETRY_EXC_ERR: WcStatus = WcStatus(12);
    /// The peer had no receive posted for too long. Never occurs in the simulator, which waits without limit.
    pub const RNR_RETRY_EXC_ERR: WcStatus = WcStatus(13);
}

/// Opcodes of completions (`enum ibv_wc_opcode`).
pub(crate) mod opcode {
    pub(crate) const SEND: u32 = 0;
    pub(crate) const RDMA_WRITE: u32 = 1;
    pub(crate) const RDMA_READ: u32 = 2;
    pub(crate) const BIND_MW: u32 = 5;
    pub(crate) const LOCAL_INV: u32 = 6;
    pub(crate) const RECV: u32 = 128;
}

/// The completion of one work request (`struct ibv_wc`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Completion {
    /// The value passed when the work request was posted.
    pub wr_id: u64,
    /// Its status.
    pub status: WcStatus,
    /// `IBV_WC_SEND` 0, `IBV_WC_RDMA_WRITE` 1, `IBV_WC_RDMA_READ` 2, `IBV_WC_BIND_MW` 5, `IBV_WC_LOCAL_INV` 6 or
    /// `IBV_WC_RECV` 128.
    pub opcode: u32,
    /// Bytes received or read; for a datagram including the [`GRH_LEN`](crate::GRH_LEN) bytes before it. 0 for other
    /// operations, and after a failure.
    pub byte_len: u32,
    /// The local QP.
    pub qp_num: u32,
    /// The QP that sent a received datagram; 0 otherwise.
    pub src_qp: u32,
}

impl Default for Completion {
    /// The initial value of a buffer for [`Cq::poll`](crate::Cq::poll).
    fn default() -> Self {
        Completion { wr_id: 0, status: WcStatus::SUCCESS, opcode: 0, byte_len: 0, qp_num: 0, src_qp: 0 }
    }
}

/// A region that a work request pins until its completion is polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pin {
    /// The domain of the QP and of the region.
    pub(crate) pd: PdNo,
    /// The local key of the region.
    pub(crate) key: u32,
}

/// A completion that has not been polled.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ready {
    pub(crate) qp: QpNo,
    pub(crate) completion: Completion,
    pub(crate) pin: Option<Pin>,
    /// The bytes that the poll copies to memory ([`Config::copy_at_poll`](crate::Config::copy_at_poll)).
    pub(crate) scatter: Option<Scatter>,
}

#[derive(Debug)]
pub(crate) struct CqState {
    pub(super) room: CqRoom,
    /// The number of entries that the work queues of each QP have reserved.
    shares: BTreeMap<QpNo, u32>,
    /// Destroyed QPs that keep their shares until none of their completions is left.
    gone: Vec<QpNo>,
    ready: VecDeque<Ready>,
    pub(super) armed: bool,
    overrun: bool,
    /// Shared with the handle, which exposes it.
    fd: Arc<OwnedFd>,
}

impl CqState {
    pub(crate) fn new(depth: u32, fd: Arc<OwnedFd>) -> Self {
        let (room, shares) = (CqRoom::new(depth), BTreeMap::new());
        CqState { room, shares, gone: Vec::new(), ready: VecDeque::new(), armed: false, overrun: false, fd }
    }

    /// Reserves room for the completions of a work queue of this QP.
    pub(crate) fn reserve(&mut self, qp: QpNo, work_requests: u32) -> Result<(), Overrun> {
        self.room.reserve(work_requests)?;
        *self.shares.entry(qp).or_default() += work_requests;
        Ok(())
    }

    /// Handles the destruction of a QP. With `remove`, its completions are removed; otherwise they keep its share
    /// until they are polled.
    pub(crate) fn leave(&mut self, qp: QpNo, remove: bool) {
        if remove {
            self.ready.retain(|ready| ready.qp != qp);
        }
        self.gone.retain(|other| *other != qp);
        if !self.release(qp) {
            self.gone.push(qp);
        }
    }

    /// Releases the share of a destroyed QP if none of its completions is left.
    fn release(&mut self, qp: QpNo) -> bool {
        let over = !self.ready.iter().any(|ready| ready.qp == qp);
        if over && let Some(reserved) = self.shares.remove(&qp) {
            self.room.release(reserved);
        }
        over
    }

    /// Whether an unpolled completion pins a region.
    pub(crate) fn pins(&self, pin: Pin) -> bool {
        self.ready.iter().any(|ready| ready.pin == Some(pin))
    }

    /// Adds a completion; false if there is no room.
    pub(crate) fn complete(&mut self, ready: Ready) -> bool {
        if self.ready.len() >= self.room.depth() as usize {
            self.overrun = true;
            return false;
        }
        self.ready.push_back(ready);
        if std::mem::take(&mut self.armed) {
            signal_eventfd(&self.fd);
        }
        true
    }

    /// Takes completions.
    pub(crate) fn poll(&mut self, into: &mut [Completion]) -> Result<Vec<Ready>, Errno> {
        if self.ready.is_empty() && self.overrun {
            return Err(Errno::EOVERFLOW);
        }
        let count = into.len().min(self.ready.len());
        let taken: Vec<Ready> = self.ready.drain(..count).collect();
        for (slot, ready) in into.iter_mut().zip(&taken) {
            *slot = ready.completion;
        }
        let gone = std::mem::take(&mut self.gone);
        self.gone = gone.into_iter().filter(|&qp| !self.release(qp)).collect();
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::HostNo;
    use crate::kernel::channel::new_eventfd;
    use crate::kernel::channel::take_eventfd;

    fn qp(num: u32) -> QpNo {
        QpNo { host: HostNo(0), num }
    }

    fn ready(num: u32, wr_id: u64) -> Ready {
        let completion = Completion { wr_id, ..Completion::default() };
        Ready { qp: qp(num), completion, pin: Some(Pin { pd: PdNo(1), key: num }), scatter: None }
    }

    #[test]
    fn a_share_lasts_until_the_last_completion_of_a_destroyed_qp_is_gone() {
        for remove in [true, false] {
            let mut cq = CqState::new(4, Arc::new(new_eventfd().unwrap()));
            assert_eq!((cq.reserve(qp(1), 2), cq.reserve(qp(1), 1)), (Ok(()), Ok(())));
            assert_eq!(cq.reserve(qp(2), 2), Err(Overrun { depth: 4, reserved: 3, wanted: 2 }));
            assert!(cq.complete(ready(1, 1)) && cq.complete(ready(1, 2)));
            cq.leave(qp(1), remove);
            let pin = Pin { pd: PdNo(1), key: 1 };
            assert_eq!((cq.room.reserved(), cq.pins(pin)), if remove { (0, false) } else { (3, true) });
            let mut one = [Completion::default()];
            for reserved in [3, 0].into_iter().filter(|_| !remove) {
                assert_eq!(cq.poll(&mut one).map(|taken| taken.len()), Ok(1));
                assert_eq!(cq.room.reserved(), reserved);
            }
            assert_eq!((cq.poll(&mut one), cq.pins(pin)), (Ok(vec![]), false));
        }
    }

    #[test]
    fn a_full_queue_overruns_and_says_so_at_its_end() {
        let fd = Arc::new(new_eventfd().unwrap());
        let mut cq = CqState::new(2, Arc::clone(&fd));
        assert!(cq.complete(ready(1, 1)));
        assert_eq!(take_eventfd(&fd), 0);
        cq.armed = true;
        assert!(cq.complete(ready(1, 2)));
        assert!(!cq.complete(ready(1, 3)));
        assert_eq!(take_eventfd(&fd), 1);
        let mut buffer = [Completion::default(); 4];
        assert_eq!(cq.poll(&mut buffer), Ok(vec![ready(1, 1), ready(1, 2)]));
        assert_eq!((buffer[0].wr_id, buffer[1].wr_id), (1, 2));
        assert_eq!(cq.poll(&mut buffer), Err(Errno::EOVERFLOW));
    }
}
