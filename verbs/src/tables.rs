//! The ids and channels of a backend by the core's keys.
//!
//! Some of them the core has dropped although they could not be destroyed or released. It reports each once
//! ([`Fault::Leak`](cmid_proto::Fault::Leak)) and reuses its slot. The destroy is repeated when the slot is needed and
//! when the channel is closed. If it fails again, the object is set aside ([`KeyTable`]), and is destroyed with the
//! device.

use cmid_proto::key_table::KeyTable;
use cmid_proto::{ChannelKey, Errno, IdKey, Outcome};

/// An id of a backend. Dropping it destroys it.
pub(crate) trait Destroy {
    /// Destroys it. After a success it can only be dropped.
    fn destroy(&mut self) -> Outcome;
}

pub(crate) struct OnChannel<I> {
    pub(crate) id: I,
    /// The channel of its events.
    pub(crate) channel: ChannelKey,
    /// Whether a destroy of the id has failed.
    doomed: bool,
}

/// A channel and the number of ids on it. An id needs its channel, so the channel is closed at 0.
pub(crate) struct WithIds<C> {
    channel: C,
    ids: usize,
}

pub(crate) struct Tables<I, C> {
    // Field order: an id needs its channel, so ids are dropped first.
    pub(crate) ids: KeyTable<IdKey, OnChannel<I>>,
    channels: KeyTable<ChannelKey, WithIds<C>>,
}

impl<I: Destroy, C> Tables<I, C> {
    pub(crate) fn new() -> Self {
        Tables { ids: KeyTable::default(), channels: KeyTable::default() }
    }

