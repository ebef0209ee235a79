//! The application of a host: submits requests, takes events, returns ack tokens.

use cmid_proto::{
    Acks, ChannelKey, CmEvent, Event, EventKind, IdKey, PortSpace, Released, Request, RequestKind, State, Time,
};

use super::host::{Held, Host};
use super::kernel::{File, Kernel, No};
use super::ledger::ExpectedEvent;
use super::requests::{Deadline, Travelling};
use crate::say::say;

/// An id between two hosts.
#[derive(Debug)]
pub(crate) struct DetachedId {
    released: Released,
    no: No,
    file: File,
    letters: Vec<ExpectedEvent>,
    open: Travelling,
    /// The event that ended its last synchronous request.
    result: Option<Event>,
    excused: bool,
    backlog: Option<usize>,
}

impl Host {
    pub(crate) fn open_channel(&mut self, acks: Acks) {
        if let Ok(channel) = self.core.open_channel(acks) {
            say(|| format!("opens {channel} with {acks:?}"));
            self.open.push(channel);
            self.take_calls(None);
            self.look();
        }
    }

    pub(crate) fn close_channel(&mut self, channel: ChannelKey) {
        if self.core.close_channel(channel).is_ok() {
            say(|| format!("closes {channel}"));
            assert!(self.ledger.is_empty(channel), "{channel} is closed and events on it are undelivered");
            self.open.retain(|&open| open != channel);
            self.take_calls(None);
            self.look();
        }
    }

    pub(crate) fn create_id(&mut self, on: Option<ChannelKey>, port_space: PortSpace) {
        if let Ok(id) = self.core.create_id(on, port_space) {
            say(|| format!("creates {id} on {on:?} for {port_space}"));
            self.ledger.track(&self.core, id);
            let called = self.take_calls(Some(id));
            // Creation is not a request kind; the accounts use this one instead.
            let asked = Deadline { id, request_kind: RequestKind::Bind, group: None, due: Time::NEVER, sync: false };
            self.requests.accepted(&self.core, asked, called);
            self.look();
        }
    }

    pub(crate) fn submit(&mut self, kernel: &mut Kernel, id: IdKey, request: Request<'static>, deadline: Time) {
        self.core.compare_request(self.now, id, &request, deadline);
        if self.core.submit(self.now, id, request, deadline).is_err() {
            return;
        }
        say(|| format!("asks {request:?} of {id} until {deadline:?}: {:?}", self.core.state(id)));
        let request_kind = match request.request_kind() {
            RequestKind::DestroyNow => {
                self.void.extend(self.held.extract_if(.., |held| held.owner == id));
                RequestKind::Destroy
            }
            request_kind => request_kind,
        };
        let group = match request {
            Request::Join { addr, .. } => self.core.group_at(id, addr),
            Request::Leave { group } => Some(group),
            _ => None,
        };
        if !matches!(request, Request::AttachQp | Request::DetachQp) {
            self.asked.insert(id, (request, deadline));
            if let Request::Listen { backlog } = request {
                // As in the kernel: an invalid backlog means the maximum.
                let kept = if (1..=1024).contains(&backlog) { backlog } else { 1024 };
                self.backlogs.insert(id, kept as usize);
            }
        } else if let Some(&no) = self.ids.get(&id) {
            kernel.id_mut(no).qp = request_kind == RequestKind::AttachQp;
        }
        if request_kind == RequestKind::Destroy {
            self.excused.insert(id);
            let gone = self.ledger.discard(|letter| letter.owner == id);
            self.excused.extend(gone.iter().filter(|it| it.kind == CmEvent::ConnectRequest).map(|it| it.id));
        }
        if let (RequestKind::Leave, Some(group)) = (request_kind, group) {
            self.excused_groups.insert(group);
            self.requests.answered(group);
            self.ledger.discard(|letter| letter.group == Some(group));
        }
        let called = self.take_calls(Some(id));
        let asked = Deadline { id, request_kind, group, due: deadline, sync: false };
        self.requests.accepted(&self.core, asked, called);
        if request_kind == RequestKind::Migrate && !called && !self.core.waits_for_acks(id, request_kind) {
            self.moved_without_device(id);
        }
        self.look();
    }

