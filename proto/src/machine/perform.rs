//! Short paths of requests: a request of a [plain](crate::id::Id::is_plain) id, its call and the call's outcome. A
//! short path has exactly the effect of the long path, which consists of `submit_any`, `poll_call` and
//! `take_outcome`. It omits the work that a plain id does not need. `short_tests` compares both on every cell. The
//! short paths of synchronous ids are in `perform_sync`.
//!
//! [`Core::perform`] makes the call between the decision and the change. Nothing else can happen in between, so no
//! state is stored for the call. For devices that observe each step, `submit_short` and `end_short` do the same in
//! steps.

use super::outcome::creation_failure;
use super::submit::{binds, note_addresses, note_success, one_call};
use super::timeout::change_deadline;
use super::{Core, count_call};
use crate::arena::{Arena, Tenant as _};
use crate::call::{Call, Outcome};
use crate::channel::Channel;
use crate::error::Failure;
use crate::guard;
use crate::id::{Id, PendingCall, Plain};
use crate::key::{ChannelKey, IdKey, Target, Token};
use crate::pending_events::Queue;
use crate::plain::{self, PlainCell};
use crate::request::{PortSpace, Request};
use crate::request_kind::RequestKind;
use crate::time::Time;

/// Makes a device's calls. A trait, because a closure cannot be `inline(always)`. In an inlined call the type of the
/// call is known at compile time, so the call is neither stored nor matched on.
pub(crate) trait MakeCall {
    /// As [`Device::call`](crate::Device::call).
    fn make(&mut self, call: &Call, private_data: &[u8]) -> Outcome;
}

impl<F: FnMut(&Call, &[u8]) -> Outcome> MakeCall for F {
    #[inline(always)]
    fn make(&mut self, call: &Call, private_data: &[u8]) -> Outcome {
        self(call, private_data)
    }
}

impl Core {
    /// [Submits](Core::submit) a request and makes its call at once. This requires that no other call is to be made
    /// and that nothing else is under way for the id. An accept of an id on its listener's channel makes two calls:
    /// the first migrates the id. Other calls, which follow from a failed call, a destruction or a migration, must be
    /// [polled](Core::poll_call).
    ///
    /// `None`: the request has no short path. Nothing has changed and no call was made; submit the request instead.
    ///
    /// # Errors
    /// The call was made and has failed; the failure is that of [`Ended::result`](crate::Ended::result).
    #[inline(always)]
    pub fn perform(
        &mut self,
        now: Time,
        key: IdKey,
        request: &Request<'_>,
        deadline: Time,
        mut make: impl FnMut(&Call, &[u8]) -> Outcome,
    ) -> Option<Result<(), Failure>> {
        self.perform_by(now, key, request, deadline, &mut make)
    }

    /// As `perform`.
    #[inline(always)]
    pub(crate) fn perform_by(
        &mut self,
        now: Time,
        key: IdKey,
        request: &Request<'_>,
        deadline: Time,
        by: &mut impl MakeCall,
    ) -> Option<Result<(), Failure>> {
        let outcome = if let Request::Destroy = request {
            self.destroy_short(key, by)?
        } else if let Request::Migrate { to: Some(to) } = *request {
            self.migrate_short(now, key, to, deadline, by)?
        } else if let Some(outcome) = self.call_short(now, key, request, deadline, by) {
            outcome
        } else if let Request::Accept { .. } = request {
            return self.accept_short(now, key, request, deadline, by);
        } else {
            return None;
        };
        match outcome {
            Ok(()) => Some(Ok(())),
            Err(_) => Some(self.perform_failed(now, key, request, deadline, &[outcome])),
        }
    }

    /// Whether calls may follow the success of a request that [`perform`](Core::perform) has made: a destruction or a
    /// migration may close a channel.
    #[inline(always)]
    pub(crate) const fn leaves_calls(request: &Request<'_>) -> bool {
        matches!(request, Request::Destroy | Request::Migrate { .. })
    }

