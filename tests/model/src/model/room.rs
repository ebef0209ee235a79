//! The channels to read: those that are not paused, while there is room for events.

use cmid_proto::{ChannelKey, IdKey, Limits, State};

use super::host::Host;
use super::ledger::ExpectedEvent;
use crate::say::say;

impl Host {
    /// Stops the reading of a channel.
    pub(crate) fn pause(&mut self, channel: ChannelKey) {
        let done = self.core.pause_channel(channel);
        say(|| format!("pauses {channel}: {done:?}"));
        if done.is_ok() {
            self.paused.insert(channel);
        }
        self.look();
    }

    /// Resumes all channels.
    pub(crate) fn resume(&mut self) {
        for channel in std::mem::take(&mut self.paused) {
            let done = self.core.resume_channel(channel);
            say(|| format!("resumes {channel}: {done:?}"));
        }
        self.look();
    }

    /// Whether there is room to read an event of this channel.
    pub(super) fn has_room(&self, channel: ChannelKey) -> bool {
        // The last id has left a private channel, which is to be closed.
        let is_left = || self.core.ids().all(|id| self.core.device_channel(id) != Some(channel));
        if self.paused.contains(&channel) || (!self.open.contains(&channel) && is_left()) {
            return false;
        }
        let is_request = |letter: &&ExpectedEvent| letter.listener.is_some();
        let all = self.ledger.undelivered().count();
        let less = |limit: u32, reserved: u32| (limit - reserved.min(limit / 2)) as usize;
        let listens = |id: &IdKey| {
            self.core.channel_info(channel).is_some_and(|it| it.is_private)
                && self.core.device_channel(*id) == Some(channel)
                && self.core.state(*id) == Some(State::Listening)
        };
        let Limits { ids, reserved_ids, events, reserved_events, channel_events, .. } = self.limits;
        let Some(listener) = self.core.ids().find(listens) else {
            let own = self.ledger.on(channel).filter(|letter| !is_request(letter)).count();
            let room = own == 0 || (own < channel_events as usize && all < events as usize);
            return room && self.core.ids().count() <= ids as usize;
        };
        let requests = self.ledger.undelivered().filter(is_request).filter(|letter| letter.owner == listener).count();
        requests < self.backlogs[&listener]
            && self.core.ids().count() < less(ids, reserved_ids)
            && all < less(events, reserved_events)
    }
}
