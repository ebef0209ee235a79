//! Hosts on one kernel: their steps, and the end of a run.

use std::collections::BTreeSet;

use cmid_proto::{ChannelKey, CmEvent, Errno, IdKey, Limits, Request, State, Time};

use super::app::DetachedId;
use super::happening::Happening;
use super::host::Host;
use super::kernel::{Kernel, No};
use crate::input::Input;
use crate::say::say;
use crate::script;

/// Errnos of external failures.
const REFUSALS: [Errno; 3] = [Errno::ENOMEM, Errno::ENETUNREACH, Errno::EADDRNOTAVAIL];

/// Everything must be gone after so many rounds, and one more for each id to be taken in; a round is over after so
/// many steps.
const ROUNDS: usize = 8;
const STEPS: usize = 10_000;

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) kernel: Kernel,
    pub(crate) hosts: Vec<Host>,
    pub(crate) released_id: Vec<DetachedId>,
    /// The states of ids, after each step.
    pub(crate) seen: BTreeSet<State>,
    now: Time,
}

impl World {
    pub(crate) fn new(hosts: usize, limits: Limits) -> Self {
        say(|| format!("{hosts} hosts with {limits:?}"));
        World {
            kernel: Kernel::default(),
            hosts: (0..hosts).map(|at| Host::new(limits, at as u32 * 1_000_000)).collect(),
            released_id: Vec::new(),
            seen: BTreeSet::new(),
            now: Time(1),
        }
    }

    /// After every step.
    pub(crate) fn look(&mut self) {
        for host in &mut self.hosts {
            host.wake(&self.kernel);
            host.compare(&self.kernel);
            self.seen.extend(host.core.ids().filter_map(|id| host.core.state(id)));
        }
        // A host that was not woken has to look for itself.
        self.kernel.wakes.clear();
    }

    pub(crate) fn some_id(&self, at: usize, input: &mut Input<'_>) -> Option<IdKey> {
        // Ids known to the application: that of a request becomes known with its event.
        let host = &self.hosts[at];
        let unheard = |id: &IdKey| {
            let mut letters = host.ledger.undelivered();
            letters.any(|letter| letter.kind == CmEvent::ConnectRequest && letter.id == *id)
        };
        let known: Vec<_> = host.core.ids().filter(|id| !unheard(id) && !self.is_nobodys(at, *id)).collect();
        input.pick(&known)
    }

    /// Whether the core destroys an id by itself, because its request was never delivered.
    fn is_nobodys(&self, at: usize, id: IdKey) -> bool {
        let host = &self.hosts[at];
        host.core.state(id) == Some(State::Destroying) && !host.ledger.homes.contains_key(&id)
    }

    pub(crate) fn some_channel(&self, at: usize, input: &mut Input<'_>) -> Option<ChannelKey> {
        input.pick(&self.hosts[at].open)
    }

    /// Closes a channel of the application.
    pub(crate) fn close(&mut self, at: usize, input: &mut Input<'_>) {
        if let Some(channel) = self.some_channel(at, input) {
            self.hosts[at].close_channel(&mut self.kernel, channel);
        }
    }

    /// A channel on which the device may report something.
    pub(crate) fn some_line(&self, at: usize, input: &mut Input<'_>) -> Option<ChannelKey> {
        if input.once_in(2) {
            self.some_channel(at, input)
        } else {
            self.some_id(at, input).and_then(|id| self.hosts[at].core.device_channel(id))
        }
    }

    /// A channel on which something may be delivered.
    pub(crate) fn some_home(&self, at: usize, input: &mut Input<'_>) -> Option<ChannelKey> {
        if input.once_in(4) {
            self.some_channel(at, input)
        } else {
            self.some_id(at, input).and_then(|id| self.hosts[at].core.channel(id))
        }
    }

    /// Submits any request.
    pub(crate) fn request(&mut self, at: usize, input: &mut Input<'_>) {
        let Some(id) = self.some_id(at, input) else { return };
        let host = &mut self.hosts[at];
        let groups: Vec<_> = script::GROUPS.iter().filter_map(|&addr| host.core.group_at(id, addr)).collect();
        let request = script::request(input, &host.open, &groups);
        let deadline = script::deadline(input, host.now);
        host.submit(&mut self.kernel, id, request, deadline);
    }

    /// One of the next calls fails, or none.
    pub(crate) fn trouble(&mut self, at: usize, input: &mut Input<'_>) {
        let errno = if input.once_in(3) { None } else { input.pick(&REFUSALS) };
        self.hosts[at].refuse(input.below(4), errno);
    }

    /// Applies an external event to an id.
    pub(crate) fn happen(&mut self, at: usize, input: &mut Input<'_>) {
        let Some(no) = self.some_id(at, input).and_then(|id| self.hosts[at].device.ids.get(&id).copied()) else {
            return;
        };
        let possible = self.kernel.possible(no);
        if let Some(what) = input.pick(&possible) {
            self.happen_to(no, what);
        }
    }

