//! The id of a request is on its listener's channel at the device until it is accepted, see `listen`. An accept migrates it to
//! its home first: a call after the other, as one request.

use super::Core;
use super::perform::count_call;
use super::submit::one_call;
use crate::device::{Call, Outcome};
use crate::errno::Errno;
use crate::error::Failure;
use crate::event::ConnParam;
use crate::guard;
use crate::id::{Doing, Id, unanswered};
use crate::key::{ChannelKey, IdKey};
use crate::plain::{self, Next};
use crate::request::{Request, Verb};
use crate::table;
use crate::time::Time;

impl Core {
    /// Returns the ids of requests that are still on their listener's channel `line` at the device, each with the channel that
    /// delivers its events. An accept or a migration moves such an id away from `line`; until all are moved, the listener
    /// cannot be [released](Core::release). O(ids).
    pub fn ids_away_on(&self, line: ChannelKey) -> impl Iterator<Item = (IdKey, ChannelKey)> + '_ {
        let listener = self.channels.get(line).and_then(|channel| channel.listener);
        let is_away = move |&(key, id): &(IdKey, &Id)| id.line == line && id.home != line && Some(key) != listener;
        self.ids.iter().filter(is_away).map(|(key, id)| (key, id.home))
    }

    /// The short path of an accept, where the id of the request is on its listener's channel: both calls.
    #[inline(always)]
    pub(super) fn accept_short(
        &mut self,
        now: Time,
        key: IdKey,
        request: &Request<'_>,
        deadline: Time,
        mut make: impl FnMut(&Call, &[u8]) -> Outcome,
    ) -> Option<Result<(), Failure>> {
        let (next, from, to) = self.short_accept(now, key, request, deadline)?;
        let (call, private_data) = one_call(now, key, request, deadline)?;
        let moved = make(&Call::Migrate { id: key, from, to }, &[]);
        if moved.is_err() {
            return Some(self.performed_in_vain(now, key, request, deadline, &[moved]));
        }
        let accepted = make(&call, private_data);
        if accepted.is_err() {
            return Some(self.performed_in_vain(now, key, request, deadline, &[moved, accepted]));
        }
        count_call(&mut self.last_token);
        count_call(&mut self.last_token);
        if let Some(line) = self.channels.get_mut(from) {
            line.ids -= 1;
        }
        if let Some(id) = self.ids.get_untouched(key) {
            (id.line, id.state, id.number_sent) = (to, next.state, true);
        }
        if next.waits {
            self.set_deadline_short(key, deadline);
        }
        Some(Ok(()))
    }

    /// What the accept leads to, and from and to where the id is moved, if there is nothing else to do.
    #[inline(always)]
    fn short_accept(
        &self,
        now: Time,
        key: IdKey,
        request: &Request<'_>,
        deadline: Time,
    ) -> Option<(Next, ChannelKey, ChannelKey)> {
        let id = self.ids.get(key)?;
        let next = plain::request(id.state, Verb::Accept, id.port_space.service())?;
        let (from, to) = (id.line, id.home);
        let is_short = from != to
            && id.doing == Doing::Nothing
            && id.owed == 0
            && id.is_plain_but_for_its_line()
            && now < deadline
            && self.calls.is_empty()
            && guard::check(id, Verb::Accept, request).is_ok()
            // With the last id on it the channel closes.
            && self.channels.get(from).is_some_and(|line| line.ids > 1)
            && self.channels.get(to).is_some_and(|home| home.listener.is_none() && !home.has_failed());
        is_short.then_some((*next, from, to))
    }

    /// The migration that an accept begins with has returned. If it has failed the id is as before, to be accepted again. If the
    /// id has come to an end meanwhile no accept follows.
    pub(super) fn moved_to_accept(
        &mut self,
        key: IdKey,
        param: ConnParam,
        outcome: Outcome,
    ) -> Option<Result<(), Failure>> {
        let id = self.ids.get_mut(key)?;
        let data = id.call_data.take();
        let (home, service) = (id.home, id.port_space.service());
        let before = unanswered(service);
        let begun = table::ask(before, Verb::Accept, service).unwrap_or(before);
        let goes_on = id.state == begun;
        if outcome.is_ok() {
            self.place(key, home, home);
            if goes_on {
                let doing = Doing::Request { verb: Verb::Accept, before, until: Time::NEVER, bound: false };
                self.call_with(key, doing, data, Call::Accept { id: key, param });
                self.end_waits_on_failed(key, home);
                return None;
            }
        }
        self.mail.discard(data);
        if goes_on {
            self.set_state(key, before);
        } else if table::operation(begun) == Some(Verb::Accept) {
            // An event has reported its end.
            return Some(Ok(()));
        }
        Some(Err(match outcome {
            Ok(()) => self.failure(key, Verb::Accept, Errno::ENODEV),
            Err(errno) => self.failure(key, Verb::Migrate, errno),
        }))
    }
}
