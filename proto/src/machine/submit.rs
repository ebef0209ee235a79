//! Requests in: the table decides, then the guards; only then does anything change.

use super::Core;
use crate::device::Call;
use crate::error::{Refused, Why};
use crate::event::CmEvent;
use crate::guard;
use crate::id::{Doing, Id, Mourner, Waiting};
use crate::key::{ChannelKey, IdKey};
use crate::limits::requests_of;
use crate::request::{Acks, PortSpace, Request, Verb};
use crate::state::State;
use crate::table;
use crate::time::Time;

impl Core {
    /// Creates an id on a channel, or with `None` in synchronous mode (rdma_create_id(3)).
    ///
    /// # Errors
    /// [`Refused::NoSuchChannel`], [`Refused::ChannelFailed`]; [`Refused::Full`] at the limit on ids or, in synchronous mode, on channels.
    pub fn create_id(&mut self, home: Option<ChannelKey>, port_space: PortSpace) -> Result<IdKey, Refused> {
        if !self.has_room() {
            return Err(Refused::Full("ids"));
        }
        let (home, sync) = match home {
            Some(channel) => (self.target_channel(channel)?, false),
            None => (self.insert_channel(Acks::OnDelivery, true)?, true),
        };
        let id = self.insert_id(home, port_space, sync).ok_or(Refused::Full("ids"))?;
        if sync {
            self.call_for_id(id, Doing::OpenToCreate, Call::OpenChannel { channel: home });
        } else {
            self.call_for_id(id, Doing::Create, Call::CreateId { id, channel: home, port_space });
        }
        Ok(id)
    }

    #[inline]
    pub(super) fn insert_id(&mut self, home: ChannelKey, port_space: PortSpace, sync: bool) -> Option<IdKey> {
        let id = self.ids.insert(Id::new(port_space, home, sync))?;
        self.join_channel(home);
        Some(id)
    }

    /// Asks for something on an id. `deadline` is for requests that a later event completes: if it passes first, the
    /// request ends with [`EventKind::DeadlinePassed`](crate::EventKind::DeadlinePassed), in synchronous mode with
    /// `ETIMEDOUT`. It is for a migration and a destruction too, as long as they wait for acks. To all other requests it
    /// means nothing, except that one which has passed already is refused, unless for a destruction.
    ///
    /// A request for which a call is made has one [`Ended`](crate::Ended), from
    /// [`handle_outcome`](Core::handle_outcome). There are three exceptions:
    /// - `AttachQp`, `DetachQp`, `GetRequest`, and the migration of a listener, make no call: on return they are done, or
    ///   a `GetRequest` is begun.
    /// - What [waits for acks](Core::waits_for_acks) ends by event instead.
    /// - A destroy ends all other requests of its id: nothing more is told of them, not even if it gives up at its deadline.
    ///   An id that has not been created by then is gone if that fails. A leave that waited for acks is not made.
    ///
    /// # Errors
    /// [`Refused`]: nothing has changed.
    #[inline(always)]
    pub fn submit(&mut self, now: Time, key: IdKey, request: Request<'_>, deadline: Time) -> Result<(), Refused> {
        if self.submit_short(now, key, &request, deadline) {
            Ok(())
        } else {
            self.submit_any(now, key, &request, deadline)
        }
    }

    #[inline(never)]
    pub(super) fn submit_any(
        &mut self,
        now: Time,
        key: IdKey,
        request: &Request<'_>,
        deadline: Time,
    ) -> Result<(), Refused> {
        let verb = request.verb();
        let next = self.decide(now, key, verb, request, deadline)?;
        self.link_single();
        match *request {
            Request::Destroy => self.begin_destroy(key, deadline, Mourner::Caller),
            Request::DestroyNow => self.begin_destroy_now(key, deadline),
            Request::Migrate { to } => return self.begin_migrate(key, to, deadline),
            Request::AttachQp | Request::DetachQp => self.note_qp(key, verb == Verb::AttachQp),
            Request::Listen { backlog } => self.begin_listen(key, backlog, next),
            Request::GetRequest => self.begin_get_request(key, deadline),
            Request::Join { addr, send_only } => self.begin_join(key, addr, send_only, deadline),
            Request::Leave { group } => self.begin_leave(key, group),
            Request::Bind { .. }
            | Request::ResolveAddr { .. }
            | Request::ResolveRoute
            | Request::Connect { .. }
            | Request::Accept { .. }
            | Request::Reject { .. }
            | Request::Establish
            | Request::Disconnect
            | Request::Teardown
            | Request::Notify
            | Request::SetOption { .. }
            | Request::SetEce { .. } => {
                if let Some((call, private_data)) = one_call(now, key, request, deadline) {
                    self.begin_call(key, request, next, deadline, call, private_data);
                }
            }
        }
        Ok(())
    }

    /// Notes that an id has a QP, or has none any more. A QP does not matter to whether an id is plain.
    pub(crate) fn note_qp(&mut self, key: IdKey, has_qp: bool) {
        if let Some(id) = self.ids.get_untouched(key) {
            id.has_qp = has_qp;
        }
    }

