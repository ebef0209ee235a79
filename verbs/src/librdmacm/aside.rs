//! Ids and channels that the core has forgotten although they could not be destroyed or released.
//!
//! The core reports each of them once ([`Fault::Leak`](cmid_proto::Fault::Leak)) and uses its slot again. The
//! destruction is tried again when the slot is needed and when the channel is closed; what fails then is set aside
//! ([`KeyTable`]), and is destroyed with the device.

use cmid_proto::{ChannelKey, Errno, IdKey, KeyTable, Outcome};

use crate::Verbs;
use crate::channel::Channel;
use crate::id::Id;

impl Verbs {
    /// How many ids and channels the core has forgotten that could not be destroyed so far. They are destroyed when
    /// that succeeds, at the latest when the device is dropped. Of each kind there are at most
    /// [`KeyTable::ASIDE_MAX`]; once there are as many, calls that need another slot of that kind fail with `EBUSY`.
    #[must_use]
    pub fn set_aside(&self) -> (usize, usize) {
        (self.ids.aside().len(), self.channels.aside().len())
    }

    /// Destroys an id. Where librdmacm waits for ibacm on its behalf (acm.rs) it is set aside, and destroyed when
    /// that is over.
    #[inline(never)]
    pub(crate) fn destroy_or_abandon(&mut self, key: IdKey) -> Outcome {
        match self.destroy(key) {
            Err(Errno::EBUSY) if self.ids.get(key).is_some_and(Id::is_busy) => {
                self.ids.shelve(key)?;
                self.id(key)?.abandon();
                Ok(())
            }
            outcome => outcome,
        }
    }

    /// A call of rdma_resolve_route that a thread has made for an id on this channel, and that failed. An id that is
    /// only kept until its call is over is destroyed.
    pub(crate) fn failed_elsewhere(&mut self, on: ChannelKey) -> Option<(IdKey, Errno)> {
        loop {
            let (id, outcome) = self.channels.get(on)?.bell()?.answer()?;
            if self.ids.is_aside(id) {
                // If that fails it stays.
                let _ = self.destroy(id);
            } else if let Err(errno) = outcome
                && self.ids.get(id).is_some()
            {
                return Some((id, errno));
            }
        }
    }

    /// Makes room for an id in its slot.
    ///
    /// # Errors
    /// Those of [`KeyTable::reserve`].
    #[inline]
    pub(crate) fn make_room_for_id(&mut self, key: IdKey) -> Result<(), Errno> {
        if self.ids.has_room(key) { Ok(()) } else { self.make_more_room_for_id(key) }
    }

    #[cold]
    fn make_more_room_for_id(&mut self, key: IdKey) -> Result<(), Errno> {
        if let Some(old) = self.ids.occupant(key) {
            self.vacate(old);
        }
        self.ids.reserve(key)
    }

    #[cold]
    fn vacate(&mut self, forgotten: IdKey) {
        if self.destroy(forgotten).is_err() && self.ids.aside().len() >= KeyTable::<IdKey, Id>::ASIDE_MAX {
            let aside: Vec<_> = self.ids.aside().collect();
            self.destroy_all(&aside);
        }
    }

    /// Makes room for a channel in its slot.
    ///
    /// # Errors
    /// Those of [`KeyTable::reserve`].
    pub(crate) fn make_room_for_channel(&mut self, key: ChannelKey) -> Result<(), Errno> {
        if let Some(forgotten) = self.channels.occupant(key)
            && self.close_channel(forgotten).is_err()
            && self.channels.aside().len() >= KeyTable::<ChannelKey, Channel>::ASIDE_MAX
        {
            let aside: Vec<_> = self.channels.aside().collect();
            for key in aside {
                // Those that fail stay.
                let _ = self.close_channel(key);
            }
        }
        self.channels.reserve(key)
    }

    /// Destroys the ids on a channel that is to be closed that could not be destroyed before.
    #[cold]
    pub(crate) fn destroy_forgotten_on(&mut self, channel: ChannelKey) {
        let left = self.ids.iter().filter(|(_, id)| id.channel == channel && id.doomed);
        let left: Vec<_> = left.map(|(key, _)| key).collect();
        self.destroy_all(&left);
    }

    fn destroy_all(&mut self, keys: &[IdKey]) {
        for &key in keys {
            // Those that fail stay.
            let _ = self.destroy(key);
        }
    }
}
