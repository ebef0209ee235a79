//! Checks that the end is reachable from every state, and further checks of a state.

use cmid_proto::{Request, State, Time};

use super::account::Account;
use super::invariant::Invariant;
use super::scene::Scene;
use super::witness::{Seen, Witness};
use super::world::{NOW, SOON, World};

impl World {
    /// Runs the driver and the application until there is no work left. The device reports nothing new.
    fn come_to_rest(&mut self, seen: &Seen) -> Result<(), Invariant> {
        for _ in 0..200 {
            self.follow(seen)?;
            let mut worked = self.read(seen)?;
            for home in self.homes() {
                worked |= self.deliver(seen, home)?;
            }
            self.look(seen);
            if !worked && !self.core.has_work() {
                return Ok(());
            }
        }
        Err(Invariant::NeverEnds)
    }

    /// Runs the state to its end. Reported events are delivered; after all acks and destroys, in either order,
    /// nothing remains.
    pub(super) fn end(mut self) -> Result<(), Invariant> {
        let seen = Seen::default();
        self.come_to_rest(&seen)?;
        if self.environment.device.unread() > 0 {
            return Err(Invariant::LosesWakeUp);
        }
        if self.environment.accounts.iter().any(Account::misses_event) {
            return Err(Invariant::LosesEvent);
        }
        let mut other = self.clone();
        self.ack_all(&seen)?;
        self.come_to_rest(&seen)?;
        self.destroy_all(&seen)?;
        self.be_gone(&seen)?;
        other.destroy_all(&seen)?;
        other.ack_all(&seen)?;
        other.be_gone(&seen)
    }

    /// Acks and destroys everything.
    fn be_gone(mut self, seen: &Seen) -> Result<(), Invariant> {
        self.come_to_rest(seen)?;
        if self.environment.accounts.iter().any(Account::has_open) {
            return Err(Invariant::NeverEnds);
        }
        for channel in core::mem::take(&mut self.environment.channels) {
            let begun = self.core.close_channel(channel).map_err(|_| Invariant::Leaks)?;
            self.environment.make(seen, None, begun)?.map_err(|_| Invariant::Faults)?;
        }
        self.core.check();
        let core = &self.core;
        let empty = (core.ids().count(), core.channels().count(), core.summary().groups) == (0, 0, 0)
            && core.poll_timeout().is_none();
        if empty && !core.has_work() && self.environment.accounts.is_empty() && self.environment.device.is_empty() {
            Ok(())
        } else {
            Err(Invariant::Leaks)
        }
    }

    fn ack_all(&mut self, seen: &Seen) -> Result<(), Invariant> {
        for at in 0..self.environment.accounts.len() {
            while self.environment.accounts[at].owed > 0 {
                self.ack(self.environment.accounts[at].id)?;
                self.follow(seen)?;
            }
        }
        Ok(())
    }

    fn destroy_all(&mut self, seen: &Seen) -> Result<(), Invariant> {
        // The application does not destroy an unknown id; the core must.
        let known = self.environment.accounts.iter().filter(|account| account.known);
        for id in known.map(|account| account.id).collect::<Vec<_>>() {
            let state = self.core.state(id);
            if state.is_some_and(|state| state != State::Destroying) {
                self.core
                    .would_refuse(NOW, id, &Request::Destroy, Time::NEVER)
                    .map_err(|_| Invariant::RefusesDestroy)?;
                self.submit(seen, id, Request::Destroy, Time::NEVER)?;
                self.follow(seen)?;
            }
        }
        Ok(())
    }

    /// Whether a request that is refused or begun and dropped changes nothing.
    pub(super) fn refusals_change_nothing(&self, scene: &Scene, seen: &Seen) -> bool {
        let mut core = self.core.clone();
        for account in &self.environment.accounts {
            for request in scene.requests(&self.core, account.id, account.role, &self.environment.channels) {
                let foretold = self.core.would_refuse(NOW, account.id, &request, SOON);
                let begun = core.begin(NOW, account.id, &request, SOON).map(drop);
                seen.note_if(begun.is_err(), Witness::Refused);
                if begun != foretold {
                    return false;
                }
            }
        }
        core == self.core
    }
}
