//! Short paths of requests on synchronous ids, like those of `perform`. `short_sync_tests` compares them with the long
//! path on every cell.

use super::perform::allowed_by_cell;
use super::submit::{note_addresses, note_success, one_call};
use super::{Core, count_call};
use crate::call::{Call, Outcome};
use crate::error::Failure;
use crate::id::SyncState;
use crate::key::IdKey;
use crate::request::Request;
use crate::request_kind::RequestKind;
use crate::time::Time;

impl Core {
    /// As [`perform`](Core::perform), for an id in synchronous mode.
    ///
    /// `None`: the request has no short path, or the id is not synchronous. Nothing has changed and no call was made;
    /// submit the request instead.
    ///
    /// # Errors
    /// The call was made and has failed; the failure is that of [`Ended::result`](crate::Ended::result).
    pub fn perform_sync(
        &mut self,
        now: Time,
        key: IdKey,
        request: &Request<'_>,
        deadline: Time,
        make: impl FnOnce(&Call, &[u8]) -> Outcome,
    ) -> Option<Result<(), Failure>> {
        let is_short = self.calls.is_empty() && self.ids.get(key).is_some_and(|id| id.is_plain_but_for_sync());
        if !is_short {
            return None;
        }
        let outcome = if let Request::Destroy = request {
            self.destroy_sync(key, make)?
        } else {
            self.call_sync(now, key, request, deadline, make)?
        };
        match outcome {
            Ok(()) => Some(Ok(())),
            Err(_) => Some(self.perform_failed(now, key, request, deadline, &[outcome])),
        }
    }

    /// Makes the call of a plain request and discards the result of the previous request. If the request waits for an
    /// event, it is open until then.
    fn call_sync(
        &mut self,
        now: Time,
        key: IdKey,
        request: &Request<'_>,
        deadline: Time,
        make: impl FnOnce(&Call, &[u8]) -> Outcome,
    ) -> Option<Outcome> {
        if deadline.has_passed(now) {
            return None;
        }
        let next = *allowed_by_cell(self.ids.get(key)?, &self.channels, request)?;
        let (call, private_data) = one_call(now, key, request, deadline)?;
        let request_kind = request.request_kind();
        let outcome = make(&call, private_data);
        if outcome.is_ok() {
            count_call(&mut self.last_call);
            self.link_single();
            self.clear_for(key, request_kind, next.waits());
            if let Some(id) = self.ids.get_untouched(key) {
                note_addresses(id, request);
                id.state = next.state;
                note_success(id, request);
                id.number_sent |= request_kind == RequestKind::Accept;
            }
            if next.sets_deadline() {
                self.set_deadline_short(key, if next.waits() { deadline } else { Time::NEVER });
            }
            if request_kind == RequestKind::Disconnect {
                self.disconnect_at_once(key);
            }
        }
        Some(outcome)
    }

    /// Destroys an id that has no owed acks, undelivered events or deadlines. Its private channel closes.
    fn destroy_sync(&mut self, key: IdKey, make: impl FnOnce(&Call, &[u8]) -> Outcome) -> Option<Outcome> {
        let id = self.ids.get(key)?;
        if id.owed > 0 || id.pending.head().is_some() || id.due() != Time::NEVER {
            return None;
        }
        let outcome = make(&Call::Destroy { id: key }, &[]);
        if outcome.is_ok() {
            count_call(&mut self.last_call);
            self.link_single();
            self.clear_waiting(key, SyncState::Never);
            if let Some(channel) = self.ids.remove(key).map(|id| id.channel) {
                self.leave_channel(channel);
            }
        }
        Some(outcome)
    }
}
