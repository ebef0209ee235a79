//! Listening. At the device, a listener has its own event channel. Only the ids of its requests share the channel,
//! until they are accepted or migrated.
//!
//! The kernel cannot migrate a listener without losing requests. The ids of unread requests stay on the old channel
//! although their events move (`ucma_migrate_id`), and more requests may come at any moment. Therefore the core never
//! migrates a listener at the device. It migrates an id to a channel of its own before the listen, when no event can be
//! pending; an id that is on a private channel already listens at once (docs/semantics.md, 5.6, rules 6 and 8). From
//! then on the channel that delivers the listener's events is recorded only in the core, and a migration changes
//! nothing at the device. A release to another thread moves the whole channel, including unread requests
//! ([`Core::release`]).
//!
//! The id of a request starts on the listener's channel. At the device it stays there until it is accepted, migrated
//! or destroyed. Before the accept the kernel reports nothing about it (`ucma_event_handler`), and many requests are
//! never accepted. An accept first migrates the id to the channel that delivers its events (`accept`), because the
//! listener's channel is not read while the number of its untaken requests is at the backlog. In synchronous mode
//! requests are delivered on the listener's channel itself: the application migrates the id before it accepts it. When
//! a listener is migrated, the ids of its undelivered requests follow without a call.

use super::Core;
use crate::call::{Call, Outcome};
use crate::error::Failure;
use crate::id::{Id, PendingCall, SyncState};
use crate::key::{ChannelKey, IdKey};
use crate::limits::requests_of;
use crate::request::Acks;
use crate::request_kind::RequestKind;
use crate::state::State;
use crate::time::Time;

/// The number of ids of undelivered requests that are destroyed at once with their listener. The others follow in
/// later turns.
const CHILDREN_AT_ONCE: usize = 4;

impl Core {
    /// Whether a listen must first open a channel.
    pub(super) fn needs_own_channel(&self, id: &Id) -> bool {
        !self.is_private(id.device_channel)
    }

    pub(super) fn begin_listen(&mut self, key: IdKey, backlog: i32, next: State) {
        let Some(id) = self.ids.get(key) else { return };
        let before = id.state;
        if let Some(id) = self.ids.get_mut(key) {
            id.backlog = requests_of(backlog);
        }
        // As every request, a listen discards the event that completed the previous request.
        self.clear_waiting(key, SyncState::Never);
        let Some(id) = self.ids.get(key) else { return };
        if !self.needs_own_channel(id) {
            self.set_state(key, next);
            return self.call_listen(key, backlog, before);
        }
        // `lacks_channel` has checked that a channel is free.
        let Ok(device_channel) = self.insert_channel(Acks::OnDelivery, true) else { return };
        self.join_channel(device_channel);
        self.set_listener(device_channel, Some(key));
        self.set_state(key, next);
        self.call_for_id(
            key,
            PendingCall::OpenToListen { device_channel, backlog, before },
            Call::OpenChannel { channel: device_channel },
        );
    }

    fn call_listen(&mut self, key: IdKey, backlog: i32, before: State) {
        self.device_channel(key).into_iter().for_each(|device_channel| self.set_listener(device_channel, Some(key)));
        let pending_call =
            PendingCall::Request { request_kind: RequestKind::Listen, before, until: Time::NEVER, bound: false };
        self.call_for_id(key, pending_call, Call::Listen { id: key, backlog });
    }

    fn set_listener(&mut self, device_channel: ChannelKey, listener: Option<IdKey>) {
        if let Some(channel) = self.channels.get_mut(device_channel) {
            channel.listener = listener;
        }
    }

    /// Clears the listener of the channel after a failed listen. The number of untaken requests then no longer limits
    /// reads of the channel.
    pub(super) fn listen_failed(&mut self, key: IdKey) {
        self.device_channel(key).into_iter().for_each(|device_channel| self.set_listener(device_channel, None));
    }

    pub(super) fn open_to_listen_returned(
        &mut self,
        key: IdKey,
        device_channel: ChannelKey,
        backlog: i32,
        before: State,
        outcome: Outcome,
    ) -> Option<Result<(), Failure>> {
        if outcome.is_ok() {
            self.now_open(device_channel);
        }
        let Some(id) = self.ids.get(key).filter(|id| !id.orphaned) else {
            self.leave_channel(device_channel);
            return None;
        };
        let from = id.device_channel;
        match outcome {
            Ok(()) => {
                let call = Call::Migrate { id: key, from, to: device_channel };
                self.call_for_id(key, PendingCall::MigrateToListen { device_channel, backlog, before }, call);
                None
            }
            Err(errno) => {
                self.set_listener(device_channel, None);
                self.leave_channel(device_channel);
                Some(Err(self.not_listening(key, before, "create_event_channel", errno)))
            }
        }
    }

