//! Completion queues.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use cmid_proto::Errno;

use crate::channel::{signal_eventfd, take_eventfd};
use crate::data::qp::QpNo;
use crate::fabric::Fabric;
use crate::host::HostNo;

/// Names one completion queue; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CqNo(pub(crate) u64);

/// How a work request ended (`enum ibv_wc_status`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WcStatus(pub u32);

impl WcStatus {
    /// Done.
    pub const SUCCESS: WcStatus = WcStatus(0);
    /// The message is longer than the receive that was posted for it.
    pub const LOC_LEN_ERR: WcStatus = WcStatus(1);
    /// The device cannot do this: a window was to be invalidated that is not bound.
    pub const LOC_QP_OP_ERR: WcStatus = WcStatus(2);
    /// The local memory may not be used like this.
    pub const LOC_PROT_ERR: WcStatus = WcStatus(4);
    /// The QP was, or went, into its error state.
    pub const WR_FLUSH_ERR: WcStatus = WcStatus(5);
    /// A memory window could not be bound like this.
    pub const MW_BIND_ERR: WcStatus = WcStatus(6);
    /// The peer could not take the message: its receive is too short.
    pub const REM_INV_REQ_ERR: WcStatus = WcStatus(9);
    /// The peer's memory may not be used like this.
    pub const REM_ACCESS_ERR: WcStatus = WcStatus(10);
    /// The peer could not do its part: it may not use the memory of the receive that it posted.
    pub const REM_OP_ERR: WcStatus = WcStatus(11);
    /// The peer did not answer.
    pub const RETRY_EXC_ERR: WcStatus = WcStatus(12);
    /// The peer had no receive posted for too long. The simulator waits for ever instead.
    pub const RNR_RETRY_EXC_ERR: WcStatus = WcStatus(13);
}

/// Operations, as completions name them (`enum ibv_wc_opcode`).
pub(crate) mod opcode {
    pub(crate) const SEND: u32 = 0;
    pub(crate) const RDMA_WRITE: u32 = 1;
    pub(crate) const RDMA_READ: u32 = 2;
    pub(crate) const BIND_MW: u32 = 5;
    pub(crate) const LOCAL_INV: u32 = 6;
    pub(crate) const RECV: u32 = 128;
}

/// The end of one work request (`struct ibv_wc`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Completion {
    /// What was given when it was posted.
    pub wr_id: u64,
    /// How it ended.
    pub status: WcStatus,
    /// `IBV_WC_SEND` 0, `IBV_WC_RDMA_WRITE` 1, `IBV_WC_RDMA_READ` 2, `IBV_WC_BIND_MW` 5, `IBV_WC_LOCAL_INV` 6 or
    /// `IBV_WC_RECV` 128.
    pub opcode: u32,
    /// Bytes received or read, for a datagram the [`GRH_LEN`](crate::GRH_LEN) before it included; 0 for the others, and
    /// after a failure.
    pub byte_len: u32,
    /// The local QP.
    pub qp_num: u32,
    /// The QP that sent a received datagram; 0 for everything else.
    pub src_qp: u32,
}

impl Default for Completion {
    /// What a buffer for [`Cq::poll`] is filled with.
    fn default() -> Self {
        Completion { wr_id: 0, status: WcStatus::SUCCESS, opcode: 0, byte_len: 0, qp_num: 0, src_qp: 0 }
    }
}

/// What a work request keeps in its place until its completion is polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pin {
    pub(crate) qp: QpNo,
    /// The local key of a region.
    pub(crate) key: u32,
}

#[derive(Debug)]
pub(crate) struct CqState {
    depth: usize,
    ready: VecDeque<(Completion, Option<Pin>)>,
    armed: bool,
    overrun: bool,
    /// Shared with the handle, which lends it out.
    fd: Arc<OwnedFd>,
}

