//! Completion queues.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use cmid_proto::{CqRoom, Errno};

use crate::data::completion::Completion;
use crate::fabric::Fabric;
use crate::index::{CqNo, HostNo};
use crate::kernel::channel::take_eventfd;

/// A completion queue with its own completion channel.
#[derive(Debug)]
pub struct Cq {
    pub(crate) fabric: Fabric,
    pub(crate) host: HostNo,
    pub(crate) no: CqNo,
    pub(crate) fd: Arc<OwnedFd>,
}

impl Cq {
    /// Takes completions, oldest first; returns their number (ibv_poll_cq(3)). Unpins the regions of their work
    /// requests.
    ///
    /// Completions of a destroyed QP are returned only with
    /// [`Config::completions_outlive_qp`](crate::Config::completions_outlive_qp).
    ///
    /// # Errors
    /// `EOVERFLOW` after an overrun, once the remaining completions are taken.
    pub fn poll(&mut self, into: &mut [Completion]) -> Result<usize, Errno> {
        self.fabric.with(|world| world.poll_cq(self.no, into))
    }

    /// Its depth, and the number of work requests that QPs have reserved in it.
    #[must_use]
    pub fn room(&self) -> CqRoom {
        self.fabric.with(|world| world.queues.cqs.get(&self.no).map(|cq| cq.room).unwrap_or_default())
    }

    /// Requests one notification for the next completion (ibv_req_notify_cq(3)). Completions that are already queued
    /// do not count: poll once more after arming.
    ///
    /// # Errors
    /// None in the simulator.
    pub fn arm(&self) -> Result<(), Errno> {
        self.fabric.with(|world| {
            world.queues.cqs.get_mut(&self.no).ok_or(Errno::EINVAL)?.armed = true;
            Ok(())
        })
    }

    /// Its file descriptor. Becomes readable when a completion arrives at an armed queue, until
    /// [`Cq::take_notifications`].
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Takes pending notifications without blocking; returns their number (ibv_get_cq_event(3)).
    ///
    /// # Errors
    /// None in the simulator.
    pub fn take_notifications(&self) -> Result<u32, Errno> {
        Ok(u32::try_from(take_eventfd(&self.fd)).unwrap_or(u32::MAX))
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        self.fabric.with(|world| {
            world.queues.cqs.remove(&self.no);
            // Its completions no longer pin regions.
            world.sweep = true;
        });
    }
}