    pub(super) fn migrate_to_listen_returned(
        &mut self,
        key: IdKey,
        device_channel: ChannelKey,
        backlog: i32,
        before: State,
        outcome: Outcome,
    ) -> Option<Result<(), Failure>> {
        let channel = self.ids.get(key)?.channel;
        match outcome {
            Ok(()) => {
                self.set_channels(key, channel, device_channel);
                self.leave_channel(device_channel);
                self.handle_readable(device_channel);
                if self.state(key) == Some(State::Listening) {
                    self.call_listen(key, backlog, before);
                    return None;
                }
                // An event has ended the listening state.
                self.set_listener(device_channel, None);
                Some(Err(self.not_listening(key, before, RequestKind::Listen.name(), crate::Errno::ENODEV)))
            }
            Err(errno) => {
                self.set_listener(device_channel, None);
                self.leave_channel(device_channel);
                Some(Err(self.not_listening(key, before, RequestKind::Migrate.name(), errno)))
            }
        }
    }

    fn not_listening(&mut self, key: IdKey, before: State, call: &'static str, errno: crate::Errno) -> Failure {
        if self.state(key) == Some(State::Listening) {
            self.set_state(key, before);
        }
        Failure { call, ..self.failure(key, RequestKind::Listen, errno) }
    }

    /// Whether a migration of an id makes no device call: for a listener, also one that still listens after a failed
    /// destruction.
    pub(super) fn moves_without_device(&self, id: &Id) -> bool {
        id.listens && id.state != State::Removed
    }

    /// Changes the channel that delivers a listener's events. Its undelivered requests and their ids follow. At the
    /// device these ids are on the listener's channel and stay there.
    pub(super) fn redirect(&mut self, key: IdKey, to: Option<ChannelKey>, by_event: bool) {
        let Some(id) = self.ids.get(key) else { return };
        let (from, device_channel) = (id.channel, id.device_channel);
        let channel = to.unwrap_or(device_channel);
        self.apply_migrate(key, channel, device_channel, by_event);
        if let Some(id) = self.ids.get_mut(key) {
            id.sync = to.is_none();
        }
        let mut at = self.ids.get(key).and_then(|id| id.pending.head());
        while let Some(event_ref) = at {
            at = self.pending.next_of_owner(event_ref);
            let (is_request, child) = (self.pending.get(event_ref).is_request(), self.pending.get(event_ref).id);
            // An id that was migrated before its request was delivered stays on its channel.
            let follows =
                |child: &Id| child.channel == from && child.device_channel == device_channel && !child.is_moving();
            if is_request && self.ids.get(child).is_some_and(follows) {
                self.apply_migrate(child, channel, device_channel, false);
            }
        }
    }

    /// Destroys the id of an undelivered request: at once if it is one of the first few, in a later turn otherwise.
    pub(super) fn destroy_or_queue(&mut self, child: IdKey, begun: &mut usize) {
        *begun += 1;
        if *begun <= CHILDREN_AT_ONCE {
            return self.continue_destroy(child);
        }
        // If acks are owed, the last ack continues the destruction.
        let is_free = |id: &&mut Id| id.pending_call == PendingCall::Nothing && id.owed == 0;
        if let Some(id) = self.ids.get_mut(child).filter(is_free) {
            id.pending_call = PendingCall::Queued;
            self.children.push_back(child);
            self.queued += 1;
        }
    }

    /// Begins the destruction of the next queued id and returns its key; the call follows from
    /// [`poll_call`](Core::poll_call). The queued ids are those of undelivered requests to a listener that is
    /// destroyed. Their number is limited by its backlog ([`BACKLOG_MAX`](crate::BACKLOG_MAX)). A driver destroys some
    /// of them in each turn.
    #[inline]
    pub fn poll_child(&mut self) -> Option<IdKey> {
        if self.children.is_empty() { None } else { self.next_child() }
    }

    #[inline(never)]
    fn next_child(&mut self) -> Option<IdKey> {
        let child = self.children.pop_front()?;
        self.queued -= 1;
        if let Some(id) = self.ids.get_mut(child) {
            id.pending_call = PendingCall::Nothing;
        }
        self.continue_destroy(child);
        Some(child)
    }
}
