//! Memberships in multicast groups, each with its own count of owed acks (rdma_join_multicast(3),
//! rdma_leave_multicast(3)).

use core::net::SocketAddr;

use super::Core;
use crate::call::{Call, Outcome};
use crate::cm_event::CmEvent;
use crate::errno::Errno;
use crate::error::{Failure, Refused};
use crate::event::{EventKind, RawEvent};
use crate::group::{Group, GroupPhase};
use crate::id::{PendingCall, SyncState};
use crate::key::{GroupKey, IdKey};
use crate::refuse_reason::RefuseReason;
use crate::request::Request;
use crate::request_kind::RequestKind;
use crate::stored::Stored;
use crate::time::Time;

impl Core {
    /// Submits a [`Request::Join`] and returns the key of the membership. The deadline ends a join without an answer of
    /// the device. The application must leave such a membership too.
    ///
    /// # Errors
    /// [`Refused`]: nothing has changed.
    pub fn join(
        &mut self,
        now: Time,
        id: IdKey,
        addr: SocketAddr,
        send_only: bool,
        deadline: Time,
    ) -> Result<GroupKey, Refused> {
        self.submit(now, id, Request::Join { addr, send_only }, deadline)?;
        self.group_at(id, addr).ok_or(Refused::NoSuchId { id, request: RequestKind::Join })
    }

    /// Returns the membership of an id in the group at an address.
    #[must_use]
    pub fn group_at(&self, id: IdKey, addr: SocketAddr) -> Option<GroupKey> {
        self.find_group(id, |group| group.addr == addr)
    }

    fn find_group(&self, id: IdKey, is_it: impl Fn(&Group) -> bool) -> Option<GroupKey> {
        self.memberships(id).find(|(_, group)| is_it(group)).map(|(key, _)| key)
    }

    pub(super) fn memberships(&self, id: IdKey) -> impl Iterator<Item = (GroupKey, &Group)> {
        let with = |key: GroupKey| self.groups.get(key).map(|group| (key, group));
        core::iter::successors(self.ids.get(id).and_then(|id| id.groups).and_then(with), move |(_, group)| {
            group.next.and_then(with)
        })
    }

    /// Checks a join or leave against the memberships.
    pub(super) fn check_group(&self, id: IdKey, request: &Request<'_>) -> Result<(), RefuseReason> {
        if let Request::Join { addr, .. } = *request {
            if self.group_at(id, addr).is_some() {
                return Err(RefuseReason::AlreadyMember(addr));
            }
            if self.groups.next_key().is_none() {
                return Err(RefuseReason::NoGroupLeft);
            }
        }
        if let Request::Leave { group } = *request {
            if self.groups.get(group).is_none_or(|it| it.id != id || it.leaving) {
                return Err(RefuseReason::NoSuchGroup(group));
            }
        }
        Ok(())
    }

    /// Whether a membership exists.
    pub(crate) fn has_group(&self, group: GroupKey) -> bool {
        self.groups.contains(group)
    }

    pub(super) fn begin_join(&mut self, key: IdKey, addr: SocketAddr, send_only: bool, deadline: Time) {
        let Some(id) = self.ids.get(key) else { return };
        let (next, sync) = (id.groups, id.sync);
        let fresh = Group { id: key, addr, phase: GroupPhase::Joining, leaving: false, owed: 0, deadline, next };
        let Some(group) = self.groups.insert(fresh) else { return };
        if let Some(id) = self.ids.get_mut(key) {
            id.groups = Some(group);
        }
        self.clear_waiting(key, if sync { SyncState::For(RequestKind::Join) } else { SyncState::Never });
        self.set_join_alarm(key);
        self.call_for_id(key, PendingCall::Join { group }, Call::Join { id: key, group, addr, send_only });
    }

