//! A poll of a CQ: the call of the provider, and the accounting of the completions that it returns.

use core::ffi::c_int;

use cmid_proto::Errno;
use cmid_proto::datapath::Completion;

use crate::accounting::cq_slots::CqSlots;
use crate::accounting::slot_cache::SlotCache;

/// The provider of a CQ, with the work queues that report to the CQ.
pub(crate) trait Provider {
    fn cq_slots(&self) -> &CqSlots;

    /// Fills the slice from its start. Returns the number of completions, or a negative number.
    fn poll(&self, completions: &mut [Completion]) -> c_int;
}

/// The completions of a poll that has returned `polled`; `None` if it has returned none, or no possible number.
fn filled(completions: &mut [Completion], polled: c_int) -> Option<&mut [Completion]> {
    // One comparison for both ends: 0 wraps around. A negative number is larger than any length.
    if (polled as u32).wrapping_sub(1) as usize >= completions.len() {
        return None;
    }
    completions.get_mut(..polled as usize)
}

/// The handle of a CQ that is polled.
pub(crate) trait Poller {
    type Provider: Provider;

    fn parts(&mut self) -> (&Self::Provider, &mut SlotCache);

    /// See [`CompletionQueue::poll`](cmid_proto::datapath::CompletionQueue::poll) of [`Cq`](crate::Cq).
    #[inline(always)]
    fn poll(&mut self, completions: &mut [Completion]) -> Result<usize, Errno> {
        let (provider, slot_cache) = self.parts();
        if !slot_cache.is_current(provider.cq_slots()) {
            return self.poll_changed(completions);
        }
        let polled = provider.poll(completions);
        let Some(filled) = filled(completions, polled) else { return self.poll_none(completions, polled) };
        let (known, mut rest) = (slot_cache.known(), filled.iter_mut());
        while let Some(completion) = rest.next() {
            // The opcode of a failed one is not valid; `poll_rest` restores it.
            if completion.is_success() {
                if let Some(wr_id) = known.retire_next(completion.wr_id) {
                    completion.wr_id = wr_id;
                    continue;
                }
                if let Some(wr_id) = slot_cache.retire_next_srq(completion.wr_id) {
                    completion.wr_id = wr_id;
                    continue;
                }
            }
            let kept = polled as usize - 1 - rest.len();
            return self.poll_rest(completions, polled, kept);
        }
        Ok(polled as usize)
    }

    /// The rest of a poll that has returned no completions, an error, or more than there is room for.
    fn poll_none(&mut self, completions: &mut [Completion], polled: c_int) -> Result<usize, Errno> {
        let is_empty = polled == 0 && self.parts().1.none_gone();
        if is_empty { Ok(0) } else { self.poll_rest(completions, polled, 0) }
    }

    /// A poll after queues were added or removed, or one that reports a doubt.
    #[cold]
    fn poll_changed(&mut self, completions: &mut [Completion]) -> Result<usize, Errno> {
        let (provider, slot_cache) = self.parts();
        if slot_cache.take_doubt() {
            return Err(Errno::EIO);
        }
        slot_cache.look(provider.cq_slots());
        let polled = provider.poll(completions);
        self.poll_rest(completions, polled, 0)
    }

    /// The rest of a poll that has returned `polled` completions, the first `kept` of which are retired. Called if a
    /// completion is of an unknown queue, or not the next one of its queue, or if a queue is destroyed.
    ///
    /// It returns when it has dropped more completions than the CQ may have at a time, at most two for each that it has
    /// room for, although others may have come meanwhile, such as those of a QP of the application's own. If the CQ was
    /// armed before, they cause a notification.
    #[cold]
    fn poll_rest(&mut self, completions: &mut [Completion], polled: c_int, kept: usize) -> Result<usize, Errno> {
        let (provider, slot_cache) = self.parts();
        let (mut polled, mut kept, mut dropped) = (polled, kept, 0);
        loop {
            let filled =
                usize::try_from(polled).ok().and_then(|count| completions.get_mut(..count)).ok_or(Errno::EIO)?;
            let is_empty = filled.is_empty();
            dropped += filled.len();
            kept = slot_cache.retire(provider.cq_slots(), filled, kept);
            // There may be more if all of them were dropped.
            let empty = is_empty && (completions.is_empty() || slot_cache.refresh(provider.cq_slots()));
            if kept > 0 || empty {
                return Ok(kept);
            }
            if slot_cache.take_doubt() {
                return Err(Errno::EIO);
            }
            if dropped / 2 > provider.cq_slots().room().depth() as usize {
                return Ok(0);
            }
            polled = provider.poll(completions);
        }
    }
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;
    use std::sync::Arc;

    use cmid_proto::datapath::WcOpcode;

    use super::*;
    use crate::accounting::kind::Kind;
    use crate::accounting::wr_ring::{Cursor, WrRing};

    /// A CQ with completions of no queue, and one behind them.
    struct Flood(CqSlots, Cell<u32>, u64);

    struct Handle(Flood, SlotCache);

    impl Provider for Flood {
        fn cq_slots(&self) -> &CqSlots {
            &self.0
        }

        fn poll(&self, completions: &mut [Completion]) -> c_int {
            let left = self.1.get();
            self.1.set(left.saturating_sub(1));
            completions[0].wr_id = if left == 0 { self.2 } else { u64::MAX };
            1
        }
    }

    impl Poller for Handle {
        type Provider = Flood;

        fn parts(&mut self) -> (&Flood, &mut SlotCache) {
            (&self.0, &mut self.1)
        }
    }

    #[test]
    fn a_completion_behind_as_many_as_the_cq_can_have_is_found_and_a_flood_is_left() {
        for (foreign, polled) in [(7, Ok(1)), (u32::MAX, Ok(0))] {
            let cq_slots = CqSlots::new(4);
            cq_slots.reserve(4).expect("room");
            let wr_ring = Arc::new(WrRing::new(cq_slots.assign(), 4, 1));
            cq_slots.set_ring(wr_ring.queue_id, &wr_ring);
            let token = Cursor::new(&wr_ring).file(1, &[1], Kind::of(WcOpcode::SEND)).expect("room");
            let mut cq = Handle(Flood(cq_slots, Cell::new(foreign), token), SlotCache::default());
            assert_eq!(Poller::poll(&mut cq, &mut [Completion::default()]), polled, "{foreign}");
        }
    }
}
