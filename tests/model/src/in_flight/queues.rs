//! The accounting of work requests of `cmid-verbs` without a device: what its `Qp`, `Srq`, `Cq` and `Mr` do for the
//! accounting, these do. The target is the device.

use core::ffi::c_int;
use std::collections::VecDeque;
use std::sync::Arc;

use cmid_proto::Errno;
use cmid_proto::datapath::{Caps, Completion, SendFlags, SrqCaps, WcOpcode};
use parking_lot::Mutex;

use crate::accounting::cq_slots::CqSlots;
use crate::accounting::in_flight::{InFlightSet, PdWork};
use crate::accounting::kind::Kind;
use crate::accounting::poll::{Poller, Provider};
use crate::accounting::slot_cache::SlotCache;
use crate::accounting::srq_slots::SrqCursor;
use crate::accounting::srq_table::{SrqId, SrqTable};
use crate::accounting::work_queue::{Reservation, WorkQueues};
use crate::accounting::wr_ring::Cursor;

/// A protection domain.
#[derive(Clone)]
pub(super) struct Pd(Arc<PdInner>);

pub(super) struct PdInner {
    in_flight: InFlightSet,
}

impl PdWork for PdInner {
    fn in_flight(&self) -> &InFlightSet {
        &self.in_flight
    }

    fn released(&self) {}
}

impl Pd {
    /// Creates a PD.
    pub(super) fn new() -> Self {
        Pd(Arc::new(PdInner { in_flight: InFlightSet::new() }))
    }

    /// Whether work in flight names this key.
    pub(super) fn names(&self, lkey: u32) -> bool {
        self.0.in_flight.name(lkey)
    }
}

/// A completion queue.
pub(super) struct Cq {
    inner: Arc<CqInner>,
    slot_cache: SlotCache,
}

pub(super) struct CqInner {
    cq_slots: CqSlots,
    completions: Mutex<VecDeque<Completion>>,
}

impl Provider for CqInner {
    fn cq_slots(&self) -> &CqSlots {
        &self.cq_slots
    }

    fn poll(&self, completions: &mut [Completion]) -> c_int {
        let mut polled = self.completions.lock();
        let count = polled.len().min(completions.len());
        completions.iter_mut().zip(polled.drain(..count)).for_each(|(place, completion)| *place = completion);
        count as c_int
    }
}

impl Poller for Cq {
    type Provider = CqInner;

    fn parts(&mut self) -> (&CqInner, &mut SlotCache) {
        (&self.inner, &mut self.slot_cache)
    }
}

impl Cq {
    /// Creates a CQ with this depth.
    pub(super) fn new(depth: u32) -> Self {
        let inner = CqInner { cq_slots: CqSlots::new(depth), completions: Mutex::default() };
        Cq { inner: Arc::new(inner), slot_cache: SlotCache::default() }
    }

    /// The device adds a completion.
    pub(super) fn complete(&self, completion: Completion) {
        self.inner.completions.lock().push_back(completion);
    }

    /// The provider removes the completions of a QP, as libmlx5 does when the QP is destroyed.
    pub(super) fn remove(&self, qp_num: u32) {
        self.inner.completions.lock().retain(|completion| completion.qp_num != qp_num);
    }

    /// The number of completions in it.
    pub(super) fn completions(&self) -> usize {
        self.inner.completions.lock().len()
    }

    /// Polls it, as `Cq::poll`.
    ///
    /// # Errors
    /// `EIO` for a completion that was not posted, or is reported twice or out of order.
    pub(super) fn poll(&mut self, completions: &mut [Completion]) -> Result<usize, Errno> {
        Poller::poll(self, completions)
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        self.slot_cache.close(&self.inner.cq_slots);
    }
}

/// The work queues of a QP.
pub(super) struct Qp {
    pd: Pd,
    queues: WorkQueues<CqInner>,
    send: Cursor,
    recv: Cursor,
    /// With the CQ of the receives.
    srq: Option<(Arc<SrqTable>, Arc<CqInner>)>,
    is_iwarp: bool,
    is_leaked: bool,
    /// What its requests of sends and of receives own.
    owned: Option<[Arc<()>; 2]>,
}

/// A work request.
#[derive(Clone, Copy)]
pub(super) struct Request<'a> {
    /// The user's number.
    pub(super) wr_id: u64,
    /// The keys of its ranges.
    pub(super) lkeys: &'a [u32],
    /// The opcode of its completion.
    pub(super) opcode: WcOpcode,
    /// Its flags; without meaning for a receive.
    pub(super) flags: SendFlags,
}

