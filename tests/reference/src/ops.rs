//! Application, driver, device and clock are all hostile: any request, outcome, time, and event on any channel and
//! key, including those of another core. Faults are allowed.
//!
//! Two cores get these inputs, including keys, tokens and released ids of each other.

use std::collections::BTreeSet;

use cmid_proto::{
    AckToken, Call, ChannelKey, CmEvent, Core, Counters, EventKind, GroupKey, IdKey, Limits, READ_FAILURES_MAX,
    RawEvent, Released, Request, State, Time, Token,
};

use crate::input::Input;
use crate::say::say;
use crate::script;

/// Keys that are remembered, the newest first to be chosen from.
const REMEMBERED: usize = 16;

/// Runs the input; some inputs twice, because the same inputs must lead to the same core.
pub fn run(data: &[u8]) {
    let cores = play(data);
    if data.len().is_multiple_of(4) {
        assert!(cores == play(data), "the same inputs have led elsewhere");
    }
}

fn play(data: &[u8]) -> [Core; 2] {
    let mut input = Input::new(data);
    let limits = script::limits(&mut input);
    // With one number each takes the other's keys for its own.
    let other = Limits { core: Some((data.len() % 2) as u16), ..limits };
    let mut world = World::new([Core::new(limits), Core::new(other)]);
    while !input.is_over() {
        world.step(&mut input);
    }
    world.sides.map(|side| side.core)
}

struct World {
    sides: [Side; 2],
    now: Time,
    /// Keys that either core gave, stale ones included.
    ids: Vec<IdKey>,
    channels: Vec<ChannelKey>,
    groups: Vec<GroupKey>,
    /// Calls for either core to answer, once or more often.
    tokens: Vec<Token>,
    released: Vec<Released>,
}

struct Side {
    core: Core,
    /// Ack tokens, with the ids that they belong to.
    ack_tokens: Vec<(IdKey, AckToken)>,
    /// Ids that were to be destroyed without their acks.
    waived: BTreeSet<IdKey>,
    /// What the counters have been.
    before: Counters,
}

impl World {
    fn new(cores: [Core; 2]) -> Self {
        World {
            sides: cores.map(|core| Side {
                before: core.counters(),
                core,
                ack_tokens: Vec::new(),
                waived: BTreeSet::new(),
            }),
            now: Time(1),
            ids: Vec::new(),
            channels: Vec::new(),
            groups: Vec::new(),
            tokens: Vec::new(),
            released: Vec::new(),
        }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let at = usize::from(input.once_in(8));
        match input.below(20) {
            0 => self.channel(at, input),
            1 => self.create(at, input),
            2..=5 => self.submit(at, input),
            6 => self.take_calls(at),
            7..=9 => self.answer(at, input),
            10..=13 => self.event(at, input),
            14 | 15 => self.deliver(at, input),
            16 => self.ack(at, input),
            17 => self.pass(at, input),
            18 => self.hand_over(at, input),
            _ => self.readable(at, input),
        }
        self.sides[at].look();
    }

    fn id(&self, input: &mut Input<'_>) -> Option<IdKey> {
        if input.once_in(32) { IdKey::from_bits(input.any::<u64>()) } else { input.pick(&self.ids) }
    }

    fn some_channel(&self, input: &mut Input<'_>) -> Option<ChannelKey> {
        if input.once_in(32) { ChannelKey::from_bits(input.any::<u64>()) } else { input.pick(&self.channels) }
    }

    fn channel(&mut self, at: usize, input: &mut Input<'_>) {
        let side = &mut self.sides[at];
        if input.once_in(3) {
            let Some(key) = input.pick(&self.channels) else { return };
            let before = side.core.clone();
            if side.core.close_channel(key).is_err() {
                assert_eq!(side.core, before, "a channel was not closed and something changed");
            }
        } else if let Ok(key) = side.core.open_channel(script::acks(input)) {
            remember(&mut self.channels, key);
        }
    }

