//! The steps of the driver and of the device: the contract of `cmid_proto`.

use cmid_proto::{Admission, Call, CmEvent, Ended, Errno, Fault, IdKey, Target};

use super::account::{Account, OpenRequest};
use super::invariant::Invariant;
use super::kernel::Kernel;
use super::scene::{Role, Scene};
use super::witness::{Seen, Witness};
use super::world::{UnderWay, World};

/// The errno of failed calls. After it an id stays bound if its address was being resolved; other calls have no such
/// case.
const ERRNO: Errno = Errno::ENETUNREACH;

impl World {
    /// The calls that the driver has not taken yet.
    pub(super) fn queued(&self) -> Vec<Call> {
        let mut core = self.core.clone();
        core::iter::from_fn(|| core.poll_call()).map(|(_, call)| call).collect()
    }

    /// The driver makes the next call.
    pub(super) fn call(&mut self, seen: &Seen, fails: bool) -> Result<bool, Invariant> {
        let Some((token, call)) = self.core.poll_call() else { return Ok(false) };
        let account = call.id().and_then(|id| self.environment.accounts.iter().find(|account| account.id == id));
        if let Call::Migrate { id, to, .. } = call {
            seen.note_if(self.environment.device.unread_of(id) > 0 && !fails, Witness::MovedWithUnread);
            seen.note_if(
                account.is_some_and(|account| account.undelivered() > 0) && self.core.channel(id) != Some(to) && !fails,
                Witness::MovedWithUndelivered,
            );
        }
        if matches!(call, Call::Migrate { .. } | Call::Destroy { .. }) && account.is_some_and(|it| it.owed > 0) {
            return Err(Invariant::CallsWhileAcksAreOwed);
        }
        let asked = |asked| account.is_some_and(|it| it.is_open(asked));
        if matches!(call, Call::Migrate { .. })
            && account.is_some_and(|it| it.role == Role::Child)
            && !(asked(OpenRequest::Migrate) || asked(OpenRequest::Call) || asked(OpenRequest::Destroy))
        {
            return Err(Invariant::MovesUnasked);
        }
        // These calls must succeed: a channel that cannot be closed, or an unknown new id that cannot be destroyed,
        // leaks, and that is reported as a fault.
        let must_succeed = matches!(call, Call::CloseChannel { .. })
            || matches!(call, Call::Destroy { .. } if account.is_none_or(|it| !it.known));
        if fails && must_succeed {
            return Ok(false);
        }
        let outcome = self.environment.device.call(&call, fails.then_some(ERRNO))?;
        self.environment.under_way = Some(UnderWay { token, call, outcome, arrived: false });
        Ok(true)
    }

    pub(super) fn answer(&mut self, seen: &Seen) -> Result<(), Invariant> {
        let Some(UnderWay { token, call, outcome, .. }) = self.environment.under_way.take() else { return Ok(()) };
        let failed = outcome.is_err();
        seen.note_if(failed && matches!(call, Call::Migrate { .. }), Witness::NotMoved);
        seen.note_if(outcome == Err(Errno::EFAULT), Witness::MovedAllTheSame);
        seen.note_if(failed && matches!(call, Call::Destroy { .. }), Witness::NotDestroyed);
        let result = self.core.handle_outcome(token, outcome);
        match result {
            Ok(Some(Ended { target: Target::Id(id), .. })) => {
                let gone = self.core.state(id).is_none();
                let account = self.account(id)?;
                account.end(account.open_request_of(&call), gone)?;
                self.forget_if_gone(id)
            }
            Ok(_) => Ok(()),
            Err(Fault::Leak { .. }) if failed => Ok(()),
            Err(_) => Err(Invariant::Faults),
        }
    }

    /// Whether an event on the new channel shows that a migration in progress is complete.
    pub(super) fn has_arrived(&self) -> bool {
        self.environment.under_way.is_some_and(|it| {
            let account = self.environment.accounts.iter().find(|account| Some(account.id) == it.call.id());
            it.arrived
                && it.outcome.is_ok()
                && account.is_some_and(|account| account.open_request_of(&it.call) == OpenRequest::Migrate)
        })
    }

    /// Reports failure of such a migration: `ucma_migrate_id` may return EFAULT after it has moved the id.
    pub(super) fn deny(&mut self) {
        if let Some(under_way) = &mut self.environment.under_way {
            under_way.outcome = Err(Errno::EFAULT);
        }
    }

    /// The driver reads the next channel: steps 4 and 5 of the contract.
    pub(super) fn read(&mut self, seen: &Seen) -> Result<bool, Invariant> {
        let Some(channel) = self.core.poll_readable() else { return Ok(false) };
        let Some(child) = self.core.wants_event(channel) else {
            seen.note(Witness::NoRoom);
            self.core.wait_for_room(channel);
            return Ok(true);
        };
        if let Some(raw) = self.environment.device.fetch(channel, child)? {
            let line = self.core.device_channel(raw.id);
            self.core.compare_event(channel, &raw);
            match self.core.handle_event(channel, raw) {
                Ok(Admission::Known) => {
                    if let Some(UnderWay { call: Call::Migrate { id, to, .. }, arrived, .. }) =
                        &mut self.environment.under_way
                    {
                        *arrived |= *id == raw.id && *to == channel;
                    }
                    seen.note_if(line != Some(channel), Witness::ArrivedByEvent);
                    seen.note_if(raw.kind == CmEvent::DeviceRemoval, Witness::Removed);
                    self.account(raw.id)?.expect(raw.status);
                }
                Ok(Admission::Child(child)) => {
                    self.account(raw.listener.unwrap_or(child))?.expect(raw.status);
                    self.environment.accounts.push(Account::new(child, Role::Child, false));
                }
                Ok(Admission::Late | Admission::Stray) => {
                    seen.note(if raw.listener.is_some() { Witness::LateRequest } else { Witness::LateEvent });
                }
                Err(_) => return Err(Invariant::Faults),
            }
            self.core.handle_readable(channel);
        }
        self.look(seen);
        Ok(true)
    }

    pub(super) fn happen(&mut self, scene: &Scene, seen: &Seen, id: IdKey, kind: CmEvent) -> Result<(), Invariant> {
        let _ = seen;
        let happenings = self.environment.device.happenings(id, scene.removal);
        let next = happenings.iter().find(|(other, _)| *other == kind).map_or(Kernel::Over, |&(_, next)| next);
        self.environment.children += u8::from(kind == CmEvent::ConnectRequest);
        self.next_tag += 1;
        let woken = self.environment.device.report(id, kind, next, self.next_tag)?;
        self.core.handle_readable(woken);
        Ok(())
    }

    pub(super) fn make_all(&mut self, seen: &Seen) -> Result<(), Invariant> {
        self.answer(seen)?;
        while self.call(seen, false)? {
            self.answer(seen)?;
        }
        self.look(seen);
        Ok(())
    }
}