    /// Makes the call of a plain request. `None` if there is no short path.
    #[inline(always)]
    fn call_short(
        &mut self,
        now: Time,
        key: IdKey,
        request: &Request<'_>,
        deadline: Time,
        by: &mut impl MakeCall,
    ) -> Option<Outcome> {
        if !self.calls.is_empty() || deadline.has_passed(now) {
            return None;
        }
        let id = self.ids.get_untouched(key)?;
        let next = allowed(id, &self.channels, request)?;
        let (call, private_data) = one_call(now, key, request, deadline)?;
        let outcome = by.make(&call, private_data);
        if outcome.is_ok() {
            count_call(&mut self.last_call);
            note_addresses(id, request);
            id.state = next.state;
            note_success(id, request);
            id.number_sent |= request.request_kind() == RequestKind::Accept;
            if next.sets_deadline() {
                let due = if next.waits() { deadline } else { Time::NEVER };
                if change_deadline(id, key, due, &mut self.deadlines) {
                    self.settle_deadlines();
                }
            }
        }
        Some(outcome)
    }

    /// Applies the outcomes of a request on the long path after its last call has failed.
    #[cold]
    #[inline(never)]
    pub(super) fn perform_failed(
        &mut self,
        now: Time,
        key: IdKey,
        request: &Request<'_>,
        deadline: Time,
        outcomes: &[Outcome],
    ) -> Result<(), Failure> {
        // The short path has checked that the request is legal, and the long path makes the same calls.
        let mut ended = None;
        if self.submit_any(now, key, request, deadline).is_ok() {
            for &outcome in outcomes {
                ended = self.poll_call().and_then(|(token, _)| self.take_outcome(token, outcome).ok().flatten());
            }
        }
        ended.map_or(Ok(()), |ended| ended.result)
    }

    /// Creates an id on a channel and makes its call at once, see [`perform`](Core::perform) and
    /// [`create_id`](Core::create_id).
    ///
    /// `None`: there is another call to make, or the request would be refused. Nothing has changed and no call was
    /// made.
    ///
    /// # Errors
    /// The call was made and has failed.
    #[inline(always)]
    pub fn perform_create(
        &mut self,
        channel: ChannelKey,
        port_space: PortSpace,
        make: impl FnOnce(&Call) -> Outcome,
    ) -> Option<Result<IdKey, Failure>> {
        if !self.has_room() || !self.calls.is_empty() || self.target_channel(channel).is_err() {
            return None;
        }
        let id = self.ids.next_key()?;
        match make(&Call::CreateId { id, channel, port_space }) {
            Ok(()) => {
                count_call(&mut self.last_call);
                self.insert_id(channel, port_space, false);
                Some(Ok(id))
            }
            Err(errno) => {
                self.create_failed(channel, port_space);
                Some(Err(creation_failure(id, "create_id", errno)))
            }
        }
    }

    /// Uses the key of an id that could not be created, as the long path does.
    #[cold]
    #[inline(never)]
    fn create_failed(&mut self, channel: ChannelKey, port_space: PortSpace) {
        count_call(&mut self.last_call);
        if let Some(id) = self.insert_id(channel, port_space, false) {
            self.forget(id);
        }
    }

    /// Destroys a plain id that has no owed acks, undelivered events or deadlines.
    #[inline(always)]
    fn destroy_short(&mut self, key: IdKey, by: &mut impl MakeCall) -> Option<Outcome> {
        let id = self.ids.get_untouched(key)?;
        let nothing_left = id.is_plain()
            && id.owed == 0
            && id.pending.head().is_none()
            && id.due() == Time::NEVER
            && self.single.as_ref().is_none_or(|single| single.id != key)
            && self.calls.is_empty();
        if !nothing_left {
            return None;
        }
        let outcome = by.make(&Call::Destroy { id: key }, &[]);
        if outcome.is_ok() {
            count_call(&mut self.last_call);
            if let Some(channel) = self.ids.remove(key).map(|id| id.channel) {
                self.leave_channel(channel);
            }
        }
        Some(outcome)
    }

    /// Migrates a plain id to another channel, with its undelivered events.
    #[inline(always)]
    fn migrate_short(
        &mut self,
        now: Time,
        key: IdKey,
        to: ChannelKey,
        deadline: Time,
        by: &mut impl MakeCall,
    ) -> Option<Outcome> {
        let id = self.ids.get_untouched(key)?;
        let from = id.device_channel;
        if !id.is_plain()
            || id.owed > 0
            || deadline.has_passed(now)
            || !self.calls.is_empty()
            || self.target_channel(to).is_err()
        {
            return None;
        }
        let outcome = by.make(&Call::Migrate { id: key, from, to }, &[]);
        if outcome.is_ok() {
            self.migrated(key, from, to);
        }
        Some(outcome)
    }

