//! The application's steps.

use cmid_proto::{ChannelKey, CmEvent, Errno, Error, Event, EventKind, IdKey, Progress, Request, Time};

use super::account::{Account, OpenRequest};
use super::invariant::Invariant;
use super::key_allocator;
use super::scene::{Role, Scene};
use super::witness::{Seen, Witness};
use super::world::{NOW, World};

impl World {
    pub(super) fn create(&mut self, scene: &Scene, seen: &Seen) -> Result<(), Invariant> {
        let role = scene.roles[self.environment.created];
        let before = self.core.clone();
        let on = Some(self.environment.channels[0]);
        let (id, begun) = self.core.create_id(on, role.port_space()).expect("there is room");
        match self.environment.make(seen, None, begun)? {
            Ok(_) => {
                self.environment.accounts.push(Account::new(id, role, true));
                self.environment.created += 1;
                Ok(())
            }
            Err(_) if self.core == before => Ok(()),
            Err(_) => Err(Invariant::FailsAndChanges),
        }
    }

    /// Submits a request, with its calls.
    pub(super) fn submit(
        &mut self,
        seen: &Seen,
        id: IdKey,
        request: Request<'static>,
        deadline: Time,
    ) -> Result<(), Invariant> {
        let account = self.account(id)?;
        let moving = account.is_open(OpenRequest::Migrate);
        let has_requests = account.role == Role::Listener && account.undelivered() > 0;
        let begun = self.core.begin(NOW, id, &request, deadline).expect("it would not be refused");
        let makes_no_call = begun.call().is_none();
        let result = self.environment.make(seen, Some(&request), begun)?;
        self.environment.private_channels += u8::from(Scene::opens_channel(&request));
        if let Err(Error::Fault(_)) = result {
            return Err(Invariant::Faults);
        }
        let waits = matches!(result, Ok(Progress::WhenAcked));
        match request {
            Request::Migrate { .. } if waits => self.account(id)?.begin(OpenRequest::Migrate),
            // That of a listener is the core's own business.
            Request::Migrate { .. } => seen.note_if(has_requests && makes_no_call, Witness::ListenerMovedWithRequests),
            Request::Destroy | Request::DestroyNow => {
                seen.note_if(has_requests, Witness::RequestsDiscarded);
                seen.note_if(moving, Witness::DestroyOvertookMove);
                self.account(id)?.end_all();
                if waits {
                    self.account(id)?.begin(OpenRequest::Destroy);
                }
                if request == Request::DestroyNow {
                    self.give_up_acks(seen, id)?;
                }
                if result.is_ok() && !waits && self.core.state(id).is_some() {
                    return Err(Invariant::NeverEnds);
                }
                self.forget_if_gone(id)?;
            }
            Request::Bind { .. }
            | Request::ResolveAddr { .. }
            | Request::ResolveRoute
            | Request::Listen { .. }
            | Request::AttachQp
            | Request::DetachQp
            | Request::Connect { .. }
            | Request::Accept { .. }
            | Request::Reject { .. }
            | Request::Establish
            | Request::Disconnect
            | Request::Teardown
            | Request::Notify
            | Request::GetRequest
            | Request::Join { .. }
            | Request::Leave { .. }
            | Request::SetOption { .. }
            | Request::SetEce { .. } => {
                if waits {
                    return Err(Invariant::NeverEnds);
                }
            }
        }
        Ok(())
    }

    /// After a destroy without the acks that are owed.
    fn give_up_acks(&mut self, seen: &Seen, id: IdKey) -> Result<(), Invariant> {
        let lost = core::mem::take(&mut self.account(id)?.owed);
        seen.note_if(lost > 0, Witness::DestroyedWithoutAcks);
        let before = self.core.clone();
        if self.core.ack(key_allocator::ack_token(id)).is_ok() || self.core != before {
            return Err(Invariant::TakesVoidReceipt);
        }
        Ok(())
    }

    /// Takes the next event of a channel.
    pub(super) fn deliver(&mut self, seen: &Seen, channel: ChannelKey) -> Result<bool, Invariant> {
        let Some(event) = self.core.poll_event(channel) else { return Ok(false) };
        let owner = event.listener.unwrap_or(event.id);
        if [owner, event.id].into_iter().filter_map(|id| self.core.channel(id)).any(|home| home != channel) {
            return Err(Invariant::WrongChannel);
        }
        self.observe(seen, owner, &event)?;
        if let Ok(account) = self.account(event.id) {
            account.known = true;
        }
        if event.ack_token.is_some() {
            self.account(owner)?.owed += 1;
        }
        if let EventKind::Destroyed = event.kind {
            self.forget_if_gone(owner)?;
        }
        Ok(true)
    }

    pub(super) fn observe(&mut self, seen: &Seen, owner: IdKey, event: &Event) -> Result<(), Invariant> {
        let timed_out = event.status == -Errno::ETIMEDOUT.0;
        let account = self.account(owner)?;
        match event.kind {
            EventKind::Migrated => {
                seen.note(if timed_out { Witness::MoveTimedOut } else { Witness::MovedAfterAcks });
                account.end(OpenRequest::Migrate)
            }
            EventKind::Destroyed => {
                seen.note(if timed_out { Witness::DestroyTimedOut } else { Witness::DestroyedAfterAcks });
                account.end(OpenRequest::Destroy)
            }
            EventKind::DeadlinePassed(_) => {
                seen.note(Witness::DeadlinePassed);
                Ok(())
            }
            EventKind::Left => Err(Invariant::EndsTwice),
            EventKind::Cm(kind) => {
                seen.note_if(kind == CmEvent::ConnectRequest, Witness::ChildDelivered);
                account.deliver(event.status)
            }
        }
    }

    pub(super) fn ack(&mut self, id: IdKey) -> Result<(), Invariant> {
        self.account(id)?.owed -= 1;
        self.core.ack(key_allocator::ack_token(id)).map_err(|_| Invariant::Order)
    }
}
