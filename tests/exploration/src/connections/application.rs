//! The application's steps.

use cmid_proto::{ChannelKey, CmEvent, Errno, Event, EventKind, IdKey, Request, Time, Verb};

use super::account::{Account, Asked};
use super::law::Law;
use super::scene::{Role, Scene};
use super::world::{NOW, World};
use super::{Seen, Witness, mint};

impl World {
    pub(super) fn create(&mut self, scene: &Scene) -> Result<(), Law> {
        let role = scene.roles[self.around.created];
        let id = self.core.create_id(Some(self.around.channels[0]), role.port_space()).expect("there is room");
        let mut account = Account::new(id, role, true);
        account.begin(Asked::Create);
        self.around.accounts.push(account);
        self.around.created += 1;
        Ok(())
    }

    pub(super) fn submit(
        &mut self,
        seen: &Seen,
        id: IdKey,
        request: Request<'static>,
        deadline: Time,
    ) -> Result<(), Law> {
        let requests = self.account(id)?.undelivered();
        let moving = self.account(id)?.is_open(Asked::Migrate);
        let queued = self.queued().len();
        self.core.compare_request(NOW, id, &request, deadline);
        self.core.submit(NOW, id, request, deadline).expect("it would not be refused");
        self.around.private_channels += u8::from(Scene::opens_channel(&request));
        let listens = self.account(id)?.role == Role::Listener && requests > 0;
        let asked = match request {
            Request::GetRequest | Request::AttachQp | Request::DetachQp => return Ok(()),
            Request::Migrate { .. } => {
                // That of a listener is the core's own business.
                if !self.core.waits_for_acks(id, Verb::Migrate) && self.queued().len() == queued {
                    seen.note_if(listens, Witness::ListenerMovedWithRequests);
                    return Ok(());
                }
                Asked::Migrate
            }
            Request::DestroyNow => {
                let lost = core::mem::take(&mut self.account(id)?.owed);
                seen.note_if(lost > 0, Witness::DestroyedWithoutAcks);
                let before = self.core.clone();
                if self.core.ack(mint::receipt(id)).is_ok() || self.core != before {
                    return Err(Law::TakesVoidReceipt);
                }
                Asked::Destroy
            }
            Request::Destroy => {
                seen.note_if(listens, Witness::RequestsDiscarded);
                seen.note_if(moving, Witness::DestroyOvertookMove);
                Asked::Destroy
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
            | Request::SetEce { .. } => Asked::Call,
        };
        self.account(id)?.begin(asked);
        Ok(())
    }

    /// The application takes the next event of a channel.
    pub(super) fn deliver(&mut self, seen: &Seen, channel: ChannelKey) -> Result<bool, Law> {
        let Some(event) = self.core.poll_event(channel) else { return Ok(false) };
        let owner = event.listener.unwrap_or(event.id);
        if [owner, event.id].into_iter().filter_map(|id| self.core.home(id)).any(|home| home != channel) {
            return Err(Law::WrongChannel);
        }
        self.hear(seen, owner, &event)?;
        if let Ok(account) = self.account(event.id) {
            account.known = true;
        }
        if event.receipt.is_some() {
            self.account(owner)?.owed += 1;
        }
        if let EventKind::Destroyed = event.kind {
            self.forget_if_gone(owner)?;
        }
        self.look(seen);
        Ok(true)
    }

    pub(super) fn hear(&mut self, seen: &Seen, owner: IdKey, event: &Event) -> Result<(), Law> {
        let timed_out = event.status == -Errno::ETIMEDOUT.0;
        let account = self.account(owner)?;
        match event.kind {
            EventKind::Migrated => {
                seen.note(if timed_out { Witness::MoveTimedOut } else { Witness::MovedAfterAcks });
                account.end(Asked::Migrate, false)
            }
            EventKind::Destroyed => {
                seen.note(if timed_out { Witness::DestroyTimedOut } else { Witness::DestroyedAfterAcks });
                account.end(Asked::Destroy, false)
            }
            EventKind::DeadlinePassed(_) => {
                seen.note(Witness::DeadlinePassed);
                Ok(())
            }
            EventKind::Left => Err(Law::EndsTwice),
            EventKind::Cm(kind) => {
                seen.note_if(kind == CmEvent::ConnectRequest, Witness::ChildDelivered);
                account.deliver(event.status)
            }
        }
    }

    pub(super) fn ack(&mut self, id: IdKey) -> Result<(), Law> {
        self.account(id)?.owed -= 1;
        self.core.ack(mint::receipt(id)).map_err(|_| Law::Order)
    }
}