    /// Takes the next event of a channel.
    pub(crate) fn take_event(&mut self, on: ChannelKey) -> bool {
        let Some(mut event) = self.core.poll_event(on) else {
            let kept_back = self.ledger.homes.iter().any(|(&id, &home)| home == on && self.is_moving(id));
            assert!(kept_back || self.ledger.is_empty(on), "{on} has events and does not deliver them");
            return false;
        };
        say(|| format!("takes {} of {} off {on}, status {}", event.kind, event.id, event.status));
        let ack_token = event.ack_token.take();
        let (id, owner) = (event.id, event.listener.unwrap_or(event.id));
        match event.kind {
            EventKind::Cm(_) => {
                self.ledger.deliver(on, &event);
                assert!(!self.is_moving(owner), "{event:?} is delivered while its id moves");
                self.ledger.track(&self.core, id);
            }
            EventKind::Migrated => self.requests.ended_by_event(id, RequestKind::Migrate),
            EventKind::Destroyed => self.requests.ended_by_event(id, RequestKind::Destroy),
            EventKind::Left => self.requests.ended_by_event(id, RequestKind::Leave),
            EventKind::DeadlinePassed(request_kind) => self.requests.told_of(id, request_kind, event.group),
        }
        match ack_token {
            Some(ack_token) => {
                assert!(event.cm().is_some(), "{event:?} is to be acked");
                self.held.push(Held { ack_token, owner, group: event.group });
            }
            None => {
                // Unknown for an id that does not exist any more.
                let on_delivery = event.cm().is_none() || self.core.owed(owner) as usize == self.owed(owner);
                assert!(on_delivery, "{event:?} is not to be acked, and counts");
            }
        }
        self.look();
        true
    }

    fn owed(&self, id: IdKey) -> usize {
        self.held.iter().filter(|held| held.owner == id).count()
    }

    pub(crate) fn ack(&mut self, at: usize) -> bool {
        if let Some(Held { ack_token, owner, .. }) = self.void.pop() {
            let before = self.core.clone();
            let refused = self.core.ack(ack_token).expect_err("nothing is owed any more");
            assert_eq!(refused.ack_token.owner(), owner, "another ack token is given back");
            assert!(self.core == before, "an ack token of {owner} was refused and something changed");
        }
        if self.held.is_empty() {
            return false;
        }
        let Held { ack_token, owner, .. } = self.held.remove(at % self.held.len());
        say(|| format!("acks an event of {owner}"));
        let waited = self.core.waits_for_acks(owner, RequestKind::Migrate);
        assert_eq!(self.core.ack(ack_token), Ok(()), "an ack that is owed for {owner}");
        let called = self.take_calls(Some(owner));
        if waited && !called && !self.core.waits_for_acks(owner, RequestKind::Migrate) {
            self.moved_without_device(owner);
        }
        self.look();
        true
    }

    /// Advances the time.
    pub(crate) fn pass(&mut self, now: Time) {
        self.now = now;
        let mut by_result = self.requests.synchronous(&self.core, now);
        by_result.retain(|it| !self.is_moving(it.id));
        self.core.handle_timeout(now);
        let passed = self.requests.pass(&self.core, now, &by_result);
        for deadline in &passed {
            say(|| format!("{deadline:?} has passed"));
            match deadline.group {
                Some(group) => self.excused_groups.extend([group]),
                None if matches!(deadline.request_kind, RequestKind::Migrate | RequestKind::GetRequest) => {}
                None => self.excused.extend([deadline.id]),
            }
        }
        for id in passed.iter().map(|deadline| deadline.id) {
            self.take_calls(Some(id));
        }
        self.look();
    }

    pub(crate) fn release(&mut self, id: IdKey) -> Option<DetachedId> {
        let state = self.core.state(id);
        // A request to a listener stays.
        let result = self.core.sync_event(id).filter(|event| event.listener.is_none());
        let (released, channel) = self.core.release(id).ok()?;
        say(|| format!("releases {id}"));
        assert_eq!(Some(released.state()), state);
        let no = self.ids.remove(&id).expect("an id that is released exists");
        let file = self.files.remove(&channel).expect("and so does its channel");
        let letters = self.ledger.discard(|letter| letter.owner == id);
        self.ledger.homes.remove(&id);
        let open = self.requests.release(id);
        self.look();
        Some(DetachedId {
            released,
            no,
            file,
            letters,
            open,
            result,
            excused: self.excused.contains(&id),
            backlog: self.backlogs.remove(&id),
        })
    }

    /// Adopts an id; returns it if there is no room.
    pub(crate) fn adopt(&mut self, kernel: &mut Kernel, released_id: DetachedId) -> Option<DetachedId> {
        let (id, channel) = match self.core.adopt(released_id.released) {
            Ok(keys) => keys,
            Err((_, released)) => return Some(DetachedId { released, ..released_id }),
        };
        say(|| format!("adopts {id} on {channel}"));
        kernel.id_mut(released_id.no).key = Some(id);
        self.ids.insert(id, released_id.no);
        self.files.insert(channel, released_id.file);
        self.ledger.track(&self.core, id);
        for letter in released_id.letters {
            self.ledger.admit(ExpectedEvent { owner: id, id, ..letter });
        }
        self.requests.adopt(id, released_id.open);
        if let Some(backlog) = released_id.backlog {
            self.backlogs.insert(id, backlog);
        }
        if released_id.excused {
            self.excused.insert(id);
        }
        let result = released_id.result.map(|event| Event { id, ..event });
        assert_eq!(self.core.sync_event(id), result, "how the last request of {id} ended");
        assert!(self.core.state(id) != Some(State::Destroying) && self.core.is_sync(id));
        self.look();
        None
    }
}
