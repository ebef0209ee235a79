//! Faults: crashes, ends of connections, partitions.

use std::time::Duration;

use super::{Choices, Event, World};

impl<C: Choices> World<C> {
    pub(super) fn has_faults(&self) -> bool {
        self.now < self.size.faults
    }

    pub(super) fn fault(&mut self) {
        if !self.has_faults() {
            return;
        }
        let replicas = self.size.replicas;
        let kind = self.choices.below(5);
        let at = self.choices.below(replicas as u64) as usize;
        let closed = Duration::from_millis(self.choices.below(800));
        let leader = (0..replicas).find(|&at| {
            let machine = self.hosts[at].machine.as_ref();
            machine.is_some_and(|machine| machine.leader() == Some(at))
        });
        match kind {
            0 => {}
            1 => self.crash(at),
            2 => self.crash(leader.unwrap_or(at)),
            3 => self.disconnect(at, (at + 1) % replicas, closed),
            _ => {
                let at = leader.unwrap_or(at);
                (0..replicas).filter(|&peer| peer != at).for_each(|peer| self.disconnect(at, peer, closed));
            }
        }
        self.schedule(50, 500, Event::Fault);
    }
}
