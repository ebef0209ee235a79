//! Accepts. At the device, the id of a request is on its listener's channel until it is accepted, see `listen`. An
//! accept makes two calls: the first migrates the id to the channel that delivers its events.

use super::Core;
use super::begun::{Following, RequestOf, Then};
use crate::call::{Call, Outcome};
use crate::id::Id;
use crate::key::{ChannelKey, IdKey};
use crate::request::Request;
use crate::request_kind::RequestKind;

impl Core {
    /// Returns the ids of requests that are still on their listener's channel `device_channel` at the device, each
    /// with the channel that delivers its events. An accept or a migration moves such an id away from
    /// `device_channel`. Until all are moved, the listener cannot be [released](Core::release). O(ids).
    pub fn ids_awaiting_migrate(&self, device_channel: ChannelKey) -> impl Iterator<Item = (IdKey, ChannelKey)> + '_ {
        let listener = self.channels.get(device_channel).and_then(|channel| channel.listener);
        let is_away = move |&(key, id): &(IdKey, &Id)| {
            id.device_channel == device_channel && id.channel != device_channel && Some(key) != listener
        };
        self.ids.iter().filter(is_away).map(|(key, id)| (key, id.channel))
    }

    /// Returns the migration that precedes an accept, if there is one.
    pub(super) fn move_before_accept(&self, key: IdKey) -> Option<Call> {
        let id = self.ids.get(key)?;
        let (from, to) = (id.device_channel, id.channel);
        (from != to).then_some(Call::Migrate { id: key, from, to })
    }

    /// Handles the return of that migration. If it has failed, the id is as before, and the accept can be repeated.
    pub(super) fn moved_to_accept<'r>(
        &mut self,
        key: IdKey,
        to: ChannelKey,
        of: RequestOf<'r>,
        outcome: Outcome,
    ) -> Following<'r> {
        match (outcome, *of.request) {
            (Ok(()), Request::Accept { param, .. }) => {
                self.set_channels(key, to, to);
                Following::Call(Call::Accept { id: key, param }, Then::Request(of))
            }
            (Ok(()), _) => super::begun::DONE,
            (Err(errno), _) => self.failed(key, RequestKind::Migrate, errno),
        }
    }
}
