//! How the work requests of a queue end: in order, out of order (iWARP), and withdrawn.
//!
//! `tests/orders.rs` compiles this file with loom's atomics in place of `sync`.

use cmid_proto::datapath::WcOpcode;

use super::kind::{DONE, Kind, LOOK, UNSIGNALED, WITHDRAWN};
use super::sync::Ordering;
use super::wr_ring::{Cursor, WrRing};

/// The bit of `withdrawn` that says that there is a number.
const PRESENT: u64 = 1 << 32;

/// The work request of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retired {
    /// A work request with this `wr_id` of the user, and the opcode of its completion. It is no longer in flight.
    Done(u64, WcOpcode),
    /// The same of an unsignaled request: for the application only if it has failed.
    Unsignaled(u64, WcOpcode),
    /// Nothing for the application: the request was withdrawn, or (iWARP) its completion is reported twice.
    Silent,
    /// A work request of another queue, or of an earlier queue with the same index.
    Foreign,
    /// Not a work request in flight of this queue: it was not posted, or is reported twice, or after a later one.
    Unexpected,
}

impl WrRing {
    /// Retires the work request of a polled completion. In an ordered queue those before it were not signaled. In another
    /// one (iWARP) each has a completion of its own, which tells nothing of earlier ones.
    pub(crate) fn retire(&self, token: u64) -> Retired {
        if (token >> 32) as u32 != self.queue_id {
            return Retired::Foreign;
        }
        let (number, retired) = (token as u32, self.retired.number.load(Ordering::Relaxed) as u32);
        let (ahead, posted) = (number.wrapping_sub(retired), self.learn() as u32);
        if ahead >= posted.wrapping_sub(retired) {
            // Soft-iWARP flushes a read twice.
            let is_before = self.is_unordered && (ahead as i32) < 0;
            return if is_before { Retired::Silent } else { Retired::Unexpected };
        }
        let [wr_id, keys] = self.slot(token);
        // The poster may withdraw it meanwhile: who comes first decides. Release: as in `retire_alone`.
        let (wr_id, kind) = (wr_id.load(Ordering::Relaxed), Kind(keys.fetch_or(DONE, Ordering::Release)));
        if self.is_unordered && kind.has(DONE) {
            return Retired::Silent;
        }
        let next = if self.is_unordered { self.retire_alone(number, retired) } else { number.wrapping_add(1) };
        // Release: as in `retire_next`.
        self.retired.number.store(self.token(next) ^ self.look(next), Ordering::Release);
        match kind {
            _ if kind.has(WITHDRAWN) => Retired::Silent,
            _ if kind.has(UNSIGNALED) => Retired::Unsignaled(wr_id, kind.opcode()),
            _ => Retired::Done(wr_id, kind.opcode()),
        }
    }

    /// Ends a work request of an unordered queue. Returns the number of the first request that is still in flight.
    fn retire_alone(&self, number: u32, retired: u32) -> u32 {
        let keys_of = |number: u32| {
            let [_, keys] = self.slot(u64::from(number));
            keys
        };
        // Release: who finds that the key is not in flight comes after the poll.
        keys_of(number).store(DONE, Ordering::Release);
        let reached = self.reached.load(Ordering::Relaxed);
        let is_further = (number.wrapping_sub(reached) as i32) >= 0;
        let reached = if is_further { number.wrapping_add(1) } else { reached };
        self.reached.store(reached, Ordering::Relaxed);
        let mut next = retired;
        while next != reached && Kind(keys_of(next).load(Ordering::Relaxed)).has(DONE) {
            next = next.wrapping_add(1);
        }
        next
    }

    /// [`LOOK`], if the completions from this number on need it.
    fn look(&self, next: u32) -> u64 {
        let withdrawn = self.withdrawn.load(Ordering::Acquire);
        if withdrawn != 0 && (withdrawn as u32).wrapping_sub(next) as i32 <= 0 {
            // All of them are passed. The poster may have withdrawn others meanwhile.
            let _ = self.withdrawn.compare_exchange(withdrawn, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
        if self.is_unordered || self.withdrawn.load(Ordering::Acquire) != 0 { LOOK } else { 0 }
    }

    /// Called by the poller after a request was withdrawn: each completion is looked at until it is passed.
    pub(crate) fn heed_withdrawn(&self) {
        let retired = self.retired.number.load(Ordering::Relaxed) as u32;
        self.retired.number.store(self.token(retired) ^ self.look(retired), Ordering::Release);
    }
}

impl Cursor {
    /// Whether a withdrawn request may be in flight.
    pub(crate) fn has_withdrawn(&self) -> bool {
        self.wr_ring.withdrawn.load(Ordering::Acquire) != 0
    }

    /// Called if the provider has not accepted the last `count` requests, which are at least one. It may execute them, at
    /// once or with a later doorbell. So they stay in flight, with their tokens. Their completions are not for the
    /// application.
    ///
    /// Returns how many that are: those after the last one whose completion another thread has already polled. The provider
    /// has queued that one, and all before it. In a queue in order, the completion of a request is told, and its post fails
    /// nevertheless, only if this runs between two instructions of its poll ([`WrRing::retire_next`]).
    #[cold]
    pub(crate) fn withdraw(&mut self, count: u32) -> u32 {
        let after = self.wr_ring.posted.number.load(Ordering::Relaxed) as u32;
        let is_told = |behind: &u32| {
            let number = after.wrapping_sub(*behind);
            let [_, keys] = self.wr_ring.slot(u64::from(number));
            self.is_over(number) || Kind(keys.fetch_or(WITHDRAWN, Ordering::Relaxed)).has(DONE)
        };
        let withdrawn = (1..=count).find(is_told).map_or(count, |told| told - 1);
        if withdrawn > 0 {
            self.wr_ring.withdrawn.store(PRESENT | u64::from(after), Ordering::Release);
        }
        withdrawn
    }
}
