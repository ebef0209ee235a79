//! Completion channels, and their notifications.

use std::collections::VecDeque;
#[cfg(unix)]
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cmid_proto::Errno;
use cmid_proto::datapath::CompletionChannel;

use crate::fabric::Fabric;
use crate::index::{CqNo, DeviceNo};
use crate::kernel::signal::Signal;

/// A completion channel for several CQs. After the handle is dropped, it exists until its last CQ is destroyed.
#[derive(Clone, Debug)]
pub struct CompChannel {
    pub(crate) fabric: Fabric,
    pub(crate) device: DeviceNo,
    pub(crate) notices: Notices,
}

impl CompChannel {
    pub(crate) fn create(fabric: &Fabric, device: DeviceNo) -> Result<Self, Errno> {
        Ok(CompChannel { fabric: fabric.clone(), device, notices: Notices::of_several_cqs()? })
    }
}

impl CompletionChannel for CompChannel {
    #[cfg(unix)]
    fn fd(&self) -> BorrowedFd<'_> {
        self.notices.signal.as_fd()
    }

    /// # Errors
    /// None in the simulator.
    fn next_notification(&self) -> Result<Option<u32>, Errno> {
        Ok(self.notices.next().map(CqNo::number))
    }
}

/// The notifications of a channel that were not taken.
#[derive(Clone, Debug)]
pub(crate) struct Notices {
    pub(crate) signal: Arc<Signal>,
    /// The CQs of a shared channel, oldest notification first. The channel of a single CQ counts in its signal
    /// instead.
    queue: Option<Arc<Mutex<VecDeque<CqNo>>>>,
}

impl Notices {
    pub(crate) fn of_one_cq() -> Result<Self, Errno> {
        Ok(Notices { signal: Arc::new(Signal::new()?), queue: None })
    }

    pub(crate) fn of_several_cqs() -> Result<Self, Errno> {
        Ok(Notices { queue: Some(Arc::default()), ..Notices::of_one_cq()? })
    }

    /// Takes the oldest notification of a shared channel.
    pub(crate) fn next(&self) -> Option<CqNo> {
        let mut queue = self.queue()?;
        let cq = queue.pop_front();
        if queue.is_empty() {
            self.signal.take();
        }
        cq
    }

    fn queue(&self) -> Option<MutexGuard<'_, VecDeque<CqNo>>> {
        self.queue.as_ref().map(|queue| queue.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn notify(&self, cq: CqNo) {
        // The lock is held, so that the descriptor is readable as long as a notification is queued.
        let mut queue = self.queue();
        if let Some(queue) = &mut queue {
            queue.push_back(cq);
        }
        self.signal.raise();
    }

    /// Takes the notifications of the only CQ.
    pub(crate) fn take(&self) -> Result<u32, Errno> {
        if self.queue.is_some() {
            return Err(Errno::EINVAL);
        }
        Ok(u32::try_from(self.signal.take()).unwrap_or(u32::MAX))
    }

    /// Removes the notifications of a destroyed CQ (`ib_uverbs_release_ucq`).
    pub(crate) fn forget(&self, cq: CqNo) {
        if let Some(mut queue) = self.queue() {
            queue.retain(|other| *other != cq);
            if queue.is_empty() {
                self.signal.take();
            }
        }
    }
}