    fn create(&mut self, at: usize, input: &mut Input<'_>) {
        let home = if input.once_in(3) { None } else { self.some_channel(input) };
        let core = &mut self.sides[at].core;
        let before = core.clone();
        match core.create_id(home, script::port_space(input)) {
            Ok(id) => {
                say(|| format!("core {at}: creates {id} on {home:?}"));
                remember(&mut self.ids, id);
                core.channel(id).into_iter().for_each(|home| remember(&mut self.channels, home));
            }
            Err(_) => assert_eq!(*core, before, "no id was created and something changed"),
        }
    }

    fn submit(&mut self, at: usize, input: &mut Input<'_>) {
        let Some(id) = self.id(input) else { return };
        let request = script::request(input, &self.channels, &self.groups);
        let deadline = script::deadline(input, self.now);
        let core = &mut self.sides[at].core;
        let foretold = core.would_refuse(self.now, id, &request, deadline);
        say(|| format!("core {at}: {request:?} on {id} until {deadline:?}: {foretold:?}"));
        let is_short = core.compare_request(self.now, id, &request, deadline);
        assert!(foretold.is_ok() || !is_short, "{request:?} on {id} is refused and performed");
        let before = foretold.is_err().then(|| core.clone());
        assert_eq!(core.submit(self.now, id, request, deadline), foretold, "{request:?} on {id}");
        if request == Request::DestroyNow && foretold.is_ok() {
            self.sides[at].waived.insert(id);
        }
        let core = &mut self.sides[at].core;
        if let Some(before) = before {
            assert_eq!(*core, before, "{request:?} on {id} was refused and something changed");
        }
        core.device_channel(id).into_iter().for_each(|line| remember(&mut self.channels, line));
        for group in script::GROUPS.iter().filter_map(|&addr| core.group_at(id, addr)) {
            remember(&mut self.groups, group);
        }
    }

    fn take_calls(&mut self, at: usize) {
        let core = &mut self.sides[at].core;
        while let Some((token, call)) = core.poll_call() {
            let sends = matches!(call, Call::Connect { .. } | Call::Accept { .. } | Call::Reject { .. });
            assert!(sends || core.call_data(token).is_empty(), "private data with {call:?}");
            if let Call::OpenChannel { channel } = call {
                remember(&mut self.channels, channel);
            }
            say(|| format!("core {at}: call {call:?} as {token:?}"));
            self.tokens.push(token);
        }
    }

    /// Answers a call, perhaps not for the last time.
    fn answer(&mut self, at: usize, input: &mut Input<'_>) {
        if input.once_in(3) {
            self.take_calls(at);
        }
        let Some(token) = self.tokens.len().checked_sub(1 + input.below(self.tokens.len())) else { return };
        let keep = input.once_in(8);
        let token = if keep { self.tokens[token] } else { self.tokens.remove(token) };
        // A fault is as good as anything here.
        let outcome = script::outcome(input);
        let result = self.sides[at].core.handle_outcome(token, outcome);
        say(|| format!("core {at}: {token:?} returned {outcome:?}: {result:?}"));
    }

