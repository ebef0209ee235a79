//! Listening. At the device, a listener has its own event channel. Only the ids of its requests share the channel,
//! until they are accepted or migrated.
//!
//! The kernel cannot migrate a listener without losing requests. The ids of unread requests stay on the old channel
//! although their events move (`ucma_migrate_id`), and more requests may come at any moment. Therefore the core never
//! migrates a listener at the device. It migrates an id to a channel of its own before the listen, when no event can be
//! pending; an id that is on a private channel already listens at once (docs/semantics.md, 5.6, rules 6 and 8). From
//! then on the channel that delivers the listener's events is recorded only in the core, and a migration changes
//! nothing at the device. A release to another thread moves the whole channel, including unread requests
//! ([`Core::release`]).
//!
//! The id of a request starts on the listener's channel. At the device it stays there until it is accepted, migrated
//! or destroyed. Before the accept the kernel reports nothing about it (`ucma_event_handler`), and many requests are
//! never accepted. An accept makes two calls: the first migrates the id to the channel that delivers its events, because the
//! listener's channel is not read while the number of its untaken requests is at the backlog. In synchronous mode
//! requests are delivered on the listener's channel itself: the application migrates the id before it accepts it. When
//! a listener is migrated, the ids of its undelivered requests follow without a call.

use super::Core;
use super::begun::{By, Follow, Following, Part, RequestOf, done};
use crate::call::Outcome;
use crate::cells::Cell;
use crate::id::{Id, Rare, SyncState};
use crate::key::{ChannelKey, IdKey};
use crate::limits::requests_of;
use crate::request_kind::RequestKind;
use crate::state::State;

impl Core {
    /// Whether a listen must first open a channel.
    pub(super) fn needs_own_channel(&self, id: &Id) -> bool {
        !self.is_private(id.device_channel)
    }

    pub(super) fn listen_part(&self, key: IdKey, backlog: i32) -> Part<'static> {
        let id = self.ids.get(key).filter(|id| self.needs_own_channel(id));
        let opens = id.and_then(|_| self.open_for(key, By::Listen { backlog }));
        opens.unwrap_or(Part::Listen { id: key, backlog })
    }

    /// Handles the outcome of the migration to the id's own channel.
    pub(super) fn moved_to_listen(
        &mut self,
        key: IdKey,
        own: ChannelKey,
        backlog: i32,
        outcome: Outcome,
    ) -> Following<'static> {
        if let Err(errno) = outcome {
            self.leave_channel(own);
            return Err(self.failure(key, RequestKind::Migrate.name(), errno).into());
        }
        let channel = self.ids.get(key).map_or(own, |id| id.channel);
        self.set_channels(key, channel, own);
        // The channel has also counted the id that was to come.
        self.leave_channel(own);
        self.handle_readable(own);
        Ok(Follow::Next(Part::Listen { id: key, backlog }))
    }

    pub(super) fn listened(&mut self, key: IdKey, backlog: i32, outcome: Outcome) -> Following<'static> {
        // As every request, a listen discards the event that completed the previous request.
        self.set_sync_state(key, SyncState::Idle);
        let Some(id) = self.ids.get_mut(key) else { return done() };
        let device_channel = id.device_channel;
        id.backlog = requests_of(backlog);
        if outcome.is_ok() {
            id.rare.insert(Rare::LISTENS);
        }
        if let Some(channel) = self.channels.get_mut(device_channel) {
            // After a failure the number of untaken requests does not limit reads of the channel.
            channel.listener = outcome.is_ok().then_some(key);
        }
        if outcome.is_ok() {
            self.set_state(key, State::Listening);
        } else {
            self.take_back(key, RequestKind::Listen);
        }
        self.unpark();
        outcome.map_err(|errno| self.failure(key, RequestKind::Listen.name(), errno))?;
        done()
    }

    /// Whether a migration of an id makes no device call: for a listener, also one that still listens after a failed
    /// destruction.
    pub(super) fn moves_without_device(&self, id: &Id) -> bool {
        id.rare.contains(Rare::LISTENS) && id.state != State::Removed
    }

    /// Changes the channel that delivers a listener's events. Its undelivered requests and their ids follow. At the
    /// device these ids are on the listener's channel and stay there.
    pub(super) fn redirect(&mut self, key: IdKey, to: Option<ChannelKey>, by_event: bool) {
        let Some(id) = self.ids.get(key) else { return };
        let (from, device_channel) = (id.channel, id.device_channel);
        let channel = to.unwrap_or(device_channel);
        self.apply_migrate(key, channel, device_channel, by_event);
        if let Some(id) = self.ids.get_mut(key) {
            id.rare.set(Rare::SYNC, to.is_none());
        }
        let child_at = |core: &Core, at: usize| {
            let stored = core.channels.get(channel)?.events.get(at)?;
            Some((stored.of.owner() == key && stored.is_request()).then_some(stored.of.id))
        };
        let mut at = 0;
        while let Some(child) = child_at(self, at) {
            at += 1;
            // An id that was migrated before its request was delivered stays on its channel.
            let follows = |child: &Id| child.channel == from && child.device_channel == device_channel;
            if let Some(child) = child.filter(|&child| self.ids.get(child).is_some_and(follows)) {
                self.apply_migrate(child, channel, device_channel, false);
            }
        }
    }

    /// Returns the ids of requests that are still on their listener's channel `device_channel` at the device, each
    /// with the channel that delivers its events. An accept or a migration moves such an id away from
    /// `device_channel`. Until all are moved, the listener cannot be [released](Core::release). O(ids).
    pub(crate) fn ids_awaiting_migrate(
        &self,
        device_channel: ChannelKey,
    ) -> impl Iterator<Item = (IdKey, ChannelKey)> + '_ {
        let listener = self.channels.get(device_channel).and_then(|channel| channel.listener);
        let is_away = move |&(key, id): &(IdKey, &Id)| {
            id.device_channel == device_channel && id.channel != device_channel && Some(key) != listener
        };
        self.ids.iter().filter(is_away).map(|(key, id)| (key, id.channel))
    }

    /// Returns the first part of an accept: the migration that precedes it, or the accept itself.
    pub(super) fn accept_part<'r>(&self, of: RequestOf<'r>, cell: Cell) -> Part<'r> {
        let moves = self.ids.get(of.id).is_some_and(|id| id.device_channel != id.channel);
        if moves { Part::MoveToAccept { of, cell } } else { Part::Request { of, cell, timeout_ms: 0 } }
    }

    /// Handles the return of that migration. If it has failed, the id is as before, and the accept can be repeated.
    pub(super) fn moved_to_accept<'r>(&mut self, of: RequestOf<'r>, cell: Cell, outcome: Outcome) -> Following<'r> {
        outcome.map_err(|errno| self.failure(of.id, RequestKind::Migrate.name(), errno))?;
        if let Some(to) = self.channel(of.id) {
            self.set_channels(of.id, to, to);
        }
        Ok(Follow::Next(Part::Request { of, cell, timeout_ms: 0 }))
    }
}