impl CqState {
    pub(crate) fn new(depth: usize, fd: Arc<OwnedFd>) -> Self {
        CqState { depth, ready: VecDeque::new(), armed: false, overrun: false, fd }
    }

    /// Adds a completion; false if there was no room.
    pub(crate) fn complete(&mut self, completion: Completion, pin: Option<Pin>) -> bool {
        if self.ready.len() >= self.depth {
            self.overrun = true;
            return false;
        }
        self.ready.push_back((completion, pin));
        if std::mem::take(&mut self.armed) {
            signal_eventfd(&self.fd);
        }
        true
    }

    /// Takes completions; returns for each the pin that ends with it.
    pub(crate) fn poll(&mut self, into: &mut [Completion]) -> Result<Vec<Option<Pin>>, Errno> {
        if self.ready.is_empty() && self.overrun {
            return Err(Errno::EOVERFLOW);
        }
        let count = into.len().min(self.ready.len());
        let taken = into.iter_mut().zip(self.ready.drain(..count));
        Ok(taken
            .map(|(place, (completion, pin))| {
                *place = completion;
                pin
            })
            .collect())
    }
}

/// A completion queue with a completion channel of its own.
#[derive(Debug)]
pub struct Cq {
    pub(crate) fabric: Fabric,
    pub(crate) host: HostNo,
    pub(crate) no: CqNo,
    pub(crate) fd: Arc<OwnedFd>,
}

impl Cq {
    /// Takes completions, oldest first; returns how many (ibv_poll_cq(3)). The regions that their work requests named
    /// are not pinned by them any more.
    ///
    /// # Errors
    /// `EOVERFLOW` once a completion did not fit and those that did are taken.
    pub fn poll(&mut self, into: &mut [Completion]) -> Result<usize, Errno> {
        self.fabric.with(|world| world.poll_cq(self.no, into))
    }

    /// Asks for one notification, when the next completion comes (ibv_req_notify_cq(3)). Completions that are there
    /// already do not count: poll once more after arming.
    ///
    /// # Errors
    /// None in the simulator.
    pub fn arm(&self) -> Result<(), Errno> {
        self.fabric.with(|world| {
            world.queues.cqs.get_mut(&self.no).ok_or(Errno::EINVAL)?.armed = true;
            Ok(())
        })
    }

    /// Readable after a completion has come to an armed queue, until [`Cq::take_notifications`].
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Takes the notifications that have come, without waiting, and returns how many (ibv_get_cq_event(3)).
    ///
    /// # Errors
    /// None in the simulator.
    pub fn take_notifications(&self) -> Result<u32, Errno> {
        Ok(u32::try_from(take_eventfd(&self.fd)).unwrap_or(u32::MAX))
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        self.fabric.with(|world| world.queues.cqs.remove(&self.no));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::new_eventfd;

    #[test]
    fn a_full_queue_overruns_and_says_so_at_its_end() {
        let fd = Arc::new(new_eventfd().unwrap());
        let mut cq = CqState::new(2, Arc::clone(&fd));
        let pin = |key| Some(Pin { qp: QpNo { host: HostNo(0), num: 1 }, key });
        assert!(cq.complete(Completion { wr_id: 1, ..Completion::default() }, pin(1)));
        assert_eq!(take_eventfd(&fd), 0);
        cq.armed = true;
        assert!(cq.complete(Completion { wr_id: 2, ..Completion::default() }, pin(2)));
        assert!(!cq.complete(Completion { wr_id: 3, ..Completion::default() }, pin(3)));
        assert_eq!(take_eventfd(&fd), 1);
        let mut buffer = [Completion::default(); 4];
        assert_eq!(cq.poll(&mut buffer), Ok(vec![pin(1), pin(2)]));
        assert_eq!((buffer[0].wr_id, buffer[1].wr_id), (1, 2));
        assert_eq!(cq.poll(&mut buffer), Err(Errno::EOVERFLOW));
    }
}
