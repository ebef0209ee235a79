//! Memberships in multicast groups, each with its own count of owed acks (rdma_join_multicast(3),
//! rdma_leave_multicast(3)).

use core::net::SocketAddr;

use super::Core;
use super::begun::{Follow, Following, Part, Progress, RequestOf, done};
use super::next::Due;
use crate::call::Outcome;
use crate::cm_event::CmEvent;
use crate::event::{EventKind, RawEvent};
use crate::group::{Group, GroupPhase};
use crate::id::SyncState;
use crate::key::{GroupKey, IdKey};
use crate::refuse_reason::RefuseReason;
use crate::request::Request;
use crate::request_kind::RequestKind;
use crate::stored::Stored;
use crate::time::Time;

impl Core {
    /// Returns the membership of an id in the group at an address. The flow information of an IPv6 address is no part of it.
    #[must_use]
    pub fn group_at(&self, id: IdKey, addr: SocketAddr) -> Option<GroupKey> {
        self.find_group(id, |group| without_flow_info(group.addr) == without_flow_info(addr))
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

    pub(super) fn joined(&mut self, of: &RequestOf<'_>, outcome: Outcome) -> Following<'static> {
        let RequestOf { id: key, request, deadline, .. } = *of;
        let Request::Join { addr, .. } = *request else { return done() };
        if let Err(errno) = outcome {
            self.set_sync_state(key, SyncState::Idle);
            return Err(self.failure(key, RequestKind::Join.name(), errno).into());
        }
        let Some(id) = self.ids.get_mut(key) else { return done() };
        let next = id.groups;
        id.groups = self.groups.insert(Group {
            id: key,
            addr,
            phase: GroupPhase::Joining,
            leaving: false,
            owed: 0,
            deadline,
            next,
        });
        self.set_sync_state(key, SyncState::Open(RequestKind::Join));
        self.set_join_deadline(key);
        done()
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
        self.set_join_deadline(raw.id);
        true
    }

    /// Returns the first part of a leave. `None` if it waits for acks.
    pub(super) fn leave_part(&self, id: IdKey, group: GroupKey) -> Option<Part<'static>> {
        let is_acked = self.groups.get(group).is_some_and(|record| record.owed == 0);
        is_acked.then_some(Part::Leave { id, group, by_event: false })
    }

    /// Makes a leave wait for acks, and discards the undelivered events of the membership.
    pub(super) fn leave_when_acked(&mut self, key: IdKey, group: GroupKey) -> Following<'static> {
        let Some(record) = self.groups.get_mut(group) else { return done() };
        (record.leaving, record.deadline) = (true, Time::NEVER);
        // As every request, a leave discards the event that completed the previous request.
        self.set_sync_state(key, SyncState::Idle);
        self.set_join_deadline(key);
        self.discard_events_of(key, group);
        Ok(Follow::Done(Progress::WhenAcked))
    }

    /// Ends the leaves that wait for acks, because of a destruction. If the destruction ends at its deadline or fails,
    /// the application can leave these memberships again.
    pub(super) fn end_leaves(&mut self, key: IdKey) {
        self.change_groups(key, |group| group.leaving = false);
    }

    /// Changes all memberships of an id.
    pub(super) fn change_groups(&mut self, key: IdKey, change: impl Fn(&mut Group)) {
        let Some(id) = self.ids.get(key).filter(|id| id.groups.is_some() || id.join_deadline != Time::NEVER) else {
            return;
        };
        let mut at = id.groups;
        while let Some(group) = at.and_then(|group| self.groups.get_mut(group)) {
            change(group);
            at = group.next;
        }
        self.set_join_deadline(key);
    }

    /// Handles the return of a leave. librdmacm frees the record whatever the kernel returns
    /// (`rdma_leave_multicast`).
    pub(super) fn left(&mut self, key: IdKey, group: GroupKey, by_event: bool, outcome: Outcome) -> Following<'static> {
        self.forget_group(key, group);
        // librdmacm may have ended the id with it: the device then reports a removal that wakes no poller.
        if let (Err(_), Some(on)) = (outcome, self.device_channel(key)) {
            self.handle_readable(on);
        }
        if by_event {
            self.made(Due::Leave(key, group));
            if let Some(channel) = self.channel(key) {
                self.post(channel, Stored::made(key, EventKind::Left, outcome).of_group(Some(group)));
            }
            return done();
        }
        self.set_sync_state(key, SyncState::Idle);
        outcome.map_err(|errno| self.failure(key, RequestKind::Leave.name(), errno))?;
        done()
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
            let made = Stored::made(key, EventKind::DeadlinePassed(RequestKind::Join), Ok(()));
            self.report_expired(key, made.of_group(Some(group)), open);
        }
        self.set_join_deadline(key);
    }

    /// Makes the open joins due at once, as at a deadline.
    pub(super) fn make_joins_due(&mut self, key: IdKey) {
        self.change_groups(key, |group| {
            if group.phase == GroupPhase::Joining && !group.leaving {
                group.deadline = Time::ZERO;
            }
        });
    }

    /// Ends the open joins of an id that is removed or to be destroyed, because no event will answer them.
    pub(super) fn end_joins(&mut self, key: IdKey) {
        self.change_groups(key, |group| {
            if group.phase == GroupPhase::Joining {
                (group.phase, group.deadline) = (GroupPhase::Failed, Time::NEVER);
            }
        });
    }

    /// Removes the memberships of an id that is gone, and has no deadline and no undelivered events any more.
    pub(super) fn forget_groups(&mut self, key: IdKey) {
        let mut at = self.ids.get_mut(key).and_then(|id| id.groups.take());
        while let Some(group) = at {
            at = self.groups.remove(group).and_then(|gone| gone.next);
        }
    }

    fn forget_group(&mut self, key: IdKey, group: GroupKey) {
        self.discard_events_of(key, group);
        let Some(next) = self.groups.remove(group).map(|gone| gone.next) else { return };
        if let Some(id) = self.ids.get_mut(key).filter(|id| id.groups == Some(group)) {
            id.groups = next;
        }
        self.change_groups(key, |before| {
            if before.next == Some(group) {
                before.next = next;
            }
        });
    }

    /// Discards the undelivered events of a group, as the kernel does for a group that is left
    /// (`ucma_cleanup_mc_events`).
    fn discard_events_of(&mut self, key: IdKey, group: GroupKey) {
        while let Some(stored) = self.take_event_of(key, |stored| stored.of.group == Some(group)) {
            self.discard(&stored);
        }
    }

    fn set_join_deadline(&mut self, key: IdKey) {
        let nearest = self.memberships(key).map(|(_, group)| group.deadline).min().unwrap_or(Time::NEVER);
        if let Some(id) = self.ids.get_mut(key) {
            id.join_deadline = nearest;
        }
        self.arm(key);
    }
}

fn without_flow_info(mut addr: SocketAddr) -> SocketAddr {
    if let SocketAddr::V6(v6) = &mut addr {
        v6.set_flowinfo(0);
    }
    addr
}
