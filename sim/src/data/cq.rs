//! Completion queues.

#[cfg(unix)]
use std::os::fd::{AsFd, BorrowedFd};

use cmid_proto::Errno;
use cmid_proto::datapath::{Capacity, Completion, CompletionQueue, CqRoom, CreateCall, CreateError, CreateReason};
#[cfg(unix)]
use rustix::event::{PollFd, PollFlags};

use crate::data::comp_channel::Notices;
use crate::data::completion::Armed;
use crate::data::space::Scatter;
use crate::fabric::Fabric;
use crate::fabric::world::World;
use crate::index::{CqNo, DeviceNo};

/// A completion queue with its own completion channel, or a shared one.
#[derive(Debug)]
pub struct Cq {
    pub(crate) fabric: Fabric,
    pub(crate) device: DeviceNo,
    pub(crate) no: CqNo,
    pub(crate) notices: Notices,
}

impl CompletionQueue for Cq {
    /// Completions of a destroyed QP are returned only with
    /// [`Config::completions_outlive_qp`](crate::Config::completions_outlive_qp).
    ///
    /// # Errors
    /// `EOVERFLOW` after an overrun, once the remaining completions are taken.
    fn poll(&mut self, into: &mut [Completion]) -> Result<usize, Errno> {
        self.fabric.with(|world| world.poll_cq(self.no, into))
    }

    /// It waits in poll(2). Under a clock that stands still, another thread advances the fabric.
    #[cfg(unix)]
    fn wait(&mut self, into: &mut [Completion]) -> Result<usize, Errno> {
        loop {
            let polled = self.poll_or_arm(into)?;
            if polled > 0 || into.is_empty() || !self.fabric.with(|world| world.awaits(self.no)) {
                return Ok(polled);
            }
            let mut fds = [PollFd::from_borrowed_fd(self.fd(), PollFlags::IN)];
            rustix::event::poll(&mut fds, None).map_err(|error| Errno(error.raw_os_error()))?;
        }
    }

    fn num(&self) -> u32 {
        self.no.number()
    }

    fn room(&self) -> CqRoom {
        self.fabric.with(|world| world.queues.cqs.get(&self.no).map(|cq| cq.room).unwrap_or_default())
    }

    fn resize(&mut self, depth: u32) -> Result<(), CreateError> {
        self.fabric.with(|world| world.resize_cq(self.device, self.no, depth)).map_err(CreateCall::ResizeCq.failed())
    }

    fn is_idle(&self) -> bool {
        self.fabric.with(|world| !world.queues.has_work(self.no))
    }

    fn arm(&self) -> Result<(), Errno> {
        self.request(Armed::Any)
    }

    fn arm_solicited(&self) -> Result<(), Errno> {
        self.request(Armed::Solicited)
    }

    /// # Errors
    /// `EOPNOTSUPP`, as with soft-RoCE.
    fn moderate(&self, _: u16, _: u16) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    #[cfg(unix)]
    fn fd(&self) -> BorrowedFd<'_> {
        self.notices.signal.as_fd()
    }

    fn take_notifications(&self) -> Result<u32, Errno> {
        self.notices.take()
    }
}

impl Cq {
    fn request(&self, armed: Armed) -> Result<(), Errno> {
        self.fabric.with(|world| {
            world.queues.cqs.get_mut(&self.no).ok_or(Errno::EINVAL)?.arm(armed);
            Ok(())
        })
    }
}

impl World {
    /// Whether a completion may come: of work of its QPs, or of a receive of their SRQs.
    #[cfg(unix)]
    fn awaits(&self, cq: CqNo) -> bool {
        let has_receives = |srq| self.queues.srqs.get(srq).is_ok_and(|srq| srq.receives.unpolled() > 0);
        self.queues.has_work(cq)
            || self.queues.pairs.any(|pair| pair.recv_cq == cq && pair.srq.is_some_and(has_receives))
    }

    /// `ibv_poll_cq`.
    pub(crate) fn poll_cq(&mut self, cq: CqNo, into: &mut [Completion]) -> Result<usize, Errno> {
        let mut count = 0;
        if !self.queues.cqs.get(&cq).ok_or(Errno::EINVAL)?.check()? {
            return Ok(count);
        }
        while let Some(slot) = into.get_mut(count) {
            let Some(ready) = self.queues.take(cq) else { break };
            self.sweep = true;
            if !ready.is_withdrawn {
                *slot = ready.completion;
                count += 1;
            }
            if let Some(bindings) = self.domains.bindings(ready.pd) {
                bindings.handle_completion(&ready.completion);
            }
            for Scatter { addr, bytes } in ready.scatter {
                self.copy(addr, &bytes);
            }
        }
        Ok(count)
    }

    /// `ibv_resize_cq`: the checks of `cmid_verbs`, then those of `rxe_cq_chk_attr`. The library of siw does not have it.
    fn resize_cq(&mut self, device: DeviceNo, no: CqNo, depth: u32) -> Result<(), CreateReason> {
        let (is_there, is_iwarp, maxima) = (self.lives(device), self.is_iwarp(device.host), self.maxima(device.host));
        let cq = self.queues.cqs.get_mut(&no).ok_or(Errno::EINVAL)?;
        cq.room.check_depth(depth)?;
        if depth == 0 {
            return Err(CreateReason::Zero(Capacity::Depth));
        }
        if !is_there {
            return Err(Errno::EIO.into());
        }
        if is_iwarp {
            return Err(Errno::EOPNOTSUPP.into());
        }
        maxima.cq(depth, 0).map_or(Ok(()), Err)?;
        cq.room = cq.room.with_depth(depth);
        Ok(())
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        self.fabric.with(|world| {
            world.queues.cqs.remove(&self.no);
            self.notices.forget(self.no);
            // Its completions no longer pin regions.
            world.sweep = true;
        });
    }
}
