//! One work queue of a QP. The first post creates its ring. A QP without posts therefore needs no memory for it, and no
//! search visits it.

use std::sync::{Arc, OnceLock};

use cmid_proto::Errno;
use cmid_proto::datapath::Caps;

use crate::accounting::counted::CountedKey;
use crate::accounting::cq_slots::GoneQueue;
use crate::accounting::in_flight::{InFlightIndex, PdWork};
use crate::accounting::poll::Provider;
use crate::accounting::wr_ring::{Cursor, WrRing};

/// The reservations of the two queues of a QP that is being created, at their CQs. The drop frees them.
pub(crate) struct Reservation<'a, C: Provider> {
    cqs: [&'a Arc<C>; 2],
    caps: Caps,
}

impl<'a, C: Provider> Reservation<'a, C> {
    /// Makes the reservations of the queues of sends and of receives that report to these CQs. For a single CQ it makes
    /// one.
    ///
    /// # Errors
    /// `EOVERFLOW` if a CQ has no room for the completions, `ENOMEM` if it has the maximum number of queues.
    #[inline(always)]
    pub(crate) fn make(cqs: [&'a Arc<C>; 2], caps: Caps) -> Result<Self, Errno> {
        let ([send_cq, recv_cq], Caps { max_send_wr: sends, max_recv_wr: recvs, .. }) = (cqs, caps);
        if Arc::ptr_eq(send_cq, recv_cq) {
            send_cq.cq_slots().reserve(2, sends.checked_add(recvs).ok_or(Errno::EOVERFLOW)?)?;
        } else {
            send_cq.cq_slots().reserve(1, sends)?;
            if let Err(errno) = recv_cq.cq_slots().reserve(1, recvs) {
                send_cq.cq_slots().cancel(1, sends);
                return Err(errno);
            }
        }
        Ok(Reservation { cqs, caps })
    }

    /// Creates the queues, which free the reservations from then on.
    #[inline(always)]
    pub(crate) fn into_queues(self) -> [WorkQueue<C>; 2] {
        let ([send_cq, recv_cq], Caps { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, .. }) =
            (self.cqs, self.caps);
        core::mem::forget(self);
        [
            WorkQueue::reserved(send_cq, false, max_send_wr, max_send_sge),
            WorkQueue::reserved(recv_cq, true, max_recv_wr, max_recv_sge),
        ]
    }
}

impl<C: Provider> Drop for Reservation<'_, C> {
    fn drop(&mut self) {
        let ([send_cq, recv_cq], Caps { max_send_wr, max_recv_wr, .. }) = (self.cqs, self.caps);
        send_cq.cq_slots().cancel(1, max_send_wr);
        recv_cq.cq_slots().cancel(1, max_recv_wr);
    }
}

/// A work queue. It has a reservation at its CQ. Without a ring, the drop frees the reservation. With a ring, the CQ's
/// slots free it after the last completion.
pub(crate) struct WorkQueue<C: Provider> {
    cq: Arc<C>,
    is_recv: bool,
    /// The maximum number of work requests.
    capacity: u32,
    /// The maximum number of ranges of a work request.
    max_sge: u32,
    /// Created by the first post, and read when the QP is destroyed, after the last post.
    ring: OnceLock<Ring>,
    /// Whether the drop frees the reservation.
    is_reserved: bool,
}

/// The ring of a queue. The first post creates it.
struct Ring {
    queue_id: u32,
    /// Present if the queue counts.
    counted: Option<CountedKey>,
    wr_ring: Arc<WrRing>,
    /// The index among the queues of its PD.
    place: InFlightIndex,
}

impl<C: Provider> WorkQueue<C> {
    #[inline(always)]
    fn reserved(cq: &Arc<C>, is_recv: bool, capacity: u32, max_sge: u32) -> Self {
        WorkQueue { cq: Arc::clone(cq), is_recv, capacity, max_sge, ring: OnceLock::new(), is_reserved: true }
    }

    /// Opens the queue for the first post: makes the ring, if there is none. The cursor then has room. Without effect on a
    /// counting queue of a QP with the number of a destroyed one, until the CQ is polled empty.
    pub(crate) fn open<const TAG: u64>(&self, cursor: &mut Cursor<TAG>, pd: &Arc<impl PdWork>, qp_num: u32) {
        if self.ring.get().is_some() {
            return;
        }
        let Some(ring) = self.make_ring(pd, qp_num) else { return };
        *cursor = Cursor::new(&ring.wr_ring);
        // Only the handle of the QP opens it, by `&mut`.
        let _ = self.ring.set(ring);
    }

    /// Creates the ring. Completions and work in flight of the queue are accounted from now on.
    fn make_ring(&self, pd: &Arc<impl PdWork>, qp_num: u32) -> Option<Ring> {
        let cq_slots = self.cq.cq_slots();
        let queue_id = cq_slots.assign();
        let (wr_ring, counted) = if cq_slots.is_counting() {
            let (wr_ring, key) = (WrRing::counting(self.capacity), CountedKey { qp_num, is_recv: self.is_recv });
            let wr_ring = Arc::new(wr_ring);
            if !cq_slots.set_counting(key, &wr_ring) {
                cq_slots.unassign(queue_id);
                return None;
            }
            (wr_ring, Some(key))
        } else {
            let wr_ring = Arc::new(WrRing::new(queue_id, self.capacity, self.max_sge));
            cq_slots.set_ring(queue_id, &wr_ring);
            (wr_ring, None)
        };
        let place = pd.in_flight().enlist(&wr_ring);
        Some(Ring { queue_id, counted, wr_ring, place })
    }

    /// Ends both queues of a destroyed QP.
    #[inline]
    pub(crate) fn close_both(send: &mut Self, recv: &mut Self, pd: &Arc<impl PdWork + 'static>) {
        if send.ring.get().is_none() && recv.ring.get().is_none() && Arc::ptr_eq(&send.cq, &recv.cq) {
            // They have left no completions, so their reservation ends at once.
            (send.is_reserved, recv.is_reserved) = (false, false);
            send.cq.cq_slots().cancel(2, send.capacity.saturating_add(recv.capacity));
            return;
        }
        send.close(pd);
        recv.close(pd);
    }

    /// Ends a queue of a destroyed QP.
    fn close(&mut self, pd: &Arc<impl PdWork + 'static>) {
        // Without a ring it has left no completions.
        let Some(Ring { queue_id, counted, wr_ring, place }) = self.ring.take() else { return };
        // Set first, in case the owner of a buffer panics below.
        self.is_reserved = false;
        let pd = Arc::downgrade(pd);
        let gone = GoneQueue { queue_id, counted, capacity: self.capacity, wr_ring, place, pd };
        self.cq.cq_slots().leave(gone);
    }

    /// Leaks the queue of a QP that could not be destroyed: it keeps its reservation and its id.
    pub(crate) fn leak(&mut self, pd: &Arc<impl PdWork>) {
        self.is_reserved = false;
        if let Some(Ring { place, .. }) = self.ring.take() {
            pd.in_flight().leak(place);
        }
    }
}

impl<C: Provider> Drop for WorkQueue<C> {
    #[inline]
    fn drop(&mut self) {
        // A queue with a ring comes here only after a panic of a buffer's owner. Completions may be left.
        if self.is_reserved && self.ring.get().is_none() {
            self.cq.cq_slots().cancel(1, self.capacity);
        }
    }
}