    pub(crate) fn happen_to(&mut self, no: No, what: Happening) {
        say(|| format!("{what:?} to {:?}", self.kernel.id(no).key));
        self.kernel.happen(no, what);
    }

    pub(crate) fn read(&mut self, at: usize) -> bool {
        self.hosts[at].read(&mut self.kernel)
    }

    pub(crate) fn pass(&mut self, span: u64) {
        self.now = Time(self.now.0 + span);
        say(|| format!("it is {:?}", self.now));
        for host in &mut self.hosts {
            host.pass(&mut self.kernel, self.now);
        }
    }

    pub(crate) fn release(&mut self, at: usize, id: IdKey) {
        let core = &self.hosts[at].core;
        if core.id_info(id).is_some_and(|it| it.is_sync) {
            // What is on a listener's channel leaves it first.
            let with_it = |&child: &IdKey| child != id && core.device_channel(child) == core.device_channel(id);
            let away =
                |child| Some((child, core.channel(child).filter(|&home| Some(home) != core.device_channel(id))?));
            let away: Vec<_> = core.ids().filter(with_it).filter_map(away).collect();
            for (child, home) in away {
                self.hosts[at].submit(&mut self.kernel, child, Request::Migrate { to: Some(home) }, Time::NEVER);
            }
            self.look();
        }
        self.released_id.extend(self.hosts[at].release(id));
    }

    pub(crate) fn adopt(&mut self, at: usize) {
        let Some(released_id) = self.released_id.pop() else { return };
        if let Some(released_id) = self.hosts[at].adopt(&mut self.kernel, released_id) {
            self.released_id.insert(0, released_id);
        }
    }

    /// Reads, takes and acks all events; no call fails.
    pub(crate) fn settle(&mut self) {
        for host in &mut self.hosts {
            host.refuse(0, None);
            host.be_late(&mut self.kernel, false);
        }
        self.look();
        for step in 0.. {
            assert!(step < STEPS, "it does not come to rest");
            let mut any = false;
            for at in 0..self.hosts.len() {
                any |= self.read(at);
                any |= self.hosts[at].ack(&mut self.kernel, 0);
                let mut homes = self.hosts[at].open.clone();
                homes.extend(self.hosts[at].ledger.homes.values());
                for channel in homes {
                    any |= self.hosts[at].take_event(channel);
                }
            }
            self.look();
            if !any {
                break;
            }
        }
        for host in &self.hosts {
            for (&channel, file) in &host.device.files {
                let unread = self.kernel.files[file].len();
                let wanted = host.core.wants_event(channel).is_some();
                assert!(unread == 0 || !wanted, "{unread} events on {channel} and no read is requested");
            }
            for id in host.core.ids() {
                // Only an id that has listened has its own channel at the device. The ids of its requests are on it
                // too.
                let (home, line) = (host.core.channel(id), host.core.device_channel(id));
                let apart = line.is_some_and(|line| host.core.channel_info(line).is_some_and(|it| it.is_private))
                    || host.unmoved.contains(&id);
                assert!(home == line || apart, "{id} is at {home:?} and the device has it at {line:?}");
            }
            assert_eq!(host.ledger.undelivered().count(), 0, "undelivered: {:?}", host.ledger);
            host.requests.assert_told();
        }
    }

    /// Ends the run: answers, takes, acks, destroys and closes everything. Nothing may remain, on either side.
    pub(crate) fn rest(mut self) {
        say(|| "it comes to rest".to_owned());
        self.hosts.iter_mut().for_each(Host::resume);
        self.settle();
        let most = ROUNDS + self.released_id.len();
        for round in 0.. {
            assert!(round < most, "it does not come to an end");
            for at in 0..self.hosts.len() {
                self.adopt(at);
                let ids: Vec<_> = self.hosts[at].core.ids().collect();
                for id in ids {
                    self.hosts[at].submit(&mut self.kernel, id, Request::Destroy, Time::NEVER);
                }
            }
            self.settle();
            for host in &mut self.hosts {
                for channel in host.open.clone() {
                    host.close_channel(&mut self.kernel, channel);
                }
            }
            self.settle();
            let over = |host: &Host| host.core.ids().count() == 0 && host.core.channels().count() == 0;
            if self.released_id.is_empty() && self.hosts.iter().all(over) {
                break;
            }
        }
        for host in &mut self.hosts {
            assert_eq!(host.core.summary().groups, 0, "memberships are left");
            assert_eq!((host.core.poll_timeout(), host.core.next().is_none()), (None, true));
            assert_eq!((host.core.poll_readable(), host.core.has_work()), (None, false));
            let device = &host.device;
            assert!(device.ids.is_empty() && device.files.is_empty(), "the device has kept {device:?}");
            host.requests.assert_none_open();
        }
        assert!(self.kernel.ids.is_empty(), "the kernel has kept {:?}", self.kernel.ids);
        assert!(self.kernel.files.is_empty(), "the kernel has kept {:?}", self.kernel.files);
    }
}
