//! Completion queues.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use cmid_proto::{CqRoom, Errno};

use crate::data::completion::Completion;
use crate::fabric::Fabric;
use crate::index::{CqNo, HostNo};
use crate::kernel::channel::take_eventfd;

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
    /// Completions of a QP that is destroyed are among them only with
    /// [`Config::completions_outlive_qp`](crate::Config::completions_outlive_qp).
    ///
    /// # Errors
    /// `EOVERFLOW` once a completion did not fit and those that did are taken.
    pub fn poll(&mut self, into: &mut [Completion]) -> Result<usize, Errno> {
        self.fabric.with(|world| world.poll_cq(self.no, into))
    }

    /// How many completions it has room for, and how many work requests the work queues may have that report to it.
    #[must_use]
    pub fn room(&self) -> CqRoom {
        self.fabric.with(|world| world.queues.cqs.get(&self.no).map(|cq| cq.room).unwrap_or_default())
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
        self.fabric.with(|world| {
            world.queues.cqs.remove(&self.no);
            // Its completions pin nothing any more.
            world.sweep = true;
        });
    }
}
