//! The work queues of a QP. The first post to a queue creates its ring. A QP without posts therefore needs no memory
//! for rings, and no search visits it.

use std::sync::{Arc, OnceLock};

use cmid_proto::Errno;
use cmid_proto::datapath::{Caps, Unpolled};

use crate::accounting::cq_slots::{Gone, GoneQueue};
use crate::accounting::in_flight::{InFlightIndex, PdWork};
use crate::accounting::poll::Provider;
use crate::accounting::wr_ring::{Cursor, WrRing};

/// The reservations of the two queues of a QP that is being created, at their CQs. The drop frees them.
pub(crate) struct Reservation<'a, C: Provider> {
    cqs: [&'a Arc<C>; 2],
    caps: &'a Caps,
}

impl<'a, C: Provider> Reservation<'a, C> {
    /// Makes the reservations of the queues of sends and of receives that report to these CQs, which may be the same.
    ///
    /// # Errors
    /// `EOVERFLOW` if a CQ has no room for the completions, `ENOMEM` if it has the maximum number of queues.
    pub(crate) fn make(cqs: [&'a Arc<C>; 2], caps: &'a Caps) -> Result<Self, Errno> {
        let [send_cq, recv_cq] = cqs;
        send_cq.cq_slots().reserve(caps.max_send_wr)?;
        if let Err(errno) = recv_cq.cq_slots().reserve(caps.max_recv_wr) {
            send_cq.cq_slots().cancel(caps.max_send_wr);
            return Err(errno);
        }
        Ok(Reservation { cqs, caps })
    }

    /// Creates the queues, which have the reservations from then on.
    pub(crate) fn into_queues(self) -> WorkQueues<C> {
        let ([send_cq, recv_cq], caps) = (self.cqs.map(Arc::clone), *self.caps);
        core::mem::forget(self);
        WorkQueues { send_cq, recv_cq, caps, send: OnceLock::new(), recv: OnceLock::new() }
    }
}

impl<C: Provider> Drop for Reservation<'_, C> {
    fn drop(&mut self) {
        let [send_cq, recv_cq] = self.cqs;
        send_cq.cq_slots().cancel(self.caps.max_send_wr);
        recv_cq.cq_slots().cancel(self.caps.max_recv_wr);
    }
}

/// The work queues of a QP, with their reservations at their CQs. [`WorkQueues::close`] or [`WorkQueues::leak`] ends
/// them. Without a ring, a queue has left no completions, and its reservation ends at once. With a ring, the CQ's slots
/// free it after the last completion.
pub(crate) struct WorkQueues<C: Provider> {
    send_cq: Arc<C>,
    recv_cq: Arc<C>,
    /// The capacities as requested.
    caps: Caps,
    // Created by the first post, and read when the QP is destroyed, after the last post.
    send: OnceLock<Ring>,
    recv: OnceLock<Ring>,
}

/// The ring of a queue.
struct Ring {
    queue_id: u32,
    wr_ring: Arc<WrRing>,
    /// The index among the queues of its PD.
    place: InFlightIndex,
}

/// The parameters of the ring of a queue.
struct Shape {
    /// The maximum number of work requests.
    capacity: u32,
    /// The maximum number of ranges of a work request.
    max_sge: u32,
    /// Whether completions come in any order that iWARP permits.
    is_unordered: bool,
}

impl<C: Provider> WorkQueues<C> {
    /// The capacities as requested.
    pub(crate) fn caps(&self) -> &Caps {
        &self.caps
    }

    /// The numbers of work requests in flight.
    pub(crate) fn unpolled(&self) -> Unpolled {
        let of = |ring: &OnceLock<Ring>| ring.get().map_or(0, |ring| ring.wr_ring.unpolled());
        Unpolled { sends: of(&self.send), receives: of(&self.recv) }
    }

    /// Whether all completions of both queues were polled. Called after the last post.
    pub(crate) fn is_idle(&self) -> bool {
        [&self.send, &self.recv].into_iter().filter_map(OnceLock::get).all(|ring| ring.wr_ring.is_idle())
    }

    /// The upper half of the tokens of its receives; `None` without a ring.
    pub(crate) fn recv_queue(&self) -> Option<u32> {
        self.recv.get().map(|ring| ring.queue_id)
    }

    /// Whether the request of the send queue of this number, which was posted, is in flight.
    pub(crate) fn has_send_in_flight(&self, number: u32) -> bool {
        self.send.get().is_some_and(|ring| ring.wr_ring.is_in_flight(number))
    }

    /// The CQs of sends and of receives.
    pub(crate) fn cqs(&self) -> [&C; 2] {
        [&self.send_cq, &self.recv_cq]
    }

