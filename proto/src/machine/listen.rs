//! A listener has an event channel of its own at the device, which nothing else is on.
//!
//! The kernel cannot move a listener without losing requests: those that are unread keep the old channel although their
//! events move (`ucma_migrate_id`), and more may come at any moment. So it is never asked to. An id is moved to a channel
//! of its own before it listens, when nothing can be pending; from then on only the core knows where its events are
//! delivered, and to move it changes nothing at the device. To another thread the channel goes whole, unread requests
//! included ([`Core::release`]).
//!
//! The id of a request is born on the listener's channel and moved off it before its CONNECT_REQUEST is delivered: until the
//! application answers it, the kernel reports nothing about it that could be lost (`ucma_event_handler`). Where it could not
//! be moved, or where the requests are delivered on the listener's channel itself, in synchronous mode, the application
//! migrates it before it accepts it: while the listener has as many untaken requests as its backlog allows, its channel is not
//! read.

use super::Core;
use crate::device::{Call, Outcome};
use crate::error::Failure;
use crate::event::{CmEvent, EventKind};
use crate::id::{Doing, Id, Waiting};
use crate::key::{ChannelKey, IdKey};
use crate::limits::requests_of;
use crate::request::{Acks, Verb};
use crate::state::State;
use crate::time::Time;

/// The ids of so many undelivered requests are moved or destroyed with their listener at once; the others in later turns.
const CHILDREN_AT_ONCE: usize = 4;

impl Core {
    /// Whether a listen has to open a channel first.
    pub(super) fn needs_line(&self, id: &Id) -> bool {
        !self.is_private(id.line)
    }

    pub(super) fn begin_listen(&mut self, key: IdKey, backlog: i32, next: State) {
        let Some(id) = self.ids.get(key) else { return };
        let before = id.state;
        if let Some(id) = self.ids.get_mut(key) {
            id.backlog = requests_of(backlog);
        }
        // As every request, it gives up the event that completed the one before.
        self.clear_waiting(key, Waiting::Never);
        let Some(id) = self.ids.get(key) else { return };
        if !self.needs_line(id) {
            self.set_state(key, next);
            return self.call_listen(key, backlog, before);
        }
        // That there is room was asked before.
        let Ok(line) = self.insert_channel(Acks::OnDelivery, true) else { return };
        self.join_channel(line);
        self.set_listener(line, Some(key));
        self.set_state(key, next);
        self.call_for_id(key, Doing::OpenToListen { line, backlog, before }, Call::OpenChannel { channel: line });
    }

    fn call_listen(&mut self, key: IdKey, backlog: i32, before: State) {
        self.line(key).into_iter().for_each(|line| self.set_listener(line, Some(key)));
        let doing = Doing::Request { verb: Verb::Listen, before, until: Time::NEVER, bound: false };
        self.call_for_id(key, doing, Call::Listen { id: key, backlog });
    }

    fn set_listener(&mut self, line: ChannelKey, listener: Option<IdKey>) {
        if let Some(channel) = self.channels.get_mut(line) {
            channel.listener = listener;
        }
    }

    /// The device does not listen: nothing that comes on its channel depends on untaken requests.
    pub(super) fn listen_failed(&mut self, key: IdKey) {
        self.line(key).into_iter().for_each(|line| self.set_listener(line, None));
    }

    pub(super) fn opened_to_listen(
        &mut self,
        key: IdKey,
        line: ChannelKey,
        backlog: i32,
        before: State,
        outcome: Outcome,
    ) -> Option<Result<(), Failure>> {
        if outcome.is_ok() {
            self.now_open(line);
        }
        let Some(id) = self.ids.get(key).filter(|id| !id.orphaned) else {
            self.leave_channel(line);
            return None;
        };
        let from = id.line;
        match outcome {
            Ok(()) => {
                let call = Call::Migrate { id: key, from, to: line };
                self.call_for_id(key, Doing::MoveToListen { line, backlog, before }, call);
                None
            }
            Err(errno) => {
                self.set_listener(line, None);
                self.leave_channel(line);
                Some(Err(self.not_listening(key, before, "create_event_channel", errno)))
            }
        }
    }

    pub(super) fn moved_to_listen(
        &mut self,
        key: IdKey,
        line: ChannelKey,
        backlog: i32,
        before: State,
        outcome: Outcome,
    ) -> Option<Result<(), Failure>> {
        let home = self.ids.get(key)?.home;
        match outcome {
            Ok(()) => {
                self.place(key, home, line);
                self.leave_channel(line);
                self.handle_readable(line);
                if self.state(key) == Some(State::Listening) {
                    self.call_listen(key, backlog, before);
                    return None;
                }
                // An event has made an end of it.
                self.set_listener(line, None);
                Some(Err(self.not_listening(key, before, Verb::Listen.name(), crate::Errno::ENODEV)))
            }
            Err(errno) => {
                self.set_listener(line, None);
                self.leave_channel(line);
                Some(Err(self.not_listening(key, before, Verb::Migrate.name(), errno)))
            }
        }
    }

