//! Which ids are on a channel: one that the application opened, or that is private to an id in synchronous mode or to a
//! listener.

use super::Core;
use super::next::Due;
use crate::channel::Channel;
use crate::error::Refused;
use crate::id::Id;
use crate::key::{ChannelKey, IdKey};
use crate::state::State;

impl Core {
    pub(super) fn is_private(&self, channel: ChannelKey) -> bool {
        self.channels.get(channel).is_some_and(|channel| channel.private)
    }

    /// Returns the id that this channel is private to, if that id listens.
    pub(super) fn listener_on(&self, channel: &Channel) -> Option<&Id> {
        // Most channels have no listener.
        let listener = channel.listener?;
        self.ids.get(listener).filter(|id| id.state == State::Listening)
    }

    /// Checks whether ids may be put on a channel. Returns its key.
    pub(super) fn usable_channel(&self, key: ChannelKey) -> Result<ChannelKey, Refused> {
        match self.channels.get(key) {
            Some(channel) if channel.private => Err(Refused::ChannelInUse { channel: key }),
            Some(_) => Ok(key),
            None => Err(Refused::NoSuchChannel { channel: key }),
        }
    }

    /// As `usable_channel`, and refuses a channel that has failed.
    pub(super) fn target_channel(&self, key: ChannelKey) -> Result<ChannelKey, Refused> {
        let key = self.usable_channel(key)?;
        match self.channels.get(key) {
            Some(channel) if channel.has_failed() => Err(Refused::ChannelFailed { channel: key }),
            Some(_) | None => Ok(key),
        }
    }

    pub(super) fn join_channel(&mut self, key: ChannelKey) {
        if let Some(channel) = self.channels.get_mut(key) {
            channel.ids += 1;
        }
    }

    /// Removes an id from a channel's count; a private channel closes with its last id.
    pub(super) fn leave_channel(&mut self, key: ChannelKey) {
        let Some(channel) = self.channels.get_mut(key) else { return };
        channel.ids -= 1;
        if channel.ids == 0 && channel.private {
            channel.closing = true;
            self.due.push_back(Due::Close(key));
        }
    }

    /// Sets the channel that an id's events are delivered on, and the channel that the device reports the id on.
    pub(super) fn set_channels(&mut self, key: IdKey, channel: ChannelKey, device_channel: ChannelKey) {
        let Some(id) = self.ids.get_mut(key) else { return };
        let (old_channel, old_device_channel) =
            (core::mem::replace(&mut id.channel, channel), core::mem::replace(&mut id.device_channel, device_channel));
        // The id joins the new channels first. Otherwise a channel that is both old and new would close in between.
        self.join_both(channel, device_channel);
        self.leave_both(old_channel, old_device_channel);
    }

    pub(super) fn join_both(&mut self, channel: ChannelKey, device_channel: ChannelKey) {
        self.join_channel(channel);
        if device_channel != channel {
            self.join_channel(device_channel);
        }
    }

    pub(super) fn leave_both(&mut self, channel: ChannelKey, device_channel: ChannelKey) {
        self.leave_channel(channel);
        if device_channel != channel {
            self.leave_channel(device_channel);
        }
    }

    /// Removes a channel that is closed. Only a private channel can have events then; they cannot be taken any more.
    pub(super) fn remove_channel(&mut self, key: ChannelKey) {
        self.unqueue(key);
        let Some(gone) = self.channels.get(key) else { return };
        self.counters.discarded += gone.events.len() as u64;
        self.undelivered -= gone.events.iter().map(|stored| u32::from(stored.of_device())).sum::<u32>();
        let stored = gone.events.iter().chain(gone.ended.iter().map(|(_, stored)| stored));
        stored.for_each(|stored| self.data.discard(stored.data));
        self.channels.remove(key);
        self.unpark();
    }
}
