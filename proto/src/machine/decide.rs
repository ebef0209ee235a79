//! Decisions on requests. The table is checked first, then the other rules. Nothing changes.

use super::Core;
use super::begun::RequestOf;
use crate::cells::{self, Cell, Effects};
use crate::error::Refused;
use crate::event::EventKind;
use crate::guard;
use crate::id::Id;
use crate::key::IdKey;
use crate::refuse_reason::RefuseReason;
use crate::request::Request;
use crate::request_kind::RequestKind;
use crate::table;
use crate::time::Time;

impl Core {
    /// Checks whether a request would be refused, without making it.
    ///
    /// # Errors
    /// The refusal.
    pub fn would_refuse(&self, now: Time, key: IdKey, request: &Request<'_>, deadline: Time) -> Result<(), Refused> {
        let request_kind = request.request_kind();
        let decided = self.decide(now, &RequestOf { id: key, request, deadline }, request_kind);
        decided.map(drop).map_err(|reason| self.refusal(key, request_kind, reason))
    }

    /// Checks the table, then the other rules. Returns the cell of the request, or the reason of its
    /// [refusal](Core::refusal).
    #[inline(always)]
    pub(super) fn decide(
        &self,
        now: Time,
        of: &RequestOf<'_>,
        request_kind: RequestKind,
    ) -> Result<Cell, RefuseReason> {
        // The refusal then says that there is no such id.
        let id = self.ids.get(of.id).ok_or(RefuseReason::WrongState)?;
        let Some(cell) = cells::request(id.state, request_kind, id.port_space) else {
            let rule = table::request_rule(id.state, request_kind, id.port_space.service());
            return Err(rule.err().unwrap_or(RefuseReason::WrongState));
        };
        if !matches!(request_kind, RequestKind::Destroy | RequestKind::DestroyNow) {
            self.check_rules(now, of, request_kind, id, cell)?;
        } else if id.is_to_go() {
            // A second destruction is possible only while the first one waits for acks or for an answer.
            return Err(RefuseReason::Busy(RequestKind::Destroy));
        }
        Ok(cell)
    }

    /// Checks the rules besides the table.
    #[inline(always)]
    fn check_rules(
        &self,
        now: Time,
        of: &RequestOf<'_>,
        request_kind: RequestKind,
        id: &Id,
        cell: Cell,
    ) -> Result<(), RefuseReason> {
        let RequestOf { id: key, request, deadline } = *of;
        if !id.rare.is_empty() {
            // An open synchronous request allows a migration, and an open accept allows a notify.
            let is_allowed = matches!(request_kind, RequestKind::Migrate | RequestKind::Notify);
            let open = id.waits_for().filter(|_| !is_allowed).map(RefuseReason::Busy);
            id.busy().or(open).map_or(Ok(()), Err)?;
        }
        if deadline.has_passed(now) {
            return Err(RefuseReason::TooLate);
        }
        if matches!(request_kind, RequestKind::Migrate | RequestKind::Listen) {
            self.lacks_channel(key, id, request).map_or(Ok(()), Err)?;
        }
        guard::check(id, request)?;
        if cell.has(Effects::NEEDS_CHANNEL) {
            self.needs_events(id, request_kind, cell)?;
        }
        if matches!(request_kind, RequestKind::Join | RequestKind::Leave) {
            self.check_group(key, request)?;
        }
        Ok(())
    }

    /// Refuses a request if its end would not be reported: on a failed channel, or on the channel of a listener, which is
    /// not read until the listener's requests are taken.
    fn needs_events(&self, id: &Id, request_kind: RequestKind, cell: Cell) -> Result<(), RefuseReason> {
        let waits = cell.has(Effects::WAITS) || request_kind != RequestKind::Accept;
        let answers = request_kind == RequestKind::Accept;
        // An accept first moves the id off its listener's channel.
        let on = if answers { id.channel } else { id.device_channel };
        let Some(channel) = self.channels.get(on) else { return Ok(()) };
        if waits && channel.has_failed() {
            Err(RefuseReason::ChannelFailed(on))
        } else if answers && self.listener_on(channel).is_some() {
            Err(RefuseReason::OnListenersChannel)
        } else if answers && id.device_channel != on && id.owed > 0 {
            Err(RefuseReason::OwesAcks)
        } else {
            Ok(())
        }
    }

    /// Checks a migration or a listen against the channels.
    fn lacks_channel(&self, key: IdKey, id: &Id, request: &Request<'_>) -> Option<RefuseReason> {
        let full = || self.channels.next_key().is_none();
        if matches!(request, Request::Migrate { .. }) && id.owed > 0 && self.has_undelivered(key, EventKind::Migrated) {
            // Migrations that end at their deadlines would add any number of these events, because no limit counts them.
            Some(RefuseReason::Busy(RequestKind::Migrate))
        } else if let Request::Migrate { to: Some(to) } = *request {
            match self.target_channel(to) {
                Ok(_) => None,
                Err(Refused::ChannelFailed { channel }) => Some(RefuseReason::ChannelFailed(channel)),
                Err(_) => Some(RefuseReason::NoSuchChannel(to)),
            }
        } else if let Request::Migrate { to: None } = request {
            (!self.moves_without_device(id) && full()).then_some(RefuseReason::NoChannelLeft)
        } else if !self.needs_own_channel(id) {
            None
        } else if full() {
            Some(RefuseReason::NoChannelLeft)
        } else {
            (id.owed > 0).then_some(RefuseReason::OwesAcks)
        }
    }

    #[cold]
    pub(super) fn refusal(&self, key: IdKey, request: RequestKind, reason: RefuseReason) -> Refused {
        match self.ids.get(key) {
            Some(id) => Refused::Request { id: key, request, state: id.state, reason },
            None => Refused::NoSuchId { id: key, request },
        }
    }
}
