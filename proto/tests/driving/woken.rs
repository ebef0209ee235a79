//! Random programs: a driver that sleeps has read all that it may read, and it does sleep.

use std::collections::{BTreeMap, BTreeSet};

use cmid_proto::{
    Acks, ChannelKey, CmEvent, Drive, Errno, Event, IdKey, Limits, Next, Poller, PortSpace, RawEvent, Time,
};
use fastrand::Rng;

use crate::device::Script;

/// A poller as epoll: a channel is ready after an event arrives, and after it is armed. Level-triggered it stays ready
/// until a wait finds it empty.
#[derive(Debug, Default)]
struct Epoll<const LEVEL: bool> {
    ready: BTreeSet<ChannelKey>,
    disarmed: BTreeSet<ChannelKey>,
}

impl<const LEVEL: bool, D> Poller<D> for Epoll<LEVEL> {
    fn is_level_triggered(&self) -> bool {
        LEVEL
    }

    fn add(&mut self, channel: ChannelKey, _: &D) -> Result<(), Errno> {
        self.ready.insert(channel);
        Ok(())
    }

    fn remove(&mut self, channel: ChannelKey, _: &D) {
        self.ready.remove(&channel);
        self.disarmed.remove(&channel);
    }

    fn arm(&mut self, channel: ChannelKey, _: &D) {
        assert!(LEVEL);
        self.disarmed.remove(&channel);
        self.ready.insert(channel);
    }

    fn disarm(&mut self, channel: ChannelKey, _: &D) {
        assert!(LEVEL && self.disarmed.insert(channel), "{channel} is disarmed twice");
    }
}

/// The number of programs.
const SEEDS: u64 = 40;
/// Channels are often full.
const LIMITS: Limits = Limits { ids: 7, channels: 16, events: 4, channel_events: 3, ..Limits::SINGLE };

/// A driver, its application and its device.
struct Program<const LEVEL: bool> {
    rng: Rng,
    drive: Drive<Script, Epoll<LEVEL>>,
    channels: Vec<ChannelKey>,
    ids: Vec<IdKey>,
    listener: IdKey,
    /// An id that is destroyed.
    gone: IdKey,
    /// The number of events of each id that have arrived at the device, and of those that are taken.
    sent: BTreeMap<IdKey, i32>,
    taken: BTreeMap<IdKey, i32>,
    /// The number of requests that have arrived and are not taken.
    requests: usize,
}

impl<const LEVEL: bool> Program<LEVEL> {
    fn new(seed: u64) -> Self {
        let mut drive = Drive::with(Script::new(), Epoll::default(), (), LIMITS);
        let channels: Vec<_> = (0..3).map(|_| drive.open_channel(Acks::OnDelivery).unwrap()).collect();
        let gone = drive.create_id(Some(channels[0]), PortSpace::Tcp).unwrap();
        drive.destroy(gone, Time::NEVER).unwrap();
        let mut ids: Vec<_> =
            channels.iter().map(|&channel| drive.create_id(Some(channel), PortSpace::Tcp).unwrap()).collect();
        ids.push(drive.create_id(None, PortSpace::Tcp).unwrap());
        let listener = ids[0];
        drive.listen(listener, 2).unwrap();
        let [sent, taken] = [(); 2].map(|()| ids.iter().map(|&id| (id, 0)).collect());
        Program { rng: Rng::with_seed(seed), drive, channels, ids, listener, gone, sent, taken, requests: 0 }
    }

    fn channel(&mut self) -> ChannelKey {
        let all: Vec<_> = self.drive.core().channels().collect();
        all[self.rng.usize(..all.len())]
    }

    fn arrives(&mut self, on: ChannelKey, raw: RawEvent<&'static [u8]>) {
        self.drive.device_mut().events.push_back((on, raw));
        self.wakes(on);
    }

    fn wakes(&mut self, on: ChannelKey) {
        self.drive.poller_mut().ready.insert(on);
    }

    fn takes(&mut self, event: &Event) {
        if event.listener.is_some() {
            self.requests -= 1;
            self.drive.destroy(event.id, Time::NEVER).unwrap();
            return;
        }
        let taken = self.taken.get_mut(&event.id).unwrap();
        *taken += 1;
        assert_eq!(event.status, *taken, "the events of an id are in order");
    }

    fn asks(&mut self, channel: ChannelKey) -> bool {
        let event = self.drive.next_event(channel);
        if let Some(event) = &event {
            self.takes(event);
        }
        event.is_some()
    }

    fn migrates(&mut self, id: IdKey, to: Option<ChannelKey>) {
        let from = self.drive.core().device_channel(id).unwrap();
        if self.drive.migrate(id, to, Time::NEVER).is_err() {
            return;
        }
        let now = self.drive.core().device_channel(id).unwrap();
        // The device moves the events, and wakes nobody.
        for (channel, raw) in &mut self.drive.device_mut().events {
            if raw.id == id {
                assert_eq!(*channel, from);
                *channel = now;
            }
        }
    }

    /// Destroys an id and creates another one. The device discards its events.
    fn replaces(&mut self, id: IdKey) {
        if id == self.listener {
            return;
        }
        self.drive.destroy(id, Time::NEVER).unwrap();
        self.drive.device_mut().events.retain(|(_, raw)| raw.id != id);
        let on = self.rng.choice(&self.channels).copied().filter(|_| self.rng.bool());
        let new = self.drive.create_id(on, PortSpace::Tcp).unwrap();
        for counts in [&mut self.sent, &mut self.taken] {
            counts.remove(&id);
            counts.insert(new, 0);
        }
        self.ids.iter_mut().filter(|it| **it == id).for_each(|it| *it = new);
    }

