//! Completion queues.

use std::collections::{BTreeMap, VecDeque};
#[cfg(unix)]
use std::os::fd::{AsFd, BorrowedFd};

use cmid_proto::Errno;
use cmid_proto::datapath::{
    Capacity, Completion, CompletionQueue, CqRoom, CreateCall, CreateError, CreateReason, Overrun,
};
#[cfg(unix)]
use rustix::event::{PollFd, PollFlags};

use crate::data::comp_channel::Notices;
use crate::data::receive::RecvOf;
use crate::data::space::{Pins, Scatter};
use crate::fabric::Fabric;
use crate::fabric::world::World;
use crate::index::{CqNo, DeviceNo, PdNo, QpNo, SrqNo};

/// A completion that has not been polled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ready {
    pub(crate) qp: QpNo,
    pub(crate) completion: Completion,
    /// Whether the post of its work request was refused: a poll does not return it.
    pub(crate) is_withdrawn: bool,
    /// The number of its work request.
    pub(crate) sequence: u64,
    /// The queue of a receive; `None` for a request of a send queue.
    pub(crate) receive_of: Option<RecvOf>,
    /// The domain of the QP and of the regions.
    pub(crate) pd: PdNo,
    /// The local keys of the regions that it pins until it is polled.
    pub(crate) pins: Pins,
    pub(crate) solicited: bool,
    /// The bytes that the poll copies to memory ([`Config::copy_at_poll`](crate::Config::copy_at_poll)).
    pub(crate) scatter: Vec<Scatter>,
}

/// The completions for which an armed CQ notifies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Armed {
    #[default]
    No,
    Solicited,
    Any,
}

#[derive(Debug)]
pub(crate) struct CqState {
    pub(super) room: CqRoom,
    /// The number of entries for each completion that the room counts. On iWARP `cmid_verbs` asks for two: see
    /// [`World::flush_sends`](crate::fabric::world::World::flush_sends).
    entries_each: usize,
    /// The number of entries that the work queues of each QP have reserved.
    shares: BTreeMap<QpNo, u32>,
    /// The number of entries that each shared receive queue has reserved, and its QPs.
    srq_shares: BTreeMap<SrqNo, (u32, Vec<QpNo>)>,
    /// Destroyed QPs. Each keeps its shares until none of its completions is left.
    gone: Vec<QpNo>,
    ready: VecDeque<Ready>,
    armed: Armed,
    overrun: bool,
    no: CqNo,
    /// The notifications that the handle exposes.
    notices: Notices,
}

impl CqState {
    pub(crate) fn new(no: CqNo, depth: u32, entries_each: usize, notices: Notices) -> Self {
        let (room, shares) = (CqRoom::new(depth), BTreeMap::new());
        let srq_shares = BTreeMap::new();
        CqState {
            room,
            entries_each,
            shares,
            srq_shares,
            gone: Vec::new(),
            ready: VecDeque::new(),
            armed: Armed::No,
            overrun: false,
            no,
            notices,
        }
    }

    /// Reserves room for the completions of a work queue of this QP, or of the shared receive queue that it uses.
    pub(crate) fn reserve(&mut self, qp: QpNo, srq: Option<SrqNo>, work_requests: u32) -> Result<(), Overrun> {
        self.room.reserve(work_requests)?;
        match srq {
            None => *self.shares.entry(qp).or_default() += work_requests,
            Some(srq) => {
                let (reserved, qps) = self.srq_shares.entry(srq).or_default();
                *reserved += work_requests;
                qps.push(qp);
            }
        }
        Ok(())
    }

    /// Whether a shared receive queue has reserved its entries.
    pub(crate) fn has_share(&self, srq: SrqNo) -> bool {
        self.srq_shares.contains_key(&srq)
    }

