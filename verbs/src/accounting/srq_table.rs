//! The receives in flight of a shared receive queue. Its QPs and their CQs hold this table.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use cmid_proto::datapath::SrqCaps;
use parking_lot::Mutex;

use crate::accounting::in_flight::{InFlightIndex, PdWork};
use crate::accounting::srq_slots::SrqSlots;

/// The receives of an SRQ in flight. They pin their memory as long as this table exists: until the SRQ is destroyed,
/// and no CQ of its QPs can have a completion of it (cq_slots.rs).
pub(crate) struct SrqTable {
    slots: Arc<SrqSlots>,
    /// Its index among the queues of its PD.
    place: InFlightIndex,
    pd: Weak<dyn PdWork>,
    leaked: AtomicBool,
    /// What the receives own whose handle is dropped.
    owned: Mutex<Option<Box<dyn Send + Sync>>>,
    _id: SrqId,
}

/// The number of an SRQ in tokens. It is unique among the existing SRQs of the process.
pub(crate) struct SrqId(u16);

/// The largest number: a token is below 2^63 (raw.rs).
const MAX_ID: u16 = u16::MAX >> 1;

/// The numbers in use, and the number that was assigned last.
static SRQ_IDS: Mutex<(BTreeSet<u16>, u16)> = Mutex::new((BTreeSet::new(), 0));

impl SrqTable {
    /// With room for these receives, in flight on a PD.
    pub(crate) fn new(id: SrqId, pd: &Arc<impl PdWork + 'static>, caps: SrqCaps) -> Self {
        let slots = Arc::new(SrqSlots::new(id.0, caps.max_wr, caps.max_sge));
        let place = pd.in_flight().enlist_srq(&slots);
        let pd = Arc::downgrade(pd);
        SrqTable { slots, place, pd, leaked: AtomicBool::new(false), owned: Mutex::new(None), _id: id }
    }

    /// Creates a table on a PD that is gone, for receives of one range.
    #[cfg(test)]
    pub(crate) fn for_test(max_wr: u32) -> Self {
        let id = SrqId::assign().expect("a number");
        let slots = Arc::new(SrqSlots::new(id.0, max_wr, 1));
        let place = crate::accounting::in_flight::InFlightSet::new().enlist_srq(&slots);
        SrqTable {
            slots,
            place,
            pd: Weak::<crate::accounting::in_flight::NoPd>::new(),
            leaked: AtomicBool::new(false),
            owned: Mutex::new(None),
            _id: id,
        }
    }

    pub(crate) fn slots(&self) -> &Arc<SrqSlots> {
        &self.slots
    }

    /// Keeps what the receives own. Called once, by the drop of the handle.
    pub(crate) fn keep(&self, owned: impl Send + Sync + 'static) {
        *self.owned.lock() = Some(Box::new(owned));
    }

    /// Keeps the receives in flight for ever.
    pub(crate) fn leak(&self) {
        if !self.leaked.swap(true, Ordering::Relaxed) {
            if let Some(pd) = self.pd.upgrade() {
                pd.in_flight().leak(self.place);
            }
        }
    }
}

impl SrqId {
    /// Assigns a number. Prefers numbers that were not used recently. `None` if all are in use.
    pub(crate) fn assign() -> Option<Self> {
        let mut ids = SRQ_IDS.lock();
        let (used, last) = &mut *ids;
        let id = (1..=MAX_ID + 1).map(|ahead| last.wrapping_add(ahead) & MAX_ID).find(|id| !used.contains(id))?;
        used.insert(id);
        *last = id;
        Some(SrqId(id))
    }
}

impl Drop for SrqTable {
    fn drop(&mut self) {
        let owned = self.owned.get_mut().take();
        if *self.leaked.get_mut() {
            core::mem::forget(owned);
        } else if let Some(pd) = self.pd.upgrade() {
            pd.in_flight().remove(self.place);
            pd.released();
        }
        // `owned` is dropped last, because the owner of a buffer may panic.
    }
}

impl Drop for SrqId {
    fn drop(&mut self) {
        SRQ_IDS.lock().0.remove(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_srqs_stay_in_the_lower_half() {
        SRQ_IDS.lock().1 = MAX_ID - 2;
        let ids: Vec<_> = (0..5).filter_map(|_| SrqId::assign()).collect();
        assert_eq!(ids.len(), 5);
        assert!(ids.iter().all(|id| id.0 <= MAX_ID), "{:?}", ids.iter().map(|id| id.0).collect::<Vec<_>>());
    }
}
