//! Application, driver, device and clock are all hostile: any request, outcome, time, and event on any channel and
//! key, including those of another core. Calls that follow from earlier steps are made late. Faults are allowed.
//!
//! Two cores get these inputs, including keys, ack tokens and released ids of each other.

use std::collections::BTreeSet;

use cmid_proto::info::Counters;
use cmid_proto::{
    AckToken, Admission, Begun, Call, ChannelKey, CmEvent, Core, Error, ErrorWith, EventKind, Flow, GroupKey, IdKey,
    Limits, Progress, RawEvent, Released, Request, State, Time,
};

use crate::input::Input;
use crate::say::say;
use crate::{script, taken};

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
                before: core.summary().counters,
                core,
                ack_tokens: Vec::new(),
                waived: BTreeSet::new(),
            }),
            now: Time(1),
            ids: Vec::new(),
            channels: Vec::new(),
            groups: Vec::new(),
            released: Vec::new(),
        }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let at = usize::from(input.once_in(8));
        match input.below(20) {
            0 => self.channel(at, input),
            1 => self.create(at, input),
            2..=7 => self.submit(at, input),
            8 | 9 => self.follow(at, input),
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
        let core = &mut self.sides[at].core;
        let before = core.clone();
        if input.once_in(3) {
            let Some(key) = input.pick(&self.channels) else { return };
            drop(core.close_channel(key));
            assert_eq!(*core, before, "a channel was not closed and something changed");
            if let Ok(begun) = core.close_channel(key) {
                let _ = make(at, begun, &mut self.channels, input);
                assert!(core.channel_info(key).is_none(), "{key} was closed");
            }
        } else {
            let acks = script::acks(input);
            drop(core.open_channel(acks));
            assert_eq!(*core, before, "no channel was opened and something changed");
            if let Ok((key, begun)) = core.open_channel(acks) {
                let result = make(at, begun, &mut self.channels, input);
                assert_eq!(core.channel_info(key).is_some(), result.is_ok(), "{key}: {result:?}");
                assert!(result.is_ok() || *core == before, "no channel was opened and something changed");
            }
        }
    }

    fn create(&mut self, at: usize, input: &mut Input<'_>) {
        let home = if input.once_in(3) { None } else { self.some_channel(input) };
        let port_space = script::port_space(input);
        let core = &mut self.sides[at].core;
        let before = core.clone();
        drop(core.create_id(home, port_space));
        assert_eq!(*core, before, "no id was created and something changed");
        let Ok((id, begun)) = core.create_id(home, port_space) else { return };
        say(|| format!("core {at}: creates {id} on {home:?}"));
        let result = make(at, begun, &mut self.channels, input);
        assert_eq!(core.state(id), result.is_ok().then_some(State::Idle), "{id}: {result:?}");
        assert!(result.is_ok() || home.is_none() || *core == before, "no id was created and something changed");
        if result.is_ok() {
            remember(&mut self.ids, id);
        }
    }

    fn submit(&mut self, at: usize, input: &mut Input<'_>) {
        let Some(id) = self.id(input) else { return };
        let request = script::request(input, &self.channels, &self.groups);
        let deadline = script::deadline(input, self.now);
        let core = &mut self.sides[at].core;
        let foretold = core.would_refuse(self.now, id, &request, deadline);
        say(|| format!("core {at}: {request:?} on {id} until {deadline:?}: {foretold:?}"));
        let before = core.clone();
        // What is begun is dropped here.
        let calls = core.begin(self.now, id, &request, deadline).map(|begun| begun.call().is_some());
        assert_eq!(calls.map(drop), foretold, "{request:?} on {id}");
        assert!(calls.is_err() || core.state(id).is_some(), "{request:?} on {id}, which is not of this core, is taken");
        assert_eq!(*core, before, "{request:?} on {id} was refused or not made, and something changed");
        if let Ok(calls) = calls {
            let begun = core.begin(self.now, id, &request, deadline).expect("nothing has changed");
            let result = make(at, begun, &mut self.channels, input);
            say(|| format!("core {at}: {request:?} on {id} has ended: {result:?}"));
            let waits = result == Ok(Progress::WhenAcked);
            assert!(!waits || !calls, "{request:?} on {id} waits for acks, and a call was made");
            assert!(calls || result.is_ok(), "{request:?} on {id} has failed without a call: {result:?}");
        }
        if request == Request::DestroyNow && calls.is_ok() {
            self.sides[at].waived.insert(id);
        }
        let core = &self.sides[at].core;
        core.device_channel(id).into_iter().for_each(|line| remember(&mut self.channels, line));
        for group in script::GROUPS.iter().filter_map(|&addr| core.group_at(id, addr)) {
            remember(&mut self.groups, group);
        }
    }

    /// Makes a call that follows from earlier steps, or all of them.
    fn follow(&mut self, at: usize, input: &mut Input<'_>) {
        let all = input.once_in(2);
        let core = &mut self.sides[at].core;
        loop {
            let call = core.next().and_then(|begun| begun.call());
            let before = core.clone();
            let Some(begun) = core.next() else {
                assert!(call.is_none(), "{call:?} was due and is not");
                return;
            };
            assert_eq!(begun.call(), call, "the call that was not made is due again");
            assert_eq!(*begun.core(), before, "a call was not made and something changed");
            let result = make(at, begun, &mut self.channels, input);
            assert!(matches!(result, Ok(_) | Err(Error::Fault(_))), "no request waits for it: {result:?}");
            if !all {
                return;
            }
        }
    }

    fn child(&mut self, at: usize, input: &mut Input<'_>) {
        if let Some(begun) = self.sides[at].core.next_child() {
            assert!(matches!(begun.call(), Some(Call::Destroy { .. })), "{:?}", begun.call());
            let result = make(at, begun, &mut self.channels, input);
            assert!(matches!(result, Ok(_) | Err(Error::Fault(_))), "no request waits for it: {result:?}");
        }
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
        let (before, activity) = (side.core.ids().count(), side.core.activity());
        taken::compare(&side.core, on, raw);
        let admission = side.core.handle_event(on, raw);
        say(|| format!("core {at}: {raw:?} on {on}: {admission:?}"));
        remember(&mut self.ids, id);
        if !matches!(admission, Ok(Admission::Known | Admission::Child(_))) {
            assert_eq!(side.core.activity(), activity, "{raw:?} was not admitted, and is news");
            // A request that cannot be answered brings an id, which is destroyed.
            let more = side.core.ids().count() - before;
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
        let is_owed = side.core.state(owner).is_some() && !side.waived.contains(&owner);
        let before = (!is_owed).then(|| side.core.clone());
        assert_eq!(side.core.ack(ack_token).is_ok(), is_owed, "an ack token of {owner}");
        assert!(before.is_none_or(|before| before == side.core), "an ack token was refused and something changed");
    }

    /// A core of another number gives an ack token back.
    fn given_to_the_other(&mut self, at: usize, ack_token: AckToken) -> AckToken {
        let other = &mut self.sides[1 - at].core;
        if other.channels().any(|channel| channel.core() == ack_token.owner().core()) {
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
                Err(ErrorWith { given: released, .. }) => {
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
                self.child(at, input);
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
        let times = [1, Limits::READ_FAILURES_MAX - 1, Limits::READ_FAILURES_MAX][input.below(3)];
        say(|| format!("core {at}: {times} reads of {channel} fail"));
        for _ in 0..times {
            let (had_failed, is_there) =
                (core.channel_info(channel).is_some_and(|it| it.has_failed), core.channel_info(channel).is_some());
            let again = core.handle_unreadable(channel);
            assert_eq!(
                again,
                is_there && !core.channel_info(channel).is_some_and(|it| it.has_failed),
                "whether {channel} is read again"
            );
            assert!(
                is_there || !core.channel_info(channel).is_some_and(|it| it.has_failed),
                "{channel} is gone and has failed"
            );
            assert!(
                core.channel_info(channel).is_some_and(|it| it.has_failed) || !had_failed,
                "{channel} has failed no more"
            );
        }
        assert!(
            !core.channel_info(channel).is_some_and(|it| it.has_failed) || core.wants_event(channel).is_none(),
            "{channel} has failed and is read"
        );
    }

    fn pause(&mut self, at: usize, channel: ChannelKey, paused: bool) {
        let core = &mut self.sides[at].core;
        let before = core.clone();
        let done = if paused { core.pause_channel(channel) } else { core.resume_channel(channel) };
        say(|| format!("core {at}: {} {channel}: {done:?}", if paused { "pauses" } else { "resumes" }));
        if done.is_err() {
            assert_eq!(*core, before, "{channel} was not paused or resumed and something changed");
        } else {
            assert_eq!(
                (
                    core.channel_info(channel).is_some_and(|it| it.is_paused),
                    core.channel_info(channel).is_some_and(|it| it.has_failed) && !paused
                ),
                (paused, false),
                "{channel}"
            );
            assert!(!paused || core.wants_event(channel).is_none(), "{channel} is paused and wants events");
        }
    }
}

impl Side {
    fn look(&mut self) {
        self.core.check();
        let (before, after) = (self.before, self.core.summary().counters);
        let grew = [
            (before.late, after.late),
            (before.stray, after.stray),
            (before.faults, after.faults),
            (before.discarded, after.discarded),
        ];
        assert!(grew.iter().all(|(before, after)| before <= after), "counters shrink: {before:?}, then {after:?}");
        self.before = after;
        for id in self.core.ids() {
            // Readable or not, asking must do.
            let _ = (
                self.core.sync_result(id),
                self.core.sync_event(id),
                self.core.id_info(id).and_then(|it| it.sync_open),
            );
        }
    }
}

/// Makes the calls of a request, with any outcomes.
fn make(
    at: usize,
    mut begun: Begun<'_, '_>,
    channels: &mut Vec<ChannelKey>,
    input: &mut Input<'_>,
) -> Result<Progress, Error> {
    loop {
        let call = begun.call();
        let sends = matches!(call, Some(Call::Connect { .. } | Call::Accept { .. } | Call::Reject { .. }));
        assert!(sends || begun.private_data().is_empty(), "private data with {call:?}");
        if let Some(Call::OpenChannel { channel }) = call {
            remember(channels, channel);
        }
        let outcome = if call.is_some() { script::outcome(input) } else { Ok(()) };
        say(|| format!("core {at}: call {call:?}: {outcome:?}"));
        match begun.end(outcome) {
            Flow::Next(next) => begun = next,
            Flow::Done(result) => return result,
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