    /// Returns the numbers of ids and channels, including those that are set aside.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.ids.len(), self.channels.len())
    }

    /// # Errors
    /// `ENOENT` for an unknown id.
    pub(crate) fn id(&self, key: IdKey) -> Result<&I, Errno> {
        self.ids.get(key).map(|found| &found.id).ok_or(Errno::ENOENT)
    }

    /// Like [`Tables::id`], mutable.
    pub(crate) fn id_mut(&mut self, key: IdKey) -> Result<&mut I, Errno> {
        self.ids.get_mut(key).map(|found| &mut found.id).ok_or(Errno::ENOENT)
    }

    /// Returns an id on this channel, unless it is set aside.
    pub(crate) fn id_on(&self, channel: ChannelKey, key: IdKey) -> Option<&I> {
        self.ids.get_filed(key).filter(|found| found.channel == channel).map(|found| &found.id)
    }

    /// # Errors
    /// `EBADF` for an unknown channel.
    pub(crate) fn channel(&self, key: ChannelKey) -> Result<&C, Errno> {
        self.channels.get(key).map(|found| &found.channel).ok_or(Errno::EBADF)
    }

    /// Like [`Tables::channel`], mutable.
    pub(crate) fn channel_mut(&mut self, key: ChannelKey) -> Result<&mut C, Errno> {
        self.channels.get_mut(key).map(|found| &mut found.channel).ok_or(Errno::EBADF)
    }

    fn ids_on(&mut self, key: ChannelKey) -> Result<&mut usize, Errno> {
        self.channels.get_mut(key).map(|found| &mut found.ids).ok_or(Errno::EBADF)
    }

    pub(crate) fn open_channel(&mut self, key: ChannelKey, open: impl FnOnce() -> Result<C, Errno>) -> Outcome {
        self.make_room_for_channel(key)?;
        self.channels.insert(key, WithIds { channel: open()?, ids: 0 }).map_err(|_| Errno::EINVAL)
    }

    pub(crate) fn create_id<F>(&mut self, key: IdKey, on: ChannelKey, create: F) -> Outcome
    where
        F: FnOnce(&C) -> Result<I, Errno>,
    {
        self.make_room_for_id(key)?;
        let id = create(self.channel(on)?)?;
        self.insert(key, on, id).map_err(|_| Errno::EINVAL)
    }

    /// Stores a new id in its slot, for which there is room.
    ///
    /// # Errors
    /// The id, if there is none.
    pub(crate) fn insert(&mut self, key: IdKey, channel: ChannelKey, id: I) -> Result<(), I> {
        self.ids.insert(key, OnChannel { id, channel, doomed: false }).map_err(|refused| refused.id)?;
        self.ids_on(channel).into_iter().for_each(|ids| *ids += 1);
        Ok(())
    }

    /// Moves an id to another channel. `call` gets the id, that channel, and the key of its present one.
    pub(crate) fn migrate<F>(&mut self, key: IdKey, to: ChannelKey, call: F) -> Outcome
    where
        F: FnOnce(&mut I, &C, ChannelKey) -> Outcome,
    {
        let OnChannel { id, channel, .. } = self.ids.get_mut(key).ok_or(Errno::ENOENT)?;
        let target = self.channels.get_mut(to).ok_or(Errno::EBADF)?;
        call(id, &target.channel, *channel)?;
        target.ids += 1;
        let from = core::mem::replace(channel, to);
        self.leave(from);
        Ok(())
    }

    /// Destroys an id and removes it from its table.
    pub(crate) fn destroy(&mut self, key: IdKey) -> Outcome {
        let OnChannel { id, channel, doomed } = self.ids.get_mut(key).ok_or(Errno::ENOENT)?;
        let on = *channel;
        *doomed = true;
        id.destroy()?;
        self.ids.remove(key);
        self.leave(on);
        Ok(())
    }

    /// Subtracts one from the ids of this channel. A channel that is set aside is closed after its last id.
    fn leave(&mut self, key: ChannelKey) {
        let Ok(ids) = self.ids_on(key) else { return };
        *ids -= 1;
        if *ids == 0 && self.channels.aside().any(|aside| aside == key) {
            self.channels.remove(key);
        }
    }

    /// Closes a channel and removes it from its table.
    ///
    /// # Errors
    /// `EBUSY` while ids are on it: the kernel would destroy them, and those of librdmacm would point at freed memory
    /// (rdma_destroy_event_channel(3) forbids it).
    pub(crate) fn close_channel(&mut self, key: ChannelKey) -> Outcome {
        if *self.ids_on(key)? > 0 {
            let doomed = self.ids.iter().filter(|(_, id)| id.doomed && id.channel == key);
            let doomed: Vec<_> = doomed.map(|(key, _)| key).collect();
            self.remove_all(doomed, Self::destroy);
        }
        if *self.ids_on(key)? > 0 {
            return Err(Errno::EBUSY);
        }
        self.channels.remove(key);
        Ok(())
    }

    /// Takes out an id and its own channel.
    ///
    /// # Errors
    /// `ENOENT` for unknown keys; `EINVAL` if the id is not on this channel, or with others: two devices would then read
    /// from one channel.
    pub(crate) fn release(&mut self, key: IdKey, on: ChannelKey) -> Result<(I, C), Errno> {
        let owner = self.channels.get(on).ok_or(Errno::ENOENT)?;
        if self.ids.get(key).ok_or(Errno::ENOENT)?.channel != on || owner.ids != 1 {
            return Err(Errno::EINVAL);
        }
        let (id, owner) = self.ids.remove(key).zip(self.channels.remove(on)).ok_or(Errno::ENOENT)?;
        Ok((id.id, owner.channel))
    }

    /// Adds a released id and its channel under new keys.
    ///
    /// # Errors
    /// `EINVAL` for keys in use, which is a defect of the driver. The id is then dropped, and with it the channel.
    pub(crate) fn adopt(&mut self, key: IdKey, on: ChannelKey, released: (I, C)) -> Outcome {
        // Until both have room, they are one value, whose id is dropped before its channel.
        self.make_room_for_id(key)?;
        self.make_room_for_channel(on)?;
        let (id, channel) = released;
        self.channels.insert(on, WithIds { channel, ids: 0 }).map_err(|_| Errno::EINVAL)?;
        self.insert(key, on, id).map_err(|_| Errno::EINVAL)
    }

    /// Makes room for an id in its slot: destroys a forgotten id there.
    ///
    /// # Errors
    /// The errors of [`KeyTable::reserve`].
    pub(crate) fn make_room_for_id(&mut self, key: IdKey) -> Outcome {
        if self.ids.has_room(key) { Ok(()) } else { self.make_room_in_slot(key) }
    }

    #[cold]
    fn make_room_in_slot(&mut self, key: IdKey) -> Outcome {
        if let Some(forgotten) = self.ids.occupant(key) {
            if self.destroy(forgotten).is_err() && self.ids.aside().len() >= KeyTable::<IdKey, I>::ASIDE_MAX {
                let aside = self.ids.aside().collect();
                self.remove_all(aside, Self::destroy);
            }
        }
        self.ids.reserve(key)
    }

    fn make_room_for_channel(&mut self, key: ChannelKey) -> Outcome {
        if let Some(forgotten) = self.channels.occupant(key) {
            let failed = self.close_channel(forgotten).is_err();
            if failed && self.channels.aside().len() >= KeyTable::<ChannelKey, C>::ASIDE_MAX {
                let aside = self.channels.aside().collect();
                self.remove_all(aside, Self::close_channel);
            }
        }
        self.channels.reserve(key)
    }

    fn remove_all<K>(&mut self, keys: Vec<K>, remove: fn(&mut Self, K) -> Outcome) {
        for key in keys {
            // What cannot be removed stays.
            let _ = remove(self, key);
        }
    }
}