    fn has_unread(&self, channel: ChannelKey) -> bool {
        let device = self.drive.device();
        device.requests.is_some_and(|(on, _, left)| on == channel && left > 0)
            || device.events.iter().any(|(on, _)| *on == channel)
    }

    /// Waits. Returns false if no channel is reported.
    fn waits(&mut self) -> bool {
        let poller = self.drive.poller();
        let reported: Vec<_> =
            poller.ready.difference(&poller.disarmed).copied().filter(|&channel| self.has_unread(channel)).collect();
        let poller = self.drive.poller_mut();
        poller.ready.clear();
        if LEVEL {
            poller.ready.extend(&reported);
        }
        reported.iter().for_each(|&channel| self.drive.readable(channel));
        !reported.is_empty()
    }

    fn step(&mut self) {
        let (id, channel) = (self.ids[self.rng.usize(..self.ids.len())], self.channel());
        let app_channel = self.channels[self.rng.usize(..self.channels.len())];
        match self.rng.u8(..22) {
            0..=4 => {
                let sent = self.sent.get_mut(&id).unwrap();
                *sent += 1;
                let raw = RawEvent { status: *sent, ..RawEvent::new(id, CmEvent::AddrChange) };
                self.arrives(self.drive.core().device_channel(id).unwrap(), raw);
            }
            5 => self.arrives(channel, RawEvent::new(self.gone, CmEvent::AddrChange)),
            6 => self.drive.pause_channel(channel).unwrap(),
            7 => self.drive.resume_channel(channel).unwrap(),
            8..=10 => _ = self.asks(channel),
            11..=13 => _ = self.drive.run(self.rng.usize(..4)),
            14 => self.migrates(id, Some(app_channel)),
            15 => self.migrates(id, None),
            16..=17 => _ = self.waits(),
            18 => {
                let on = self.drive.core().device_channel(self.listener).unwrap();
                let left = self.drive.device().unread();
                self.drive.device_mut().requests = Some((on, self.listener, left + 1));
                self.requests += 1;
                self.wakes(on);
            }
            19 => self.drive.device_mut().unreadable = Some(Errno::EIO),
            20 => self.drive.device_mut().broken = self.rng.bool().then_some((channel, Errno::EBADF)),
            _ => self.replaces(id),
        }
        self.drive.core().check();
    }

    /// Runs until the driver sleeps. The application takes all that it can take.
    fn sleeps(&mut self) {
        let mut vain = 0;
        for _ in 0..1000 {
            let before = (self.drive.device().reads, self.drive.core().activity());
            let next = self.drive.run(2);
            let channels: Vec<_> = self.drive.core().channels().collect();
            let mut is_any = false;
            for channel in channels {
                // An event of an id in synchronous mode need not be a reason to run the application.
                if next == Next::Deliver || self.drive.core().channel_info(channel).is_some_and(|it| it.is_private) {
                    is_any |= self.asks(channel);
                }
            }
            let is_vain = !is_any && before == (self.drive.device().reads, self.drive.core().activity());
            vain = if is_vain && next != Next::Wait(None) { vain + 1 } else { 0 };
            assert!(vain < 3, "{next:?} for nothing");
            if !is_any && next == Next::Wait(None) && !self.waits() {
                return;
            }
        }
        panic!("the driver does not sleep");
    }

    /// Asserts that only channels stay unread that are not to be read, and that nothing is lost.
    fn check(&mut self) {
        self.sleeps();
        let core = self.drive.core();
        // What waits on a paused channel for the application may be a whole backlog.
        let is_held = |channel| {
            let homes = core.ids().filter(|&id| core.device_channel(id) == Some(channel));
            homes.filter_map(|id| core.channel(id)).any(|home| core.channel_info(home).is_some_and(|it| it.is_paused))
        };
        for channel in core.channels().filter(|&channel| self.has_unread(channel)) {
            let is_known = core.channel_info(channel).is_some_and(|it| it.is_paused)
                || core.channel_info(channel).is_some_and(|it| it.has_failed)
                || is_held(channel);
            assert!(is_known, "{channel} is forgotten");
        }
        self.drive.device_mut().broken = None;
        let all: Vec<_> = self.drive.core().channels().collect();
        all.iter().for_each(|&channel| self.drive.resume_channel(channel).unwrap());
        self.sleeps();
        assert!(!all.iter().any(|&channel| self.has_unread(channel)));
        assert_eq!((&self.sent, self.requests), (&self.taken, 0));
    }
}

fn all_is_read<const LEVEL: bool>() {
    for seed in 0..SEEDS {
        let mut program = Program::<LEVEL>::new(seed);
        for _ in 0..8 {
            (0..30).for_each(|_| program.step());
            program.check();
        }
    }
}

#[test]
fn a_driver_with_a_level_triggered_poller_forgets_no_channel_and_sleeps() {
    all_is_read::<true>();
}

#[test]
fn a_driver_with_an_edge_triggered_poller_forgets_no_channel_and_sleeps() {
    all_is_read::<false>();
}