    fn event(&mut self, at: usize, input: &mut Input<'_>) {
        let Some(on) = self.some_channel(input) else { return };
        let child = self.sides[at].core.wants_event(on);
        let kind = CmEvent::from_code(input.below(24) as u32);
        let id = match child {
            Some(child) if kind == CmEvent::ConnectRequest && !input.once_in(8) => Some(child),
            Some(_) | None => self.id(input),
        };
        let Some(id) = id else { return };
        let listener = if kind == CmEvent::ConnectRequest || input.once_in(16) { self.id(input) } else { None };
        let raw = RawEvent {
            listener,
            status: [0, 0, 0, -110, 8, i32::MIN][input.below(6)],
            group: input.pick(&self.groups),
            private_data: script::private_data(input),
            ..RawEvent::new(id, kind)
        };
        let side = &mut self.sides[at];
        let (before, activity, line) = (side.core.ids(), side.core.activity(), side.core.device_channel(id));
        side.core.compare_event(on, &raw);
        let admission = side.core.handle_event(on, raw);
        say(|| format!("core {at}: {raw:?} on {on}: {admission:?}"));
        remember(&mut self.ids, id);
        if !matches!(admission, Ok(cmid_proto::Admission::Known | cmid_proto::Admission::Child(_))) {
            // A late event may show that a migration is done.
            let moved = admission == Ok(cmid_proto::Admission::Late) && side.core.device_channel(id) == Some(on);
            assert!(
                side.core.activity() == activity || (moved && line != Some(on)),
                "{raw:?} was not admitted, and is news"
            );
            // A request that cannot be answered brings an id, which is destroyed.
            let more = side.core.ids() - before;
            assert!(more == 0 || side.core.state(id) == Some(State::Destroying), "{raw:?} was not admitted");
        }
    }

    fn deliver(&mut self, at: usize, input: &mut Input<'_>) {
        let Some(on) = self.some_channel(input) else { return };
        let side = &mut self.sides[at];
        let Some(mut event) = side.core.poll_event(on) else { return };
        say(|| format!("core {at}: delivers {} of {} on {on}", event.kind, event.id));
        // None of these may panic, for any report of the device.
        let _ = (event.result(), event.kind.to_string());
        assert!(event.ack_token.is_none() || matches!(event.kind, EventKind::Cm(_)), "{event:?} is to be acked");
        let owner = event.listener.unwrap_or(event.id);
        side.ack_tokens.extend(event.ack_token.take().map(|ack_token| (owner, ack_token)));
        remember(&mut self.ids, event.id);
    }

    fn ack(&mut self, at: usize, input: &mut Input<'_>) {
        if self.sides[at].ack_tokens.is_empty() {
            return;
        }
        let which = input.below(self.sides[at].ack_tokens.len());
        let (owner, ack_token) = self.sides[at].ack_tokens.remove(which);
        let ack_token = self.given_to_the_other(at, ack_token);
        let side = &mut self.sides[at];
        // An id with events may turn out never to have been created.
        let is_owed = side.core.state(owner).is_some() && !side.waived.contains(&owner);
        let before = (!is_owed).then(|| side.core.clone());
        assert_eq!(side.core.ack(ack_token).is_ok(), is_owed, "an ack token of {owner}");
        assert!(before.is_none_or(|before| before == side.core), "an ack token was refused and something changed");
    }

    /// A core of another number gives an ack token back.
    fn given_to_the_other(&mut self, at: usize, ack_token: AckToken) -> AckToken {
        let other = &mut self.sides[1 - at].core;
        if other.number() == ack_token.owner().core() {
            return ack_token;
        }
        let before = other.clone();
        let refused = other.ack(ack_token).expect_err("an ack token of another core is refused");
        assert!(before == *other, "an ack token of another core was refused and something changed");
        refused.ack_token
    }

    /// Time passes, or runs backwards.
    fn pass(&mut self, at: usize, input: &mut Input<'_>) {
        let span = input.below(256) as u64;
        self.now = Time(if span < 240 { self.now.0.saturating_add(span) } else { self.now.0 - self.now.0 % span });
        let core = &mut self.sides[at].core;
        say(|| format!("core {at}: it is {:?}", self.now));
        core.handle_timeout(self.now);
        assert!(core.poll_timeout().is_none_or(|(due, _)| due > self.now), "a deadline lingers");
    }

