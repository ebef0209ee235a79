//! Ids and channels that the core has dropped although they could not be destroyed or released.
//!
//! The core reports each of them once ([`Fault::Leak`](cmid_proto::Fault::Leak)) and reuses its slot. The destroy is
//! repeated when the slot is needed and when the channel is closed. If it fails again, the object is set aside
//! ([`KeyTable`]), and is destroyed with the device.

use cmid_proto::key_table::KeyTable;
use cmid_proto::{ChannelKey, IdKey, Outcome};

/// The tables of a backend, and the functions that remove their entries.
pub(crate) trait Tables {
    type Id;
    type Channel;

    fn ids(&self) -> &KeyTable<IdKey, Self::Id>;
    fn ids_mut(&mut self) -> &mut KeyTable<IdKey, Self::Id>;
    fn channels(&self) -> &KeyTable<ChannelKey, Self::Channel>;
    fn channels_mut(&mut self) -> &mut KeyTable<ChannelKey, Self::Channel>;

    /// Destroys an id and removes it from its table.
    fn destroy(&mut self, key: IdKey) -> Outcome;

    /// Closes a channel and removes it from its table.
    fn close_channel(&mut self, key: ChannelKey) -> Outcome;

    /// Whether an id is on this channel and an earlier destroy of it failed.
    fn is_doomed_on(id: &Self::Id, channel: ChannelKey) -> bool;

    /// Makes room for an id in its slot: destroys a forgotten id there.
    ///
    /// # Errors
    /// The errors of [`KeyTable::reserve`].
    fn make_room_for_id(&mut self, key: IdKey) -> Outcome {
        if self.ids().has_room(key) { Ok(()) } else { self.make_room_in_slot(key) }
    }

    #[cold]
    fn make_room_in_slot(&mut self, key: IdKey) -> Outcome {
        if let Some(forgotten) = self.ids().occupant(key) {
            if self.destroy(forgotten).is_err() && self.ids().aside().len() >= KeyTable::<IdKey, Self::Id>::ASIDE_MAX {
                let aside: Vec<_> = self.ids().aside().collect();
                self.destroy_all(&aside);
            }
        }
        self.ids_mut().reserve(key)
    }

    /// Makes room for a channel in its slot.
    ///
    /// # Errors
    /// The errors of [`KeyTable::reserve`].
    fn make_room_for_channel(&mut self, key: ChannelKey) -> Outcome {
        if let Some(forgotten) = self.channels().occupant(key) {
            if self.close_channel(forgotten).is_err()
                && self.channels().aside().len() >= KeyTable::<ChannelKey, Self::Channel>::ASIDE_MAX
            {
                let aside: Vec<_> = self.channels().aside().collect();
                for key in aside {
                    // A channel that cannot be closed stays.
                    let _ = self.close_channel(key);
                }
            }
        }
        self.channels_mut().reserve(key)
    }

    /// Repeats the failed destroys of the ids on a channel.
    fn destroy_forgotten_on(&mut self, channel: ChannelKey) {
        let doomed = self.ids().iter().filter(|(_, id)| Self::is_doomed_on(id, channel));
        let doomed: Vec<_> = doomed.map(|(key, _)| key).collect();
        self.destroy_all(&doomed);
    }

    fn destroy_all(&mut self, keys: &[IdKey]) {
        for &key in keys {
            // An id that cannot be destroyed stays.
            let _ = self.destroy(key);
        }
    }
}
