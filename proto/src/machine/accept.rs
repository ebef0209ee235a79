//! Accepts. At the device, the id of a request is on its listener's channel until it is accepted, see `listen`. An
//! accept makes two calls: the first migrates the id to the channel that delivers its events.

use super::Core;
use super::begun::{Follow, Following, Part, RequestOf};
use crate::call::Outcome;
use crate::cells::Cell;
use crate::id::Id;
use crate::key::{ChannelKey, IdKey};
use crate::request_kind::RequestKind;

impl Core {
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