    /// Whether a request would be refused, without making it.
    ///
    /// # Errors
    /// The refusal.
    pub fn would_refuse(&self, now: Time, key: IdKey, request: &Request<'_>, deadline: Time) -> Result<(), Refused> {
        self.decide(now, key, request.verb(), request, deadline).map(drop)
    }

    /// The table, then what it leaves open: the id's next state, or why not.
    fn decide(
        &self,
        now: Time,
        key: IdKey,
        verb: Verb,
        request: &Request<'_>,
        deadline: Time,
    ) -> Result<State, Refused> {
        let id = self.get(key, verb)?;
        let refused = |why| self.refusal(key, verb, why);
        let next = table::ask(id.state, verb, id.port_space.service()).map_err(refused)?;
        if matches!(verb, Verb::Destroy | Verb::DestroyNow) {
            // One that waits for no ack cannot be hastened.
            let is_late = id.state == State::Destroying && id.owed == 0;
            return if is_late { Err(refused(Why::Busy(Verb::Destroy))) } else { Ok(next) };
        }
        // What is open in synchronous mode stays so while the id moves, and a notify is for an open accept.
        let open = id.waits_for().filter(|_| !matches!(verb, Verb::Migrate | Verb::Notify)).map(Why::Busy);
        if let Some(why) = id.busy().or(open) {
            return Err(refused(why));
        }
        if verb == Verb::Migrate && id.owed > 0 && self.has_untold_end(id) {
            return Err(refused(Why::Busy(verb)));
        }
        if deadline <= now {
            return Err(refused(Why::TooLate));
        }
        if matches!(verb, Verb::Migrate | Verb::Listen)
            && let Some(why) = self.lacks_channel(id, request)
        {
            return Err(refused(why));
        }
        guard::check(id, verb, request).map_err(refused)?;
        if let Some(why) = self.lacks_events(id, verb, next) {
            return Err(refused(why));
        }
        if matches!(verb, Verb::Join | Verb::Leave) {
            self.check_group(key, request).map_err(refused)?;
        }
        Ok(next)
    }

    /// Whether what a request leads to would not be reported, or only when a listener's application takes requests.
    #[inline]
    fn lacks_events(&self, id: &Id, verb: Verb, next: State) -> Option<Why> {
        let waits = table::operation(next) == Some(verb) || matches!(verb, Verb::Join | Verb::GetRequest);
        let answers = verb == Verb::Accept;
        // An accept moves the id off its listener's channel first.
        let on = if answers { id.home } else { id.line };
        let channel = self.channels.get(on).filter(|_| waits || answers)?;
        if waits && channel.has_failed() {
            Some(Why::ChannelFailed(on))
        } else if answers && self.listener_on(channel).is_some() {
            Some(Why::OnListenersChannel)
        } else {
            (answers && id.line != on && id.owed > 0).then_some(Why::OwesAcks)
        }
    }

    /// What only the channels can tell of a migration or a listen.
    fn lacks_channel(&self, id: &Id, request: &Request<'_>) -> Option<Why> {
        let full = || self.channels.next_key().is_none();
        if let Request::Migrate { to: Some(to) } = *request {
            match self.target_channel(to) {
                Ok(_) => None,
                Err(Refused::ChannelFailed { channel }) => Some(Why::ChannelFailed(channel)),
                Err(_) => Some(Why::NoSuchChannel(to)),
            }
        } else if let Request::Migrate { to: None } = request {
            (!self.moves_without_device(id) && full()).then_some(Why::NoChannelLeft)
        } else if let Request::Listen { backlog } = *request
            && id.requests > requests_of(backlog)
        {
            // Untaken ones that came although the listen before failed.
            Some(Why::Busy(Verb::Listen))
        } else if self.needs_line(id) {
            if full() { Some(Why::NoChannelLeft) } else { (id.owed > 0).then_some(Why::OwesAcks) }
        } else {
            // Ids of requests that came in the same way.
            let is_shared = self.channels.get(id.line).is_some_and(|line| line.ids > 1) && self.must_leave(id);
            is_shared.then_some(Why::SharesChannel)
        }
    }

    /// Whether there are ids on the channel of this one whose events must not wait behind the requests to a listener.
    fn must_leave(&self, id: &Id) -> bool {
        let is_coming = |other: &Id| matches!(other.doing, Doing::MoveToAccept { .. }) && other.home == id.line;
        let stays = |other: &Id| other.line == id.line && !other.may_share();
        self.ids.iter().any(|(_, other)| !core::ptr::eq(other, id) && (is_coming(other) || stays(other)))
    }

    #[cold]
    pub(super) fn refusal(&self, key: IdKey, request: Verb, why: Why) -> Refused {
        match self.ids.get(key) {
            Some(id) => Refused::Request { id: key, request, state: id.state, why },
            None => Refused::NoSuchId { id: key, request },
        }
    }

