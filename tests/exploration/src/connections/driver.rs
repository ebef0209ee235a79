//! The steps of the driver and of the device: the contract of `cmid_proto`.

use cmid_model::one_host::Happening;
use cmid_proto::{Admission, CmEvent, IdKey, RawEvent};

use super::account::Account;
use super::invariant::Invariant;
use super::scene::Role;
use super::witness::{Seen, Witness};
use super::world::World;

impl World {
    /// The driver destroys the id of a request that was not delivered, or reads the next channel: steps 3 to 5 of the
    /// contract.
    pub(super) fn read(&mut self, seen: &Seen) -> Result<bool, Invariant> {
        if let Some(begun) = self.core.next_child() {
            self.environment.make(seen, None, begun)?.map_err(|_| Invariant::Faults)?;
            return Ok(true);
        }
        let Some(channel) = self.core.poll_readable() else { return Ok(false) };
        let Some(child) = self.core.wants_event(channel) else {
            seen.note(Witness::NoRoom);
            self.core.wait_for_room(channel);
            return Ok(true);
        };
        if let Some(raw) = self.environment.device.fetch(channel, child) {
            self.next_tag += 1;
            let raw = RawEvent { status: self.next_tag, ..raw };
            match self.core.handle_event(channel, raw) {
                Ok(Admission::Known) => {
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
        Ok(true)
    }

    pub(super) fn happen(&mut self, id: IdKey, what: Happening) {
        self.environment.children += u8::from(what == Happening::Request);
        for woken in self.environment.device.happen(id, what) {
            self.core.handle_readable(woken);
        }
    }
}