    fn hand_over(&mut self, at: usize, input: &mut Input<'_>) {
        let give = input.once_in(2);
        let Some(id) = self.id(input) else { return };
        let core = &mut self.sides[at].core;
        let before = core.clone();
        if give {
            match core.release(id) {
                Ok((released, _)) => {
                    say(|| format!("core {at}: releases {id}"));
                    assert_eq!(Some(released.state()), before.state(id));
                    self.released.push(released);
                }
                Err(_) => assert_eq!(*core, before, "{id} was not released and something changed"),
            }
        } else if let Some(released) = self.released.pop() {
            match core.adopt(released) {
                Ok((id, channel)) => {
                    say(|| format!("core {at}: adopts {id} on {channel}"));
                    remember(&mut self.ids, id);
                    remember(&mut self.channels, channel);
                }
                Err((_, released)) => {
                    assert_eq!(*core, before, "an id was not adopted and something changed");
                    self.released.push(released);
                }
            }
        }
    }

    fn readable(&mut self, at: usize, input: &mut Input<'_>) {
        let choice = input.below(6);
        let Some(channel) = self.some_channel(input) else { return };
        let core = &mut self.sides[at].core;
        match choice {
            0 => core.handle_readable(channel),
            1 => {
                core.wait_for_room(channel);
                core.poll_child();
            }
            2 => {
                let had_work = core.has_work();
                let polled = core.poll_readable();
                assert!(had_work || polled.is_none(), "{polled:?} is to be read and was no work");
            }
            3 => self.fail_reads(at, channel, input),
            pauses => self.pause(at, channel, pauses == 4),
        }
    }

    /// Reads of a channel fail, at times so often that it counts as failed.
    fn fail_reads(&mut self, at: usize, channel: ChannelKey, input: &mut Input<'_>) {
        let core = &mut self.sides[at].core;
        let times = [1, READ_FAILURES_MAX - 1, READ_FAILURES_MAX][input.below(3)];
        say(|| format!("core {at}: {times} reads of {channel} fail"));
        for _ in 0..times {
            let (had_failed, is_there) = (core.has_failed(channel), core.has_channel(channel));
            let again = core.handle_unreadable(channel);
            assert_eq!(again, is_there && !core.has_failed(channel), "whether {channel} is read again");
            assert!(is_there || !core.has_failed(channel), "{channel} is gone and has failed");
            assert!(core.has_failed(channel) || !had_failed, "{channel} has failed no more");
        }
        assert!(!core.has_failed(channel) || core.wants_event(channel).is_none(), "{channel} has failed and is read");
    }

    fn pause(&mut self, at: usize, channel: ChannelKey, paused: bool) {
        let core = &mut self.sides[at].core;
        let before = core.clone();
        let done = if paused { core.pause_channel(channel) } else { core.resume_channel(channel) };
        say(|| format!("core {at}: {} {channel}: {done:?}", if paused { "pauses" } else { "resumes" }));
        if done.is_err() {
            assert_eq!(*core, before, "{channel} was not paused or resumed and something changed");
        } else {
            assert_eq!((core.is_paused(channel), core.has_failed(channel) && !paused), (paused, false), "{channel}");
            assert!(!paused || core.wants_event(channel).is_none(), "{channel} is paused and wants events");
        }
    }
}

impl Side {
    fn look(&mut self) {
        self.core.check();
        let (before, after) = (self.before, self.core.counters());
        let grew = [
            (before.late, after.late),
            (before.stray, after.stray),
            (before.faults, after.faults),
            (before.discarded, after.discarded),
        ];
        assert!(grew.iter().all(|(before, after)| before <= after), "counters shrink: {before:?}, then {after:?}");
        self.before = after;
        for id in self.core.id_keys() {
            // Readable or not, asking must do.
            let _ = (self.core.sync_result(id), self.core.sync_event(id), self.core.sync_open(id));
        }
    }
}

/// Puts a key in front; the oldest is forgotten.
fn remember<K: PartialEq>(keys: &mut Vec<K>, key: K) {
    if !keys.contains(&key) {
        keys.insert(0, key);
        keys.truncate(REMEMBERED);
    }
}