    /// A request that is one call of the device.
    fn begin_call(
        &mut self,
        key: IdKey,
        request: &Request<'_>,
        next: State,
        deadline: Time,
        call: Call,
        private_data: &[u8],
    ) {
        let Some(id) = self.ids.get(key) else { return };
        let verb = request.verb();
        let waits = table::operation(next) == Some(verb);
        // A notify is part of the accept that is open.
        if verb != Verb::Notify {
            let open = if id.sync && waits { Waiting::For(verb) } else { Waiting::Never };
            self.clear_waiting(key, open);
        }
        let Some(id) = self.ids.get_mut(key) else { return };
        let (before, until) = (id.state, id.deadline);
        let (from, to) = (id.line, id.home);
        let mut more = id.enter(next);
        // Any other request leaves the deadline of the operation that is under way as it is.
        if waits {
            more |= id.deadline != deadline;
            id.deadline = deadline;
        }
        if more {
            self.entered(key);
        }
        let enclosed = self.mail.keep(private_data, None);
        if let Call::Accept { param, .. } = call
            && from != to
        {
            return self.call_with(key, Doing::MoveToAccept { param }, enclosed, Call::Migrate { id: key, from, to });
        }
        let bound = binds(request);
        self.call_with(key, Doing::Request { verb, before, until, bound }, enclosed, call);
    }

    /// A wait for an event, without a call: the request may be there already.
    fn begin_get_request(&mut self, key: IdKey, deadline: Time) {
        let Some(id) = self.ids.get(key) else { return };
        match self.first_of(id, CmEvent::ConnectRequest) {
            Some(letter) => {
                self.detach(letter, id.home);
                self.clear_waiting(key, Waiting::Ended(Verb::GetRequest, letter));
            }
            None => {
                self.clear_waiting(key, Waiting::For(Verb::GetRequest));
                self.set_deadline(key, deadline);
            }
        }
    }

    /// Synchronous mode: forgets how the last request ended.
    #[inline]
    pub(super) fn clear_waiting(&mut self, key: IdKey, next: Waiting) {
        let is_clear = |id: &Id| id.waiting == Waiting::Never && next == Waiting::Never;
        if !self.ids.get(key).is_some_and(is_clear) {
            self.replace_waiting(key, next);
        }
    }

    #[inline(never)]
    fn replace_waiting(&mut self, key: IdKey, next: Waiting) {
        if let Waiting::Ended(..) | Waiting::Without { .. } = next {
            self.news += 1;
        }
        if let Some(id) = self.ids.get_mut(key) {
            let ended = core::mem::replace(&mut id.waiting, next);
            match ended {
                Waiting::Ended(_, letter) => {
                    let stored = self.mail.take(letter);
                    self.mail.discard(stored.enclosed);
                }
                // The listener's state waits for nothing, so the deadline does not end with it.
                Waiting::For(Verb::GetRequest) => self.set_deadline(key, Time::NEVER),
                // Still on the lists.
                Waiting::Posted(..) | Waiting::Never | Waiting::For(_) | Waiting::Without { .. } => {}
            }
        }
    }
}

/// The call of a request that is one call, and its private data; `None` for any other request.
#[inline(always)]
pub(super) fn one_call<'a>(now: Time, id: IdKey, request: &Request<'a>, deadline: Time) -> Option<(Call, &'a [u8])> {
    Some(match *request {
        Request::Bind { addr } => (Call::Bind { id, addr }, &[]),
        Request::ResolveAddr { src, dst } => {
            (Call::ResolveAddr { id, src, dst, timeout_ms: kernel_timeout(now, deadline) }, &[])
        }
        Request::ResolveRoute => (Call::ResolveRoute { id, timeout_ms: kernel_timeout(now, deadline) }, &[]),
        Request::Connect { param, private_data } => (Call::Connect { id, param }, private_data),
        Request::Accept { param, private_data } => (Call::Accept { id, param }, private_data),
        Request::Reject { reason, private_data } => (Call::Reject { id, reason }, private_data),
        Request::Establish => (Call::Establish { id }, &[]),
        Request::Disconnect | Request::Teardown => (Call::Disconnect { id }, &[]),
        Request::Notify => (Call::Notify { id }, &[]),
        Request::SetOption { option } => (Call::SetOption { id, option }, &[]),
        Request::SetEce { ece } => (Call::SetEce { id, ece }, &[]),
        Request::Listen { .. }
        | Request::AttachQp
        | Request::DetachQp
        | Request::GetRequest
        | Request::Join { .. }
        | Request::Leave { .. }
        | Request::Migrate { .. }
        | Request::Destroy
        | Request::DestroyNow => return None,
    })
}

/// Whether a request that succeeds at once gives the id a device.
#[inline(always)]
pub(super) fn binds(request: &Request<'_>) -> bool {
    matches!(*request, Request::Bind { addr } if guard::names_a_device(addr))
}

/// The kernel's own time-out for a resolve: with an eighth of the time to spare. Its answer leaves the id as it was, to be
/// asked again; after the core's deadline, for which nobody knows what the kernel is still doing, only a destroy helps.
fn kernel_timeout(now: Time, deadline: Time) -> i32 {
    let left = deadline.0.saturating_sub(now.0);
    if deadline == Time::NEVER { i32::MAX } else { Time(left - left / 8).millis_from(Time::ZERO) }
}
