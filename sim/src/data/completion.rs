//! Completions, and the state of a completion queue.

use std::collections::{BTreeMap, VecDeque};

use cmid_proto::Errno;
use cmid_proto::datapath::{Completion, CqRoom, Overrun};

use crate::data::comp_channel::Notices;
use crate::data::receive::RecvOf;
use crate::data::space::{Pins, Scatter};
use crate::index::{CqNo, PdNo, QpNo, SrqNo};

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
    /// (`rxe_req_notify_cq`).
    pub(crate) fn arm(&mut self, armed: Armed) {
        if self.armed != Armed::Any {
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
        cq.arm(Armed::Any);
        assert!(cq.complete(ready(1, 2)));
        assert!(!cq.complete(ready(1, 3)));
        assert_eq!(notices.take(), Ok(1));
        for wr_id in [1, 2] {
            assert_eq!((cq.check(), cq.take()), (Ok(true), Some(ready(1, wr_id))));
        }
        assert_eq!((cq.check(), cq.take()), (Err(Errno::EOVERFLOW), None));
    }
}