    fn not_listening(&mut self, key: IdKey, before: State, call: &'static str, errno: crate::Errno) -> Failure {
        if self.state(key) == Some(State::Listening) {
            self.set_state(key, before);
        }
        Failure { call, ..self.failure(key, Verb::Listen, errno) }
    }

    /// Whether a migration of an id is the core's own business: also of one that listens on because it could not be
    /// destroyed.
    pub(super) fn moves_without_device(&self, id: &Id) -> bool {
        id.listens && id.state != State::Removed
    }

    /// Where a listener's events are delivered changes; its requests that are undelivered go along, and so do their ids.
    pub(super) fn redirect(&mut self, key: IdKey, to: Option<ChannelKey>, by_event: bool) {
        let Some(id) = self.ids.get(key) else { return };
        let (from, line) = (id.home, id.line);
        let home = to.unwrap_or(line);
        self.relocate(key, home, line, by_event);
        if let Some(id) = self.ids.get_mut(key) {
            id.sync = to.is_none();
        }
        let mut at = self.ids.get(key).and_then(|id| id.mail.head());
        let mut begun = 0;
        while let Some(letter) = at {
            at = self.mail.next_owned(letter);
            let stored = self.mail.get(letter);
            if stored.kind == EventKind::Cm(CmEvent::ConnectRequest) {
                let child = stored.id;
                // One that was moved before its request was taken stays where it was put.
                let follows = self.ids.get(child).filter(|child| child.home == from);
                if let Some(line) = follows.map(|child| child.line) {
                    self.relocate(child, home, line, false);
                    self.begin_or_queue(child, &mut begun);
                }
            }
        }
    }

    /// Does at once what is to be done for the id of an undelivered request, for the first few of many; the others wait for
    /// their turn.
    pub(super) fn begin_or_queue(&mut self, child: IdKey, begun: &mut usize) {
        *begun += 1;
        if *begun <= CHILDREN_AT_ONCE {
            return self.begin_for_child(child);
        }
        if let Some(id) = self.ids.get_mut(child)
            && id.doing == Doing::Nothing
            // With the last of them it goes on by itself.
            && id.owed == 0
            && (id.line != id.home || id.state == State::Destroying)
        {
            id.doing = Doing::Queued;
            self.children.push_back(child);
        }
    }

    /// The next of the ids of undelivered requests that are to be moved after their listener, or destroyed with it, and have
    /// waited for their turn; what is to be done for it follows as a call. A listener may have as many of them as its backlog
    /// allows ([`BACKLOG_MAX`](crate::BACKLOG_MAX)): a driver takes some in each turn, beside what else there is to do.
    #[inline]
    pub fn poll_child(&mut self) -> Option<IdKey> {
        if self.children.is_empty() { None } else { self.next_child() }
    }

    #[inline(never)]
    fn next_child(&mut self) -> Option<IdKey> {
        while let Some(child) = self.children.pop_front() {
            if let Some(id) = self.ids.get_mut(child)
                && id.doing == Doing::Queued
            {
                id.doing = Doing::Nothing;
                self.begin_for_child(child);
                // Its request can be delivered when the call has been made.
                self.news += 1;
                return Some(child);
            }
        }
        None
    }

    fn begin_for_child(&mut self, child: IdKey) {
        self.continue_destroy(child);
        self.settle(child);
    }

    /// Moves the id of an undelivered request to where it is to be delivered; if the application owes acks for it, with the
    /// last of them.
    pub(super) fn settle(&mut self, child: IdKey) {
        if matches!(self.state(child), Some(State::Requested | State::Asked)) {
            self.move_home(child);
        }
    }

    fn move_home(&mut self, child: IdKey) {
        if let Some(id) = self.ids.get(child)
            && id.line != id.home
            && id.doing == Doing::Nothing
            && id.owed == 0
        {
            let (from, to) = (id.line, id.home);
            self.join_channel(to);
            self.call_for_id(child, Doing::Settle { to }, Call::Migrate { id: child, from, to });
        }
    }

    /// Where the device would not move it, it stays on the listener's channel.
    pub(super) fn settled(&mut self, child: IdKey, to: ChannelKey, outcome: Outcome) {
        if let Some(home) = self.ids.get(child).map(|id| id.home) {
            if outcome.is_ok() {
                self.place(child, home, to);
            }
            // Its listener may have moved on meanwhile, and a destroy of the child may have given up.
            if home != to && self.state(child) != Some(State::Destroying) {
                self.move_home(child);
            }
        }
        self.leave_channel(to);
    }
}
