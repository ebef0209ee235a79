//! Accepts. At the device, the id of a request is on its listener's channel until it is accepted, see `listen`. An
//! accept makes two calls: the first migrates the id to the channel that delivers its events.

use super::submit::one_call;
use super::{Core, MakeCall, count_call};
use crate::call::{Call, Outcome};
use crate::errno::Errno;
use crate::error::Failure;
use crate::event::ConnParam;
use crate::guard;
use crate::id::{Id, PendingCall, Plain, unanswered};
use crate::key::{ChannelKey, IdKey};
use crate::plain::{self, PlainCell};
use crate::request::Request;
use crate::request_kind::RequestKind;
use crate::table;
use crate::time::Time;

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

    /// The short path of an accept of an id on its listener's channel. Makes both calls.
    #[inline(always)]
    pub(super) fn accept_short(
        &mut self,
        now: Time,
        key: IdKey,
        request: &Request<'_>,
        deadline: Time,
        by: &mut impl MakeCall,
    ) -> Option<Result<(), Failure>> {
        let (next, from, to) = self.short_accept(now, key, request, deadline)?;
        let (call, private_data) = one_call(now, key, request, deadline)?;
        let moved = by.make(&Call::Migrate { id: key, from, to }, &[]);
        if moved.is_err() {
            return Some(self.perform_failed(now, key, request, deadline, &[moved]));
        }
        let accepted = by.make(&call, private_data);
        if accepted.is_err() {
            return Some(self.perform_failed(now, key, request, deadline, &[moved, accepted]));
        }
        count_call(&mut self.last_call);
        count_call(&mut self.last_call);
        if let Some(device_channel) = self.channels.get_mut(from) {
            device_channel.ids -= 1;
        }
        if let Some(id) = self.ids.get_untouched(key) {
            (id.device_channel, id.state, id.number_sent) = (to, next.state, true);
            id.plain = Plain::YES;
        }
        if next.waits() {
            self.set_deadline_short(key, deadline);
        }
        Some(Ok(()))
    }

    /// Returns the cell of the accept, and the old and the new channel of the migration. `None` if there is no short
    /// path.
    #[inline(always)]
    fn short_accept(
        &self,
        now: Time,
        key: IdKey,
        request: &Request<'_>,
        deadline: Time,
    ) -> Option<(PlainCell, ChannelKey, ChannelKey)> {
        let id = self.ids.get(key)?;
        let next = plain::request(id.state, RequestKind::Accept, id.port_space)?;
        let (from, to) = (id.device_channel, id.channel);
        let is_short = from != to
            && matches!(id.pending_call, PendingCall::Nothing)
            && id.owed == 0
            && id.is_plain_but_for_its_device_channel()
            // The listener of an undelivered request is found by the channel of its id.
            && self.single.as_ref().is_none_or(|single| single.id != key)
            && !deadline.has_passed(now)
            && self.calls.is_empty()
            && guard::check(id, RequestKind::Accept, request).is_ok()
            // The channel closes when its last id leaves.
            && self.channels.get(from).is_some_and(|device_channel| device_channel.ids > 1)
            && self.channels.get(to).is_some_and(|channel| channel.listener.is_none() && !channel.has_failed());
        is_short.then_some((*next, from, to))
    }

    /// Handles the return of the migration that an accept begins with. If it has failed, the id returns to its previous
    /// state, and the accept can be repeated. If an event has ended the accept meanwhile, the accept call is not made.
    pub(super) fn moved_to_accept(
        &mut self,
        key: IdKey,
        param: ConnParam,
        outcome: Outcome,
    ) -> Option<Result<(), Failure>> {
        let id = self.ids.get_mut(key)?;
        let data = id.call_data.take();
        let (channel, service) = (id.channel, id.port_space.service());
        let before = unanswered(service);
        let begun = table::request_rule(before, RequestKind::Accept, service).unwrap_or(before);
        let goes_on = id.state == begun;
        if outcome.is_ok() {
            self.set_channels(key, channel, channel);
            if goes_on {
                let pending_call = PendingCall::Request {
                    request_kind: RequestKind::Accept,
                    before,
                    until: Time::NEVER,
                    bound: false,
                };
                self.call_with(key, pending_call, data, Call::Accept { id: key, param });
                self.end_waits_on_failed(key, channel);
                return None;
            }
        }
        self.pending.discard(data);
        if goes_on {
            self.set_state(key, before);
        } else if table::operation(begun) == Some(RequestKind::Accept) {
            // An event has reported the end of the accept.
            return Some(Ok(()));
        }
        Some(Err(match outcome {
            Ok(()) => self.failure(key, RequestKind::Accept, Errno::ENODEV),
            Err(errno) => self.failure(key, RequestKind::Migrate, errno),
        }))
    }
}