    pub(super) fn join_begun(&mut self, key: IdKey, group: GroupKey, outcome: Outcome) -> Result<(), Failure> {
        // An event or a deadline before the outcome has precedence over it. Such a membership is kept until the
        // application leaves it; that leave fails with EADDRNOTAVAIL if librdmacm has no record of the membership.
        let open = self.groups.get(group).is_some_and(|group| group.phase == GroupPhase::Joining);
        match outcome {
            Err(errno) if open => {
                self.forget_group(key, group);
                self.clear_waiting(key, SyncState::Never);
                Err(self.failure(key, RequestKind::Join, errno))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Applies an event to its membership. Returns false if the event is late.
    pub(super) fn admit_to_group(&mut self, raw: &RawEvent<&[u8]>) -> bool {
        let Some(group) = raw.group.and_then(|key| self.groups.get_mut(key)).filter(|group| group.id == raw.id) else {
            return false;
        };
        let is_join = raw.kind == CmEvent::MulticastJoin;
        let expected = match group.phase {
            GroupPhase::Joining => true,
            // A group can be lost later.
            GroupPhase::Joined => !is_join,
            GroupPhase::Failed => false,
        };
        if group.leaving || !expected {
            return false;
        }
        group.phase = if is_join && raw.status == 0 { GroupPhase::Joined } else { GroupPhase::Failed };
        group.deadline = Time::NEVER;
        self.set_join_alarm(raw.id);
        true
    }

    pub(super) fn begin_leave(&mut self, key: IdKey, group: GroupKey) {
        // As every request, a join discards the event that completed the previous request.
        self.clear_waiting(key, SyncState::Never);
        let Some(record) = self.groups.get_mut(group) else { return };
        record.leaving = true;
        record.deadline = Time::NEVER;
        let waits = record.owed > 0;
        self.set_join_alarm(key);
        self.discard_group_mail(key, group);
        if !waits {
            self.call_leave(key, group, false);
        }
    }

    /// Continues a leave after acks or after the return of the id's call; one leave at a time.
    pub(super) fn continue_leave(&mut self, key: IdKey) {
        let idle = self.ids.get(key).is_some_and(|id| id.pending_call == PendingCall::Nothing);
        let ready = self.find_group(key, |group| group.leaving && group.owed == 0);
        if let Some(group) = ready {
            if idle {
                self.call_leave(key, group, true);
            }
        }
    }

    /// Ends the leaves that wait for acks, because of a destruction. If the destruction ends at its deadline or fails,
    /// the application can leave these memberships again.
    pub(super) fn end_leaves(&mut self, key: IdKey) {
        let Some(id) = self.ids.get(key) else { return };
        let (pending_call, mut at) = (id.pending_call, id.groups);
        while let Some(group) = at {
            let Some(record) = self.groups.get_mut(group) else { return };
            record.leaving &= matches!(pending_call, PendingCall::Leave { group: leaves, .. } if leaves == group);
            at = record.next;
        }
    }

    fn call_leave(&mut self, key: IdKey, group: GroupKey, by_event: bool) {
        if let Some(addr) = self.groups.get(group).map(|group| group.addr) {
            self.call_for_id(key, PendingCall::Leave { group, by_event }, Call::Leave { id: key, group, addr });
        }
    }

    /// Handles the return of a leave. librdmacm frees the record whatever the kernel returns
    /// (`rdma_leave_multicast`).
    pub(super) fn left(
        &mut self,
        key: IdKey,
        group: GroupKey,
        by_event: bool,
        outcome: Outcome,
    ) -> Option<Result<(), Failure>> {
        self.forget_group(key, group);
        if !by_event {
            return Some(outcome.map_err(|errno| self.failure(key, RequestKind::Leave, errno)));
        }
        if let Some(id) = self.ids.get(key).filter(|id| !id.orphaned) {
            let (channel, status) = (id.channel, outcome.map_or_else(Errno::as_status, |()| 0));
            self.post(Stored::made(key, EventKind::Left, status).of_group(group), channel);
        }
        None
    }

    /// Ends the joins whose deadline is not after `now`.
    pub(super) fn expire_joins(&mut self, key: IdKey, now: Time) {
        while let Some(group) =
            self.find_group(key, |group| group.phase == GroupPhase::Joining && group.deadline <= now)
        {
            if let Some(record) = self.groups.get_mut(group) {
                record.phase = GroupPhase::Failed;
                record.deadline = Time::NEVER;
            }
            let Some(id) = self.ids.get(key) else { return };
            // As for an event: a synchronous join waits for the newest membership.
            let open =
                id.waits_for().filter(|&request_kind| request_kind == RequestKind::Join && id.groups == Some(group));
            let made = Stored::made(key, EventKind::DeadlinePassed(RequestKind::Join), 0);
            self.report_expired(key, made.of_group(group), open);
        }
        self.set_join_alarm(key);
    }

    /// Makes the open joins due at once, as at a deadline.
    pub(super) fn make_joins_due(&mut self, key: IdKey) {
        let waits = |group: &Group| group.phase == GroupPhase::Joining && !group.leaving && group.deadline > Time::ZERO;
        while let Some(group) = self.find_group(key, waits).and_then(|group| self.groups.get_mut(group)) {
            group.deadline = Time::ZERO;
        }
        self.set_join_alarm(key);
    }

    /// Ends the open joins of an id that is removed or to be destroyed, because no event will answer them.
    #[inline(never)]
    pub(super) fn end_joins(&mut self, key: IdKey) {
        let mut at = self.ids.get(key).and_then(|id| id.groups);
        if at.is_none() {
            return;
        }
        while let Some(group) = at.and_then(|group| self.groups.get_mut(group)) {
            if group.phase == GroupPhase::Joining {
                group.phase = GroupPhase::Failed;
                group.deadline = Time::NEVER;
            }
            at = group.next;
        }
        self.set_join_alarm(key);
    }

    /// Removes the memberships of an id that is gone.
    pub(super) fn forget_groups(&mut self, key: IdKey) {
        while let Some(group) = self.ids.get(key).and_then(|id| id.groups) {
            self.forget_group(key, group);
        }
    }

    fn forget_group(&mut self, key: IdKey, group: GroupKey) {
        self.discard_group_mail(key, group);
        let Some(next) = self.groups.remove(group).map(|gone| gone.next) else { return };
        let before = self.find_group(key, |record| record.next == Some(group));
        match before.and_then(|before| self.groups.get_mut(before)) {
            Some(before) => before.next = next,
            None => {
                if let Some(id) = self.ids.get_mut(key) {
                    id.groups = next;
                }
            }
        }
        self.set_join_alarm(key);
    }

    /// Discards the undelivered events of a group, as the kernel does for a group that is left
    /// (`ucma_cleanup_mc_events`).
    fn discard_group_mail(&mut self, key: IdKey, group: GroupKey) {
        let Some(id) = self.ids.get(key) else { return };
        let (channel, mut at) = (id.channel, id.pending.head());
        while let Some(event_ref) = at {
            at = self.pending.next_of_owner(event_ref);
            if self.pending.get(event_ref).group() == Some(group) {
                self.withdraw(event_ref, channel);
                self.counters.discarded += 1;
            }
        }
    }

    fn set_join_alarm(&mut self, key: IdKey) {
        let nearest = self.memberships(key).map(|(_, group)| group.deadline).min().unwrap_or(Time::NEVER);
        if let Some(id) = self.ids.get_mut(key) {
            id.join_deadline = nearest;
        }
        self.arm_deadline(key);
    }
}