    #[inline(never)]
    fn migrated(&mut self, key: IdKey, from: ChannelKey, to: ChannelKey) {
        count_call(&mut self.last_call);
        self.activity += 1;
        self.link_single();
        let Some(id) = self.ids.get_untouched(key) else { return };
        (id.channel, id.device_channel) = (to, to);
        let is_request = id.is_request();
        let first = id.pending.head();
        let mut list = Queue::EMPTY;
        let mut was_last = true;
        if let Some(source) = self.channels.get_mut(from) {
            if first.is_some() {
                list = self.pending.extract(&mut source.pending, first);
            }
            was_last = source.ids == 1;
            // The channel may close with its last id; `leave_channel` below then counts it.
            source.ids -= u32::from(!was_last);
        }
        if let Some(target) = self.channels.get_mut(to) {
            self.pending.splice(&mut target.pending, list);
            target.ids += 1;
            if !is_request && !core::mem::replace(&mut target.readable, true) {
                self.readable.push_back(to);
                self.queued += 1;
            }
        }
        if was_last {
            self.leave_channel(from);
        }
    }

    /// The short path of [`submit`](Core::submit). Returns false if the request has none; then nothing has changed.
    #[inline(always)]
    pub(super) fn submit_short(&mut self, now: Time, key: IdKey, request: &Request<'_>, deadline: Time) -> bool {
        if !self.calls.is_empty() || deadline.has_passed(now) {
            return false;
        }
        let Some((call, private_data)) = one_call(now, key, request, deadline) else { return false };
        let Some(id) = self.ids.get_untouched(key) else { return false };
        let Some(next) = allowed(id, &self.channels, request) else { return false };
        let number = count_call(&mut self.last_call);
        id.touch();
        note_addresses(id, request);
        id.pending_call = PendingCall::Request {
            request_kind: request.request_kind(),
            before: id.state,
            until: id.deadline,
            bound: binds(request),
        };
        id.call = Some(number);
        id.call_data = self.pending.keep(private_data, None);
        id.state = next.state;
        self.calls.push_back((Token { number, target: Target::Id(key) }, call));
        self.queued += 1;
        if next.sets_deadline() {
            self.set_deadline_short(key, if next.waits() { deadline } else { Time::NEVER });
        }
        true
    }

    /// The short path of [`handle_outcome`](Core::handle_outcome) for success. Returns false if the call has none;
    /// then nothing has changed. The call of a listen has none: its id has a device channel of its own, or is
    /// synchronous.
    #[inline]
    pub(super) fn end_short(&mut self, token: Token) -> bool {
        let Target::Id(key) = token.target else { return false };
        let Some(id) = self.ids.get_untouched(key) else { return false };
        let PendingCall::Request { request_kind, bound, .. } = id.pending_call else { return false };
        if id.call != Some(token.number) || !id.is_plain_but_for_a_call() {
            return false;
        }
        id.call = None;
        id.pending_call = PendingCall::Nothing;
        id.plain = Plain::YES;
        id.on_device.note(bound);
        if request_kind == RequestKind::Bind {
            id.on_device.note_bound();
        }
        id.number_sent |= request_kind == RequestKind::Accept;
        self.pending.discard(id.call_data.take());
        true
    }
}

/// Returns the cell of a request, if the request is legal and the id and the cell are plain.
#[inline(always)]
fn allowed(id: &mut Id, channels: &Arena<ChannelKey, Channel>, request: &Request<'_>) -> Option<&'static PlainCell> {
    if id.is_plain() { allowed_by_cell(id, channels, request) } else { None }
}

/// Returns the cell of a request, if the request is legal and the cell is plain.
#[inline(always)]
pub(super) fn allowed_by_cell(
    id: &Id,
    channels: &Arena<ChannelKey, Channel>,
    request: &Request<'_>,
) -> Option<&'static PlainCell> {
    let request_kind = request.request_kind();
    let next = plain::request(id.state, request_kind, id.port_space)?;
    if guard::check(id, request_kind, request).is_err() {
        return None;
    }
    if next.needs_channel() {
        let device_channel = channels.get(id.device_channel)?;
        if device_channel.listener.is_some() || device_channel.has_failed() {
            return None;
        }
    }
    Some(next)
}
