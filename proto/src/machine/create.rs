//! The creation of ids, and the opening and closing of channels.

use super::Core;
use super::begun::{Arrival, Begun, By, Follow, Following, Part, done};
use super::next::Due;
use crate::call::Outcome;
use crate::channel::Channel;
use crate::errno::Errno;
use crate::error::{Error, Failure, Refused};
use crate::id::Id;
use crate::key::{ChannelKey, IdKey, Target};
use crate::request::{Acks, PortSpace};
use crate::state::State;

/// The call that opens a channel, in errors.
const OPEN: &str = "create_event_channel";

impl Core {
    /// Begins the creation of an id on a channel (rdma_create_id(3)); with `None`, in synchronous mode. Returns the key that
    /// the id will have if all calls succeed. In synchronous mode there are two: the first one opens a channel.
    ///
    /// # Errors
    /// [`Refused::NoSuchChannel`], [`Refused::ChannelFailed`]; [`Refused::Full`] at the limit on ids or, in
    /// synchronous mode, on channels.
    pub fn create_id(
        &mut self,
        channel: Option<ChannelKey>,
        port_space: PortSpace,
    ) -> Result<(IdKey, Begun<'_, 'static>), Refused> {
        let id = if self.has_room() { self.ids.next_key() } else { None };
        let id = id.ok_or(Refused::Full("ids"))?;
        let by = By::Create { port_space, sync: channel.is_none() };
        let part = match channel {
            Some(channel) => Part::Arrive(Arrival { id, channel: self.target_channel(channel)?, by }),
            None => self.open_for(id, by).ok_or(Refused::Full("channels"))?,
        };
        Ok((id, Begun::new(self, part)))
    }

    /// Begins the opening of an event channel (rdma_create_event_channel(3)). Returns the key that the channel will have.
    ///
    /// # Errors
    /// [`Refused::Full`] at the limit on channels.
    pub fn open_channel(&mut self, acks: Acks) -> Result<(ChannelKey, Begun<'_, 'static>), Refused> {
        let channel = self.channels.next_key().ok_or(Refused::Full("channels"))?;
        Ok((channel, Begun::new(self, Part::Open { channel, acks })))
    }

    /// Begins the closing of an event channel (rdma_destroy_event_channel(3)). The function of librdmacm would destroy the
    /// ids on the channel in the kernel, and leave dangling structures in the library. Here all ids must leave the channel
    /// first.
    ///
    /// # Errors
    /// [`Refused::NoSuchChannel`]; [`Refused::ChannelInUse`] while the channel has ids or untaken events, or belongs to an
    /// id in synchronous mode or to a listener.
    pub fn close_channel(&mut self, channel: ChannelKey) -> Result<Begun<'_, 'static>, Refused> {
        self.usable_channel(channel)?;
        match self.channels.get(channel) {
            Some(it) if it.ids == 0 && it.events.is_empty() => {
                Ok(Begun::new(self, Part::Close { channel, asked: true }))
            }
            Some(_) | None => Err(Refused::ChannelInUse { channel }),
        }
    }

    pub(super) fn opened(&mut self, channel: ChannelKey, acks: Acks, outcome: Outcome) -> Following<'static> {
        outcome.map_err(|errno| of_channel(channel, OPEN, errno))?;
        self.channels.insert(Channel::new(acks, false));
        done()
    }

    /// Returns the part that opens a private channel for an id. `None` at the limit on channels.
    pub(super) fn open_for(&self, id: IdKey, by: By) -> Option<Part<'static>> {
        self.channels.next_key().map(|channel| Part::OpenFor(Arrival { id, channel, by }))
    }

    /// Handles the outcome of the opening of a private channel. The channel counts the id, which comes to it by the next
    /// call.
    pub(super) fn opened_for(&mut self, arrival: Arrival, outcome: Outcome) -> Following<'static> {
        let Arrival { id, by, .. } = arrival;
        if let Err(errno) = outcome {
            let failure = self.failure(id, OPEN, errno);
            let By::Migrate { by_event } = by else { return Err(failure.into()) };
            return self.migrate_failed(id, by_event, failure);
        }
        let listener = matches!(by, By::Listen { .. }).then_some(id);
        self.channels.insert(Channel { ids: 1, listener, ..Channel::new(Acks::OnDelivery, true) });
        Ok(Follow::Next(Part::Arrive(arrival)))
    }

    pub(super) fn arrived(&mut self, arrival: Arrival, outcome: Outcome) -> Following<'static> {
        let Arrival { id, channel, by } = arrival;
        match by {
            By::Create { port_space, sync } => self.created(id, channel, port_space, sync, outcome),
            By::Listen { backlog } => self.moved_to_listen(id, channel, backlog, outcome),
            By::Migrate { by_event } => self.migrated(id, channel, by_event, outcome),
        }
    }

    pub(super) fn closed(&mut self, channel: ChannelKey, asked: bool, outcome: Outcome) -> Following<'static> {
        self.made(Due::Close(channel));
        self.remove_channel(channel);
        outcome.map_err(|errno| {
            let failure = of_channel(channel, "destroy_event_channel", errno);
            if asked { Error::Failed(failure) } else { failure.leak().into() }
        })?;
        done()
    }

    pub(super) fn created(
        &mut self,
        key: IdKey,
        channel: ChannelKey,
        port_space: PortSpace,
        sync: bool,
        outcome: Outcome,
    ) -> Following<'static> {
        // A private channel counts the id already.
        match (outcome, sync) {
            (Ok(()), false) => self.join_channel(channel),
            (Err(_), true) => self.leave_channel(channel),
            (Ok(()), true) | (Err(_), false) => {}
        }
        outcome.map_err(|errno| self.failure(key, "create_id", errno))?;
        self.ids.insert(Id::new(port_space, channel, sync));
        done()
    }
}

/// The failure of a call on a channel.
fn of_channel(channel: ChannelKey, call: &'static str, errno: Errno) -> Failure {
    Failure { call, target: Target::Channel(channel), state: State::Idle, errno, cause: None }
}