impl Request<'_> {
    fn kind(&self) -> Kind {
        Kind::of(self.opcode).with(self.flags)
    }
}

impl Qp {
    /// Creates the queues of a QP that report to these CQs, for sends and for receives, which may be those of an SRQ.
    /// With `is_iwarp` its sends complete in any order that iWARP permits.
    ///
    /// # Errors
    /// `EOVERFLOW` if a CQ has no room, `ENOMEM` if it has too many queues.
    pub(super) fn create(pd: &Pd, cqs: [&Cq; 2], srq: Option<&Srq>, caps: Caps, is_iwarp: bool) -> Result<Self, Errno> {
        let recv_cq = &cqs[1].inner;
        let caps = if srq.is_some() { Caps { max_recv_wr: 0, ..caps } } else { caps };
        let reservation = Reservation::make([&cqs[0].inner, &cqs[1].inner], &caps)?;
        if let Some(srq) = srq {
            recv_cq.cq_slots.attach_srq(&srq.table)?;
        }
        let srq = srq.map(|srq| (Arc::clone(&srq.table), Arc::clone(recv_cq)));
        let (send, recv) = (pd.0.in_flight.without_ring(), pd.0.in_flight.without_ring());
        Ok(Qp {
            pd: pd.clone(),
            queues: reservation.into_queues(),
            send,
            recv,
            srq,
            is_iwarp,
            is_leaked: false,
            owned: None,
        })
    }

    /// Posts one work request. With `is_refused` the provider returns an error, and may have queued it. Returns the
    /// `wr_id` that the provider gets; `None` if it gets none.
    pub(super) fn post(&mut self, is_recv: bool, request: &Request<'_>, is_refused: bool) -> Option<u64> {
        let cursor = self.open(is_recv)?;
        let token = cursor.file(request.wr_id, request.lkeys, request.kind())?;
        if is_refused {
            self.withdraw(is_recv, 1);
        }
        Some(token)
    }