    /// Handles the destruction of a QP. With `remove`, removes its completions; otherwise they keep its share until
    /// they are polled.
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
        if over {
            self.room.release(self.shares.remove(&qp).unwrap_or(0));
            let room = &mut self.room;
            self.srq_shares.retain(|_, (reserved, qps)| {
                qps.retain(|other| *other != qp);
                if qps.is_empty() {
                    room.release(*reserved);
                }
                !qps.is_empty()
            });
        }
        over
    }

    /// Requests a notification. A pending request for any completion is not replaced by one for solicited completions
    /// (`rxe_req_notify_cq`), but by libsiw (`siw_notify_cq`).
    pub(crate) fn arm(&mut self, armed: Armed, is_iwarp: bool) {
        if self.armed != Armed::Any || is_iwarp {
            self.armed = armed;
        }
    }

    pub(crate) fn has_completions(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Whether an unpolled completion pins a region of a domain.
    pub(crate) fn pins(&self, pd: PdNo, key: u32) -> bool {
        self.ready.iter().any(|ready| ready.pd == pd && ready.pins.contains(&key))
    }

    /// Whether such a completion is not polled.
    pub(crate) fn holds(&self, such: impl Fn(&Ready) -> bool) -> bool {
        self.ready.iter().any(such)
    }

    /// Adds a completion. Returns false if there is no room.
    pub(crate) fn complete(&mut self, ready: Ready) -> bool {
        if self.ready.len() >= self.room.depth() as usize * self.entries_each {
            self.overrun = true;
            return false;
        }
        let notifies = match self.armed {
            Armed::No => false,
            Armed::Solicited => ready.solicited,
            Armed::Any => true,
        };
        self.ready.push_back(ready);
        if notifies {
            self.armed = Armed::No;
            self.notices.notify(self.no);
        }
        true
    }

    /// Takes the next completion.
    pub(crate) fn take(&mut self) -> Option<Ready> {
        let ready = self.ready.pop_front();
        if !self.gone.is_empty() {
            let gone = std::mem::take(&mut self.gone);
            self.gone = gone.into_iter().filter(|&qp| !self.release(qp)).collect();
        }
        ready
    }

    /// Whether it has completions. Fails after an overrun, once all are taken.
    pub(crate) fn check(&self) -> Result<bool, Errno> {
        match self.ready.is_empty() {
            true if self.overrun => Err(Errno::EOVERFLOW),
            is_empty => Ok(!is_empty),
        }
    }
}

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
            let is_iwarp = world.is_iwarp(self.device.host);
            world.queues.cqs.get_mut(&self.no).ok_or(Errno::EINVAL)?.arm(armed, is_iwarp);
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

    /// `ibv_resize_cq`: the checks of `cmid_verbs`, which leaves a CQ of this depth as it is, then those of
    /// `rxe_cq_chk_attr`. The library of siw does not have it.
    fn resize_cq(&mut self, device: DeviceNo, no: CqNo, depth: u32) -> Result<(), CreateReason> {
        let (is_there, is_iwarp, maxima) = (self.lives(device), self.is_iwarp(device.host), self.maxima(device.host));
        let cq = self.queues.cqs.get_mut(&no).ok_or(Errno::EINVAL)?;
        cq.room.check_depth(depth)?;
        if depth == 0 {
            return Err(CreateReason::Zero(Capacity::Depth));
        }
        if depth == cq.room.depth() {
            return Ok(());
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::HostNo;

    fn qp(num: u32) -> QpNo {
        QpNo { host: HostNo(0), num }
    }

    fn ready(num: u32, wr_id: u64) -> Ready {
        let completion = Completion { wr_id, ..Completion::default() };
        let (sequence, receive_of, pd, pins) = (wr_id, None, PdNo(1), Pins::from_slice(&[num]));
        Ready {
            qp: qp(num),
            completion,
            is_withdrawn: false,
            sequence,
            receive_of,
            pd,
            pins,
            solicited: false,
            scatter: Vec::new(),
        }
    }

    #[test]
    fn a_full_queue_overruns_and_says_so_at_its_end() {
        let notices = Notices::of_one_cq().unwrap();
        let mut cq = CqState::new(CqNo(1), 2, 1, notices.clone());
        assert!(cq.complete(ready(1, 1)));
        assert_eq!(notices.take(), Ok(0));
        cq.arm(Armed::Any, false);
        assert!(cq.complete(ready(1, 2)));
        assert!(!cq.complete(ready(1, 3)));
        assert_eq!(notices.take(), Ok(1));
        for wr_id in [1, 2] {
            assert_eq!((cq.check(), cq.take()), (Ok(true), Some(ready(1, wr_id))));
        }
        assert_eq!((cq.check(), cq.take()), (Err(Errno::EOVERFLOW), None));
    }
}
