//! Event channels: opened and closed by the application, or of one id: in synchronous mode, or a listener.

use super::Core;
use crate::device::Call;
use crate::error::Refused;
use crate::id::{Channel, Phase};
use crate::key::{About, ChannelKey, IdKey};
use crate::request::Acks;
use crate::state::State;

impl Core {
    /// Opens an event channel (rdma_create_event_channel(3)).
    ///
    /// # Errors
    /// [`Refused::Full`] at the limit on channels.
    pub fn open_channel(&mut self, acks: Acks) -> Result<ChannelKey, Refused> {
        let channel = self.insert_channel(acks, false)?;
        self.call_for_channel(channel, Call::OpenChannel { channel });
        Ok(channel)
    }

    /// Closes an event channel (rdma_destroy_event_channel(3)). The real one would destroy the ids that are on it in
    /// the kernel and leave the library's halves dangling; here ids have to leave first.
    ///
    /// # Errors
    /// [`Refused::NoSuchChannel`]; [`Refused::ChannelInUse`] while it is being opened, ids are on it, events wait to be
    /// taken, or it belongs to an id in synchronous mode or to a listener.
    pub fn close_channel(&mut self, key: ChannelKey) -> Result<(), Refused> {
        self.usable_channel(key)?;
        match self.channels.get(key) {
            Some(channel) if channel.phase == Phase::Open && channel.ids == 0 && channel.mail.head().is_none() => {
                self.close(key);
                Ok(())
            }
            Some(_) | None => Err(Refused::ChannelInUse { channel: key }),
        }
    }

    /// The key again, if ids may be put on that channel.
    pub(super) fn usable_channel(&self, key: ChannelKey) -> Result<ChannelKey, Refused> {
        match self.channels.get(key) {
            Some(channel) if channel.private => Err(Refused::ChannelInUse { channel: key }),
            Some(channel) if matches!(channel.phase, Phase::Opening | Phase::Open) => Ok(key),
            Some(_) | None => Err(Refused::NoSuchChannel { channel: key }),
        }
    }

    pub(super) fn insert_channel(&mut self, acks: Acks, private: bool) -> Result<ChannelKey, Refused> {
        self.channels.insert(Channel::new(acks, private)).ok_or(Refused::Full("channels"))
    }

    pub(super) fn join_channel(&mut self, key: ChannelKey) {
        if let Some(channel) = self.channels.get_mut(key) {
            channel.ids += 1;
        }
    }

    /// An id leaves; a private channel closes with its last.
    pub(super) fn leave_channel(&mut self, key: ChannelKey) {
        let Some(channel) = self.channels.get_mut(key) else { return };
        channel.ids -= 1;
        if channel.ids > 0 {
            return;
        }
        match (channel.phase, channel.private) {
            (Phase::Open, true) => self.close(key),
            // It never came to be at the device.
            (Phase::Opening, true) | (Phase::Broken, _) => self.remove_channel(key),
            (Phase::Open | Phase::Opening, false) | (Phase::Closing, _) => {}
        }
    }

    /// Notes where an id's events are delivered and where the device reports them.
    pub(super) fn place(&mut self, key: IdKey, home: ChannelKey, line: ChannelKey) {
        let Some(id) = self.ids.get_mut(key) else { return };
        let listens = u32::from(id.state == State::Listening);
        let (old_home, old_line) = (core::mem::replace(&mut id.home, home), core::mem::replace(&mut id.line, line));
        // The new ones first, or a channel that is both would close in between.
        self.join_both(home, line);
        if let Some(channel) = self.channels.get_mut(old_line) {
            channel.listeners -= listens;
        }
        if let Some(channel) = self.channels.get_mut(line) {
            channel.listeners += listens;
        }
        self.leave_both(old_home, old_line);
    }

    pub(super) fn join_both(&mut self, home: ChannelKey, line: ChannelKey) {
        self.join_channel(home);
        if line != home {
            self.join_channel(line);
        }
    }

    pub(super) fn leave_both(&mut self, home: ChannelKey, line: ChannelKey) {
        self.leave_channel(home);
        if line != home {
            self.leave_channel(line);
        }
    }

    /// A channel is gone, or never came to be.
    pub(super) fn remove_channel(&mut self, key: ChannelKey) {
        self.discard_left(key);
        let Some((readable, parked)) = self.channels.remove(key).map(|gone| (gone.readable, gone.parked)) else {
            return;
        };
        if readable {
            self.readable.retain(|&waiting| waiting != key);
        }
        if parked {
            self.parked.retain(|&waiting| waiting != key);
        }
    }

    /// Nobody can take what is left on a channel that closes; there is something only on a private one.
    fn close(&mut self, key: ChannelKey) {
        self.discard_left(key);
        if let Some(channel) = self.channels.get_mut(key) {
            channel.phase = Phase::Closing;
        }
        self.call_for_channel(key, Call::CloseChannel { channel: key });
    }

    fn discard_left(&mut self, key: ChannelKey) {
        while let Some(letter) = self.channels.get(key).and_then(|channel| channel.mail.head()) {
            self.withdraw(letter, key);
            self.counters.discarded += 1;
        }
    }

    fn call_for_channel(&mut self, key: ChannelKey, call: Call) {
        let token = self.token(About::Channel(key));
        if let Some(channel) = self.channels.get_mut(key) {
            channel.call = Some(token.number);
        }
        self.calls.push_back((token, call));
    }
}