    /// Opens the queue of sends for the first post: makes the ring, if there is none. The cursor then has room.
    /// `is_unordered`: its completions come in any order that iWARP permits.
    pub(crate) fn open_send(&self, cursor: &mut Cursor, pd: &Arc<impl PdWork>, is_unordered: bool) {
        let shape = Shape { capacity: self.caps.max_send_wr, max_sge: self.caps.max_send_sge, is_unordered };
        shape.open(&*self.send_cq, &self.send, cursor, pd);
    }

    /// The same for receives.
    pub(crate) fn open_recv(&self, cursor: &mut Cursor, pd: &Arc<impl PdWork>) {
        let shape = Shape { capacity: self.caps.max_recv_wr, max_sge: self.caps.max_recv_sge, is_unordered: false };
        shape.open(&*self.recv_cq, &self.recv, cursor, pd);
    }

    /// Withdraws the last requests of the queue of sends: see [`Cursor::withdraw`].
    #[cold]
    pub(crate) fn withdraw_send(&self, cursor: &mut Cursor, count: usize) -> usize {
        withdraw(&*self.send_cq, self.send.get(), cursor, count)
    }

    /// The same for receives.
    #[cold]
    pub(crate) fn withdraw_recv(&self, cursor: &mut Cursor, count: usize) -> usize {
        withdraw(&*self.recv_cq, self.recv.get(), cursor, count)
    }

    /// Ends both queues of a destroyed QP. What its requests of sends and of receives own is dropped when they can no
    /// longer be executed. Returns the queues that are over at once, as [`CqSlots::leave`] does.
    ///
    /// [`CqSlots::leave`]: crate::accounting::cq_slots::CqSlots::leave
    #[must_use]
    pub(crate) fn close(
        &mut self,
        pd: &Arc<impl PdWork + 'static>,
        owned: Option<[impl Send + Sync + 'static; 2]>,
    ) -> [Option<Gone>; 2] {
        let Caps { max_send_wr, max_recv_wr, .. } = self.caps;
        let (send, recv) = (self.send.take(), self.recv.take());
        if send.is_none() {
            self.send_cq.cq_slots().cancel(max_send_wr);
        }
        if recv.is_none() {
            self.recv_cq.cq_slots().cancel(max_recv_wr);
        }
        let [of_sends, of_recvs] = owned.map_or([None, None], |owned| owned.map(Some));
        [
            send.and_then(|ring| ring.close(&*self.send_cq, max_send_wr, pd, of_sends)),
            recv.and_then(|ring| ring.close(&*self.recv_cq, max_recv_wr, pd, of_recvs)),
        ]
    }

    /// Leaks the queues of a QP that could not be destroyed: they keep their reservations and their ids.
    #[cold]
    pub(crate) fn leak(&mut self, pd: &Arc<impl PdWork>) {
        for Ring { place, .. } in [self.send.take(), self.recv.take()].into_iter().flatten() {
            pd.in_flight().leak(place);
        }
    }
}

fn withdraw(cq: &impl Provider, ring: Option<&Ring>, cursor: &mut Cursor, count: usize) -> usize {
    // A batch is not longer than its queue.
    let withdrawn = cursor.withdraw(count as u32);
    if let Some(Ring { queue_id, wr_ring, .. }) = ring {
        // The poller then looks at the completions of this queue one by one.
        cq.cq_slots().set_ring(*queue_id, wr_ring);
    }
    withdrawn as usize
}

impl Shape {
    fn open(&self, cq: &impl Provider, ring: &OnceLock<Ring>, cursor: &mut Cursor, pd: &Arc<impl PdWork>) {
        if ring.get().is_some() {
            return;
        }
        let made = self.make_ring(cq, pd);
        *cursor = Cursor::new(&made.wr_ring);
        // Only the handle of the QP opens it, by `&mut`.
        let _ = ring.set(made);
    }

    /// Creates the ring. Completions and work in flight of the queue are accounted from now on.
    fn make_ring(&self, cq: &impl Provider, pd: &Arc<impl PdWork>) -> Ring {
        let cq_slots = cq.cq_slots();
        let queue_id = cq_slots.assign();
        let new = if self.is_unordered { WrRing::unordered } else { WrRing::new };
        let wr_ring = Arc::new(new(queue_id, self.capacity, self.max_sge));
        cq_slots.set_ring(queue_id, &wr_ring);
        let place = pd.in_flight().enlist(&wr_ring);
        Ring { queue_id, wr_ring, place }
    }
}

impl Ring {
    /// Ends the queue of a destroyed QP.
    fn close(
        self,
        cq: &impl Provider,
        capacity: u32,
        pd: &Arc<impl PdWork + 'static>,
        owned: Option<impl Send + Sync + 'static>,
    ) -> Option<Gone> {
        let Ring { queue_id, wr_ring, place } = self;
        let (pd, owned) = (Arc::downgrade(pd), owned.map(|owned| Box::new(owned) as Box<dyn Send + Sync>));
        cq.cq_slots().leave(GoneQueue { queue_id, capacity, wr_ring, place, pd, owned })
    }
}
