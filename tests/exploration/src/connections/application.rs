//! The application's steps.

use cmid_proto::{ChannelKey, CmEvent, Errno, Event, EventKind, IdKey, Request, RequestKind, Time};

use super::account::{Account, OpenRequest};
use super::invariant::Invariant;
use super::key_allocator;
use super::scene::{Role, Scene};
use super::witness::{Seen, Witness};
use super::world::{NOW, World};

impl World {
    pub(super) fn create(&mut self, scene: &Scene) -> Result<(), Invariant> {
        let role = scene.roles[self.environment.created];
        let id = self.core.create_id(Some(self.environment.channels[0]), role.port_space()).expect("there is room");
        let mut account = Account::new(id, role, true);
        account.begin(OpenRequest::Create);
        self.environment.accounts.push(account);
        self.environment.created += 1;
        Ok(())
    }

    pub(super) fn submit(
        &mut self,
        seen: &Seen,
        id: IdKey,
        request: Request<'static>,
        deadline: Time,
    ) -> Result<(), Invariant> {
        let requests = self.account(id)?.undelivered();
        let moving = self.account(id)?.is_open(OpenRequest::Migrate);
        let queued = self.queued().len();
        self.core.compare_request(NOW, id, &request, deadline);
        self.core.submit(NOW, id, request, deadline).expect("it would not be refused");
        self.environment.private_channels += u8::from(Scene::opens_channel(&request));
        let listens = self.account(id)?.role == Role::Listener && requests > 0;
        let asked = match request {
            Request::GetRequest | Request::AttachQp | Request::DetachQp => return Ok(()),
            Request::Migrate { .. } => {
                // That of a listener is the core's own business.
                if !self.core.waits_for_acks(id, RequestKind::Migrate) && self.queued().len() == queued {
                    seen.note_if(listens, Witness::ListenerMovedWithRequests);
                    return Ok(());
                }
                OpenRequest::Migrate
            }
            Request::DestroyNow => {
                let lost = core::mem::take(&mut self.account(id)?.owed);
                seen.note_if(lost > 0, Witness::DestroyedWithoutAcks);
                let before = self.core.clone();
                if self.core.ack(key_allocator::ack_token(id)).is_ok() || self.core != before {
                    return Err(Invariant::TakesVoidReceipt);
                }
                OpenRequest::Destroy
            }
            Request::Destroy => {
                seen.note_if(listens, Witness::RequestsDiscarded);
                seen.note_if(moving, Witness::DestroyOvertookMove);
                OpenRequest::Destroy
            }
            Request::Bind { .. }
            | Request::ResolveAddr { .. }
            | Request::ResolveRoute
            | Request::Listen { .. }
            | Request::Connect { .. }
            | Request::Accept { .. }
            | Request::Reject { .. }
            | Request::Establish
            | Request::Disconnect
            | Request::Teardown
            | Request::Notify
            | Request::Join { .. }
            | Request::Leave { .. }
            | Request::SetOption { .. }
            | Request::SetEce { .. } => OpenRequest::Call,
        };
        self.account(id)?.begin(asked);
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
        self.look(seen);
        Ok(true)
    }

    pub(super) fn observe(&mut self, seen: &Seen, owner: IdKey, event: &Event) -> Result<(), Invariant> {
        let timed_out = event.status == -Errno::ETIMEDOUT.0;
        let account = self.account(owner)?;
        match event.kind {
            EventKind::Migrated => {
                seen.note(if timed_out { Witness::MoveTimedOut } else { Witness::MovedAfterAcks });
                account.end(OpenRequest::Migrate, false)
            }
            EventKind::Destroyed => {
                seen.note(if timed_out { Witness::DestroyTimedOut } else { Witness::DestroyedAfterAcks });
                account.end(OpenRequest::Destroy, false)
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
