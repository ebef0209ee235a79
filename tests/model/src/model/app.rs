//! The application of a host: submits requests, takes events, returns ack tokens.

use cmid_proto::info::WaitsFor;
use cmid_proto::{
    Acks, ChannelKey, CmEvent, ErrorWith, Event, EventKind, IdKey, PortSpace, Progress, Released, Request, RequestKind,
    State, Time,
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
    pub(crate) fn open_channel(&mut self, kernel: &mut Kernel, acks: Acks) {
        if let Ok((channel, begun)) = self.core.open_channel(acks) {
            say(|| format!("opens {channel} with {acks:?}"));
            let (_, result) = self.device.make(kernel, None, begun);
            assert_eq!(self.core.channel_info(channel).is_some(), result.is_ok(), "{channel}");
            self.open.extend(result.is_ok().then_some(channel));
            self.look();
        }
    }

    pub(crate) fn close_channel(&mut self, kernel: &mut Kernel, channel: ChannelKey) {
        if let Ok(begun) = self.core.close_channel(channel) {
            say(|| format!("closes {channel}"));
            assert!(self.ledger.is_empty(channel), "{channel} is closed and events on it are undelivered");
            let (_, result) = self.device.make(kernel, None, begun);
            assert!(result.is_ok() && self.core.channel_info(channel).is_none(), "{channel}: {result:?}");
            self.open.retain(|&open| open != channel);
            self.look();
        }
    }

    pub(crate) fn create_id(&mut self, kernel: &mut Kernel, on: Option<ChannelKey>, port_space: PortSpace) {
        if let Ok((id, begun)) = self.core.create_id(on, port_space) {
            say(|| format!("creates {id} on {on:?} for {port_space}"));
            let (_, result) = self.device.make(kernel, None, begun);
            assert_eq!(self.core.state(id).is_some(), result.is_ok(), "{id}");
            self.ledger.track(&self.core, id);
            self.follow(kernel);
            self.look();
        }
    }

    pub(crate) fn submit(&mut self, kernel: &mut Kernel, id: IdKey, request: Request<'static>, deadline: Time) {
        if let Err(refused) = self.core.would_refuse(self.now, id, &request, deadline) {
            let is_going = self.core.state(id).is_none_or(|state| state == State::Destroying);
            assert!(request != Request::Destroy || is_going, "a destroy of {id} is refused: {refused}");
            return;
        }
        say(|| format!("asks {request:?} of {id} until {deadline:?}: {:?}", self.core.state(id)));
        if let (Request::Destroy | Request::DestroyNow, Some(&no)) = (&request, self.device.ids.get(&id)) {
            kernel.id_mut(no).leaving = true;
        }
        let begun = self.core.begin(self.now, id, &request, deadline).expect("it would not be refused");
        let (made, result) = self.device.make(kernel, Some(&request), begun);
        let waived = request == Request::DestroyNow;
        self.note(&made, waived);
        self.asked.insert(id, request);
        let waits = result == Ok(Progress::WhenAcked);
        assert_eq!(waits, self.owes_acks(id, &request), "{request:?} on {id}: {made:?}");
        // A call that is late is told first.
        let told = |(of, it)| of == id && (it == WaitsFor::Acks(request.request_kind()) || it == WaitsFor::Call);
        let is_told = self.core.waiting().any(told);
        assert!(!waits || (is_told && made.is_empty()), "{request:?} on {id} waits: {made:?}");
        let mut request_kind = request.request_kind();
        let mut group = None;
        match request {
            Request::AttachQp | Request::DetachQp => {
                if let Some(&no) = self.device.ids.get(&id) {
                    kernel.id_mut(no).qp = request == Request::AttachQp;
                }
            }
            Request::Join { addr, .. } => group = self.core.group_at(id, addr),
            Request::Leave { group: left } => {
                group = Some(left);
                self.excused_groups.insert(left);
                self.requests.answered(left);
                self.ledger.discard(|letter| letter.group == group);
            }
            Request::Migrate { .. } if made.is_empty() && !waits => self.moved_without_device(id),
            Request::Destroy | Request::DestroyNow => {
                if waived {
                    self.void.extend(self.held.extract_if(.., |held| held.owner == id));
                }
                request_kind = RequestKind::Destroy;
                assert_eq!(waits || result.is_err(), self.core.state(id).is_some(), "{request:?} on {id}: {result:?}");
                if result.is_err() {
                    self.requests.end_all(id);
                }
                self.excused.insert(id);
                self.ledger.discard(|letter| letter.owner == id);
            }
            _ => {}
        }
        if result.is_ok() {
            let asked = Deadline { id, request_kind, group, due: deadline, sync: false };
            self.requests.made(&self.core, asked, waits);
        }
        self.follow(kernel);
        self.look();
    }

    /// Takes the next event of a channel.
    pub(crate) fn take_event(&mut self, on: ChannelKey) -> bool {
        let Some(mut event) = self.core.poll_event(on) else {
            assert!(self.ledger.is_empty(on), "{on} has events and does not deliver them");
            return false;
        };
        say(|| format!("takes {} of {} off {on}, status {}", event.kind, event.id, event.status));
        let ack_token = event.ack_token.take();
        let (id, owner) = (event.id, event.listener.unwrap_or(event.id));
        match event.kind {
            EventKind::Cm(_) => {
                let letter = self.ledger.deliver(on, &event);
                if letter.kind == CmEvent::DeviceRemoval {
                    self.requests.removal_is_told(id);
                }
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
                let on_delivery = event.cm().is_none()
                    || self.core.id_info(owner).map_or(0, |it| it.owed) as usize == self.owed(owner);
                assert!(on_delivery, "{event:?} is not to be acked, and counts");
            }
        }
        self.look();
        true
    }

    /// Whether a request waits for acks: those of its id, or those of the membership that is left.
    fn owes_acks(&self, id: IdKey, request: &Request<'_>) -> bool {
        self.held.iter().any(|held| match *request {
            Request::Migrate { .. } | Request::Destroy => held.owner == id,
            Request::Leave { group } => held.group == Some(group),
            _ => false,
        })
    }

    fn owed(&self, id: IdKey) -> usize {
        self.held.iter().filter(|held| held.owner == id).count()
    }

    pub(crate) fn ack(&mut self, kernel: &mut Kernel, at: usize) -> bool {
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
        let moves = matches!(self.asked.get(&owner), Some(Request::Migrate { .. }));
        if moves && self.core.state(owner) == Some(State::Listening) {
            // A listener moves without a call, so nothing would tell that it moves late.
            self.is_late = false;
            self.follow(kernel);
        }
        let waited = self.core.waiting().any(|it| it == (owner, WaitsFor::Acks(RequestKind::Migrate)));
        assert_eq!(self.core.ack(ack_token), Ok(()), "an ack that is owed for {owner}");
        let made = self.follow(kernel);
        // A call that is late is made later, and moves the events then.
        if waited
            && !self.is_late
            && made.is_empty()
            && !self.core.waiting().any(|it| it == (owner, WaitsFor::Acks(RequestKind::Migrate)))
        {
            self.moved_without_device(owner);
        }
        self.look();
        true
    }

    /// Advances the time.
    pub(crate) fn pass(&mut self, kernel: &mut Kernel, now: Time) {
        self.now = now;
        let by_result = self.requests.synchronous(&self.core, now);
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
        self.follow(kernel);
        self.look();
    }

    pub(crate) fn release(&mut self, id: IdKey) -> Option<DetachedId> {
        let state = self.core.state(id);
        // A request to a listener stays.
        let result = self.core.sync_event(id).filter(|event| event.listener.is_none());
        let (released, channel) = self.core.release(id).ok()?;
        say(|| format!("releases {id}"));
        assert_eq!(Some(released.state()), state);
        let no = self.device.ids.remove(&id).expect("an id that is released exists");
        let file = self.device.files.remove(&channel).expect("and so does its channel");
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
            Err(ErrorWith { given: released, .. }) => return Some(DetachedId { released, ..released_id }),
        };
        say(|| format!("adopts {id} on {channel}"));
        kernel.id_mut(released_id.no).key = Some(id);
        self.device.insert(id, released_id.no);
        self.device.files.insert(channel, released_id.file);
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
        assert!(self.core.state(id) != Some(State::Destroying) && self.core.id_info(id).is_some_and(|it| it.is_sync));
        self.look();
        None
    }
}