    /// Posts a batch, of which the provider accepts the first `accepted`; it may have queued the others. Returns the
    /// `wr_id`s that the provider gets; `None` if there is no room for one, and then it gets none.
    pub(super) fn post_batch(&mut self, is_recv: bool, requests: &[Request<'_>], accepted: usize) -> Option<Vec<u64>> {
        let cursor = self.open(is_recv)?;
        let mut filing = cursor.batch();
        let file = |request: &Request<'_>| filing.file(request.wr_id, request.lkeys, request.kind());
        let tokens = requests.iter().map(file).collect::<Option<Vec<_>>>()?;
        cursor.advance_by(tokens.len() as u32);
        if accepted < tokens.len() {
            self.withdraw(is_recv, tokens.len() - accepted);
        }
        Some(tokens)
    }

    fn withdraw(&mut self, is_recv: bool, count: usize) {
        // No completion of them is polled yet.
        let _ = if is_recv {
            self.queues.withdraw_recv(&mut self.recv, count)
        } else {
            self.queues.withdraw_send(&mut self.send, count)
        };
    }

    /// The cursor of a queue with its ring; `None` if its receives are those of an SRQ.
    fn open(&mut self, is_recv: bool) -> Option<&mut Cursor> {
        let Qp { pd, queues, send, recv, srq, is_iwarp, .. } = self;
        if is_recv {
            if srq.is_some() {
                return None;
            }
            if recv.is_without_ring() {
                queues.open_recv(recv, &pd.0);
            }
            return Some(recv);
        }
        if send.is_without_ring() {
            queues.open_send(send, &pd.0, *is_iwarp);
        }
        Some(send)
    }

    /// Sets what its requests of sends and of receives own, as they own blocks.
    pub(super) fn own(&mut self, owned: [Arc<()>; 2]) {
        self.owned = Some(owned);
    }

    /// Whether the request that was posted with this `wr_id` of the provider is no longer in flight.
    pub(super) fn is_over(&self, is_recv: bool, token: u64) -> bool {
        if is_recv { self.recv.is_over(token as u32) } else { self.send.is_over(token as u32) }
    }

    /// Drops it, and the kernel refuses to destroy the QP. Its SRQ exists until the result is dropped.
    pub(super) fn leak(mut self) -> Leaked {
        self.is_leaked = true;
        let srq = self.srq.take();
        srq.iter().for_each(|(table, _)| table.leak());
        Leaked(srq)
    }
}

/// The SRQ of a QP that could not be destroyed. A process keeps it for ever, with its number.
pub(super) struct Leaked(#[expect(dead_code, reason = "it is only kept")] Option<(Arc<SrqTable>, Arc<CqInner>)>);

impl Drop for Qp {
    fn drop(&mut self) {
        let srq = self.srq.take();
        if self.is_leaked {
            self.queues.leak(&self.pd.0);
            core::mem::forget(self.owned.take());
        } else {
            drop(self.queues.close(&self.pd.0, self.owned.take()));
            srq.into_iter().for_each(|(table, cq)| drop(cq.cq_slots.leave_srq(table, 1)));
        }
        self.pd.0.released();
    }
}

/// A shared receive queue.
pub(super) struct Srq {
    table: Arc<SrqTable>,
    cursor: SrqCursor,
    /// What its receives own.
    owned: Option<Arc<()>>,
}

impl Srq {
    /// Creates an SRQ on a PD.
    ///
    /// # Errors
    /// `ENOMEM` if the process has too many.
    pub(super) fn create(pd: &Pd, caps: SrqCaps) -> Result<Self, Errno> {
        let table = Arc::new(SrqTable::new(SrqId::assign().ok_or(Errno::ENOMEM)?, &pd.0, caps));
        let cursor = SrqCursor::new(table.slots());
        Ok(Srq { table, cursor, owned: None })
    }

    /// Posts a receive. Returns the `wr_id` that the device gets; `None` if the SRQ is full.
    pub(super) fn post(&mut self, wr_id: u64, lkeys: &[u32]) -> Option<u64> {
        self.cursor.file(wr_id, lkeys.iter().copied())
    }

    /// Sets what its receives own, as they own blocks.
    pub(super) fn own(&mut self, owned: Arc<()>) {
        self.owned = Some(owned);
    }

    /// Whether the receive that was posted with this `wr_id` of the device is no longer in flight.
    pub(super) fn is_over(&self, token: u64) -> bool {
        self.table.slots().is_over(token)
    }

    /// The provider has refused the last post, and may have queued it.
    pub(super) fn withdraw(&mut self, token: u64) {
        self.cursor.withdraw(token);
    }

    /// The number of receives that were posted and not polled.
    pub(super) fn unpolled(&self) -> u32 {
        self.table.slots().unpolled()
    }
}

impl Drop for Srq {
    fn drop(&mut self) {
        if let Some(owned) = self.owned.take() {
            self.table.keep(owned);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A QP with `count` sends in flight that name key 5, and its CQ of depth 8. Returns what completes.
    fn in_flight(count: u64) -> (Pd, Cq, Qp, Vec<Completion>) {
        let (pd, cq) = (Pd::new(), Cq::new(8));
        let caps = Caps { max_send_wr: 7, max_recv_wr: 1, max_send_sge: 1, max_recv_sge: 1, max_inline: 0 };
        let mut qp = Qp::create(&pd, [&cq; 2], None, caps, false).expect("room");
        let request = Request { wr_id: 1, lkeys: &[5], opcode: WcOpcode::SEND, flags: SendFlags::SIGNALED };
        let tokens = (0..count).map(|at| qp.post(at == 7, &request, false).expect("room"));
        let completions = tokens.map(|wr_id| Completion { wr_id, ..Completion::default() }).collect();
        (pd, cq, qp, completions)
    }

    #[test]
    fn a_poll_ends_although_the_completions_of_the_application_s_own_qp_keep_coming() {
        let (pd, mut cq, qp, _) = in_flight(1);
        drop(qp);
        (0..40).for_each(|_| cq.complete(Completion { wr_id: 1 << 63, ..Completion::default() }));
        // Twice what the queue has room for, and once more. Behind it there may be something of the QP.
        for left in [20, 0] {
            assert_eq!((cq.poll(&mut [Completion::default(); 4]), cq.completions()), (Ok(0), left));
            assert!(pd.names(5));
        }
        assert_eq!((cq.poll(&mut [Completion::default(); 4]), cq.completions()), (Ok(0), 0));
        assert!(!pd.names(5));
    }

    #[test]
    fn a_poll_empties_a_cq_that_is_full_of_what_a_destroyed_qp_has_left() {
        let (pd, mut cq, qp, completions) = in_flight(8);
        completions.into_iter().for_each(|completion| cq.complete(completion));
        drop(qp);
        assert_eq!((cq.poll(&mut [Completion::default(); 4]), pd.names(5)), (Ok(0), false));
    }
}
