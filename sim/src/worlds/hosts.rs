//! Hosts that crash, lose their power, stop for a time, start again.

use std::time::Duration;

use cmid_proto::Time;

use crate::worlds::program::{Node, Skew};
use crate::worlds::{Seat, World};

impl World {
    /// Ends the program of a host at once, as SIGKILL does: the kernel ends its connections, and peers see that.
    ///
    /// # Panics
    /// If there is no host with this name; so do the others of these methods.
    pub fn crash(&mut self, name: &str) {
        self.seat(name).crash();
    }

    /// Takes the power off a host: no message leaves it any more, and its disk loses what was not flushed ([`Disk`](crate::Disk)).
    /// Peers see nothing but silence.
    pub fn lose_power(&mut self, name: &str) {
        self.seat(name).lose_power();
    }

    /// Starts the program of a host again, which is ended first if it runs. The host has its power and its disk.
    pub fn restart(&mut self, name: &str) {
        self.seat(name).crash();
        let at = self.number(name);
        self.start(at);
    }

    /// As [`World::restart`], with an empty disk: the host was replaced.
    pub fn replace(&mut self, name: &str) {
        self.seat(name).crash();
        self.seat(name).node.disk.clear();
        self.restart(name);
    }

    /// Stops the program of a host for this time, as SIGSTOP does, or a thread that the system does not run. Its kernel and
    /// its device go on.
    pub fn pause(&mut self, name: &str, span: Duration) {
        let until = self.now().after(span);
        self.seat(name).pause(until);
    }

    /// Sets the clock of a host ahead of the world's, and its rate: `drift_ppm` millionths faster, or slower if negative.
    pub fn skew_clock(&mut self, name: &str, ahead: Duration, drift_ppm: i32) {
        let ahead = u64::try_from(ahead.as_nanos()).unwrap_or(u64::MAX);
        self.seat(name).node.skew.set(Skew { ahead, drift_ppm });
    }

    /// Whether the program of a host runs.
    #[must_use]
    pub fn runs(&self, name: &str) -> bool {
        self.at(name).program.is_some()
    }

    /// Whether the program of a host has ended with [`Turn::Done`](crate::Turn::Done).
    #[must_use]
    pub fn is_done(&self, name: &str) -> bool {
        self.at(name).is_done
    }

    /// Returns what the program of a host sees of it.
    #[must_use]
    pub fn node(&self, name: &str) -> &Node {
        &self.at(name).node
    }

    pub(super) fn start(&mut self, at: usize) {
        let now = self.now();
        let Some(seat) = self.seats.get_mut(at).filter(|seat| seat.program.is_none() && !seat.is_done) else { return };
        seat.node.host.set_link(true);
        seat.node.host.begin_process();
        seat.node.note("starts");
        seat.program = Some((seat.start)(&seat.node));
        let due = now.max(seat.paused_until);
        self.turn_at(at, due);
    }

    fn seat(&mut self, name: &str) -> &mut Seat {
        let at = self.number(name);
        &mut self.seats[at]
    }
}

impl Seat {
    pub(super) fn crash(&mut self) {
        if self.program.take().is_some() {
            self.node.note("crashes");
        }
    }

    pub(super) fn lose_power(&mut self) {
        // Nothing of the end of the process leaves the host.
        self.node.host.set_link(false);
        if self.program.take().is_some() {
            self.node.note("loses its power");
        }
        self.node.disk.lose_power();
    }

    pub(super) fn pause(&mut self, until: Time) {
        self.node.note("is paused");
        self.paused_until = self.paused_until.max(until);
    }
}
