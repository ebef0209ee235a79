//! Runs a recording through a new core. Each input leads to steps as those of a drive, whose lines are compared with the
//! recorded ones.

use std::collections::HashMap;

use cmid_proto::{
    AckToken, Begun, Call, ChannelKey, Core, Errno, Error, Event, Fault, Flow, IdKey, Outcome, RawEvent, Refused,
    Released, State, Step, Target, Time,
};

use crate::line::{Input, Line, with_data};
use crate::parts::Parts;
use crate::read::{Recording, Wrong};
use crate::transition::{Arrow, Transition, arrow, text};
use crate::words::{event, shown};

/// Released ids that are not adopted yet, by the number of the release.
type Between = HashMap<u64, Released>;

/// The last call of a request, its outcome, and the fault that it is.
type Last = (Call, Outcome, Option<Fault>);

/// Called with each step.
type See<'s> = &'s mut dyn FnMut(&Transition);

/// The replay of one recording.
struct Replay<'a> {
    tape: Tape<'a>,
    core: Core,
    /// The channel that is being read.
    reads: Option<ChannelKey>,
    /// The event that the last line has returned.
    taken: Option<Event>,
    /// Ack tokens of delivered events that are not acked yet.
    ack_tokens: Vec<AckToken>,
}

/// The recorded lines.
struct Tape<'a> {
    lines: &'a [Line<'a>],
    /// The number of replayed lines, without the first of the file.
    done: usize,
    now: Time,
    /// The states of ids that were shown last.
    shown: HashMap<IdKey, State>,
}

/// Replays recordings together, because one may adopt ids that another releases. Calls `see` with the index of the
/// recording and each step. Returns the cores after the last lines.
///
/// # Errors
/// At the first line that the core does not follow.
pub fn replay(recordings: &[Recording], mut see: impl FnMut(usize, &Transition)) -> Result<Vec<Core>, Wrong> {
    let mut between = Between::default();
    let mut replays: Vec<_> = recordings.iter().map(Replay::new).collect();
    loop {
        let (mut stirred, mut waiting) = (false, None);
        for (which, replay) in replays.iter_mut().enumerate() {
            let done = replay.tape.done;
            let waits = replay
                .run(&mut between, &mut |step| see(which, step))
                .map_err(|wrong| Wrong { recording: which, ..wrong })?;
            stirred |= replay.tape.done > done;
            if let Some(number) = waits {
                waiting = waiting.or(Some((which, replay.tape.number(), number)));
            }
        }
        match waiting {
            None => return Ok(replays.into_iter().map(|replay| replay.core).collect()),
            Some((which, line, number)) if !stirred => {
                let what =
                    format!("no given trace has release {number}, which this line adopts: give the other driver's too");
                return Err(Wrong { recording: which, ..Wrong::at(line, what) });
            }
            Some(_) => {}
        }
    }
}

impl<'a> Replay<'a> {
    fn new(recording: &'a Recording) -> Self {
        let tape = Tape { lines: &recording.lines, done: 0, now: Time::ZERO, shown: HashMap::new() };
        Replay { tape, core: Core::new(recording.limits), reads: None, taken: None, ack_tokens: Vec::new() }
    }

    /// Replays the lines up to the end, or up to the adoption of an id that no replay has released yet. Returns the number
    /// of the release that it waits for.
    fn run(&mut self, between: &mut Between, see: See<'_>) -> Result<Option<u64>, Wrong> {
        while let Some(line) = self.tape.line() {
            if let Input::Adopt { number, .. } = line.input {
                if !between.contains_key(&number) {
                    return Ok(Some(number));
                }
            }
            self.play(&line.input, between, see).map_err(|what| Wrong::at(self.tape.number(), what))?;
        }
        Ok(None)
    }

    fn play(&mut self, input: &'a Input<'a>, between: &mut Between, see: See<'_>) -> Result<(), String> {
        // A read completes in the next line: with an event, or with none.
        let reads = self.reads.take();
        if let Some(taken) = self.taken.as_ref().filter(|_| !matches!(input, Input::Deliver(_) | Input::End)) {
            return Err(format!("{} is taken, and this line does not deliver it", event(taken, shown)));
        }
        let Replay { tape, core, .. } = self;
        match *input {
            Input::Time(now) => {
                tape.now = tape.now.max(now);
                tape.show(core, None, None, format!("the time is {now}"), see);
                Ok(())
            }
            Input::OpenChannel(acks) => {
                tape.make(core, |core| core.open_channel(acks), |result| Step::OpenChannel { acks, result }, see)
            }
            Input::CloseChannel(channel) => {
                let step = |result| Step::CloseChannel { channel, result };
                tape.make(core, |core| Ok(((), core.close_channel(channel)?)), step, see)
            }
            Input::CreateId { on: channel, port_space } => {
                let step = |result| Step::CreateId { channel, port_space, result };
                tape.make(core, |core| core.create_id(channel, port_space), step, see)
            }
            Input::Submit { id, request, ref data, deadline } => {
                let (now, deadline) = (tape.now, deadline.unwrap_or(Time::NEVER));
                let data = data.to_vec();
                let request = with_data(request, &data);
                let step = |result| Step::Submit { id, request, deadline, result };
                tape.make(core, |core| Ok(((), core.begin(now, id, &request, deadline)?)), step, see)
            }
            Input::Ack { owner, group } => {
                // Ack tokens with the same owner and group are interchangeable.
                let is_it = |ack_token: &AckToken| ack_token.owner() == owner && ack_token.group() == group;
                let result = match self.ack_tokens.iter().position(is_it) {
                    Some(at) => core.ack(self.ack_tokens.swap_remove(at)).map_err(|refused| Refused::from(&refused)),
                    // The token belongs to another drive.
                    None => Err(Refused::NothingOwed { owner }),
                };
                tape.pass(core, &Step::Ack { owner, group, result }, see)
            }
            Input::Call => tape.calls(core, |core| core.next().ok_or("the core has no call"), see),
            Input::Outcome { .. } => Err("there is no call under way".into()),
            Input::Readable(channel) => {
                core.handle_readable(channel);
                tape.pass(core, &Step::Readable { channel }, see)
            }
            Input::Iwarp(id) => {
                core.note_iwarp(id);
                tape.pass(core, &Step::Iwarp { id }, see)
            }
            Input::Read(channel) => {
                if !core.may_have_event(channel) {
                    return Err(format!("{channel} is not to be read"));
                }
                let child = core.begin_read(channel);
                self.reads = child.map(|_| channel);
                tape.pass(core, &Step::BeginRead { channel, child }, see)
            }
            Input::Event { on, raw, ref data, to, once } => {
                if reads != Some(on) {
                    return Err(format!("{on} is not being read"));
                }
                let data = data.to_vec();
                self.event(on, raw.map_private_data(|_| &data[..]), to, !once, see)
            }
            Input::Unreadable { on: channel, errno } => {
                core.handle_unreadable(channel);
                tape.pass(core, &Step::Unreadable { channel, errno }, see)
            }
            Input::Child => {
                let id = core.next_child().and_then(|begun| begun.call()).and_then(|call| call.id());
                let id = id.ok_or("there is no id to destroy")?;
                tape.pass(core, &Step::Child { id }, see)?;
                tape.calls(core, |core| core.next_child().ok_or("there is no id to destroy"), see)
            }
            Input::PauseChannel(channel) => {
                let result = core.pause_channel(channel);
                tape.pass(core, &Step::PauseChannel { channel, result }, see)
            }
            Input::ResumeChannel(channel) => {
                let result = core.resume_channel(channel);
                tape.pass(core, &Step::ResumeChannel { channel, result }, see)
            }
            Input::WaitForRoom(channel) => {
                core.wait_for_room(channel);
                tape.pass(core, &Step::WaitForRoom { channel }, see)
            }
            Input::Timeout => {
                // Several ids may be due; this is the first.
                let id = core.poll_timeout().map(|(_, id)| id);
                core.handle_timeout(tape.now);
                tape.pass_of(core, &Step::Timeout, id, see)
            }
            Input::Deliver(channel) => {
                let event =
                    self.taken.take().or_else(|| core.poll_event(channel)).ok_or("there is no event to take")?;
                tape.pass(core, &Step::Deliver { channel, event: &event }, see)?;
                self.ack_tokens.extend(event.ack_token);
                Ok(())
            }
            Input::Release { id, number, errno } => {
                let result = released(core.release(id), id, number, errno, between)?;
                tape.pass(core, &Step::Release { id, number, result }, see)
            }
            Input::Adopt { number, errno } => {
                let released = between.remove(&number).ok_or("no released id has this number")?;
                let (id, channel) = core.adopt(released).map_err(|refused| format!("refused: {refused}"))?;
                let step = Step::Adopt { id, number, channel, outcome: errno.map_or(Ok(()), Err) };
                tape.pass(core, &step, see)?;
                if errno.is_some() {
                    // The id does not exist at the device, so the driver releases it from the core and drops it.
                    drop(core.release(id));
                }
                Ok(())
            }
            Input::Yield => tape.pass(core, &Step::Yield, see),
            Input::End => tape.pass(core, &Step::End, see),
        }
    }

    fn event(
        &mut self,
        channel: ChannelKey,
        event: RawEvent<&[u8]>,
        to: Option<ChannelKey>,
        reads_on: bool,
        see: See<'_>,
    ) -> Result<(), String> {
        let result = match to {
            Some(to) => {
                let (result, taken) = self.core.take_event(channel, &event, to);
                self.taken = taken;
                result
            }
            None => self.core.handle_event(channel, event),
        };
        if reads_on {
            self.core.handle_readable(channel);
        }
        self.tape.pass(&self.core, &Step::Event { channel, event, to, result, reads_on }, see)
    }
}

/// The result of a release. The id is lost if the device has failed.
fn released(
    released: Result<(Released, ChannelKey), Refused>,
    id: IdKey,
    number: u64,
    errno: Option<Errno>,
    between: &mut Between,
) -> Result<Result<(), Error>, String> {
    Ok(match (released, errno) {
        (Err(refused), _) => Err(Error::Refused(refused)),
        (Ok(_), Some(errno)) => Err(Error::Fault(Fault::Leak { call: "release", target: Target::Id(id), errno })),
        (Ok((released, _)), None) => match between.insert(number, released) {
            Some(_) => return Err(format!("the number {number} is in use")),
            None => Ok(()),
        },
    })
}

impl<'a> Tape<'a> {
    fn line(&self) -> Option<&'a Line<'a>> {
        self.lines.get(self.done)
    }

    /// The number of the next line in the file.
    fn number(&self) -> usize {
        self.done + 2
    }

    /// Compares a step with the next line.
    fn pass(&mut self, core: &Core, step: &Step<'_>, see: See<'_>) -> Result<(), String> {
        let is_silent = matches!(step, Step::Call { .. } | Step::Deliver { .. } | Step::Iwarp { .. });
        self.pass_of(core, step, Parts::of(step).id.filter(|_| !is_silent), see)
    }

    /// As `pass`. Shows the state of this id.
    fn pass_of(&mut self, core: &Core, step: &Step<'_>, id: Option<IdKey>, see: See<'_>) -> Result<(), String> {
        if let (Some(line), Some(made)) = (self.line(), Line::of(core, step)) {
            if line.input != made.input {
                return Err(format!("the next step is: {}; this line is another", text(step)));
            }
            if line.answer != made.answer {
                let words = |answer: &Option<String>| answer.clone().unwrap_or_else(|| "nothing".into());
                return Err(format!(
                    "the core answers: {}; recorded was: {}",
                    words(&made.answer),
                    words(&line.answer)
                ));
            }
        }
        self.show(core, id, arrow(step), text(step), see);
        Ok(())
    }

    /// Shows the step of the next line, and goes on to the line after it.
    fn show(&mut self, core: &Core, id: Option<IdKey>, arrow: Option<Arrow>, text: String, see: See<'_>) {
        let after = id.and_then(|id| core.state(id));
        let before = id.and_then(|id| match after {
            Some(state) => self.shown.insert(id, state),
            None => self.shown.remove(&id),
        });
        see(&Transition { line: self.number(), at: self.now, id, before, after, arrow, text });
        self.done += 1;
    }

    /// Makes a request, and its calls with the outcomes of the lines after it. Without a call it has its effect at once.
    fn make<'r, 's, K: Copy>(
        &mut self,
        core: &mut Core,
        begin: impl for<'c> FnOnce(&'c mut Core) -> Result<(K, Begun<'c, 'r>), Refused>,
        step: impl FnOnce(Result<K, Refused>) -> Step<'s>,
        see: See<'_>,
    ) -> Result<(), String> {
        let (key, begun) = match begin(core) {
            Ok(begun) => begun,
            Err(refused) => return self.pass(core, &step(Err(refused)), see),
        };
        let step = step(Ok(key));
        if begun.call().is_some() {
            self.pass(begun.core(), &step, see)?;
            let last = self.outcomes(begun, see)?;
            return self.ended(core, last, see);
        }
        let last = self.outcomes(begun, see)?;
        self.ended(core, last, see)?;
        self.pass(core, &step, see)
    }

    /// Makes the calls that follow from earlier steps.
    fn calls(
        &mut self,
        core: &mut Core,
        begin: impl for<'c> FnOnce(&'c mut Core) -> Result<Begun<'c, 'static>, &'static str>,
        see: See<'_>,
    ) -> Result<(), String> {
        let last = self.outcomes(begin(core)?, see)?;
        self.ended(core, last, see)
    }

    /// Makes calls with the outcomes in the lines. The recording of a program that has crashed may end before a call or
    /// its outcome: that call has changed nothing. Returns the last call, whose outcome is not compared yet.
    fn outcomes(&mut self, mut begun: Begun<'_, '_>, see: See<'_>) -> Result<Option<Last>, String> {
        loop {
            let Some(call) = begun.call() else {
                match begun.end(Ok(())) {
                    Flow::Next(next) => begun = next,
                    Flow::Done(_) => return Ok(None),
                }
                continue;
            };
            if self.has_ended() {
                return Ok(None);
            }
            let step = Step::Call { call: &call, private_data: begun.private_data() };
            self.pass(begun.core(), &step, see)?;
            let outcome = match self.line().map(|line| &line.input) {
                Some(&Input::Outcome { errno }) => errno.map_or(Ok(()), Err),
                _ if self.has_ended() => return Ok(None),
                _ => return Err("a call is under way, and this line is not its outcome".into()),
            };
            match begun.end(outcome) {
                Flow::Next(next) => {
                    self.pass(next.core(), &Step::Outcome { call: &call, outcome, fault: None }, see)?;
                    begun = next;
                }
                Flow::Done(result) => {
                    let fault = if let Err(Error::Fault(fault)) = result { Some(fault) } else { None };
                    return Ok(Some((call, outcome, fault)));
                }
            }
        }
    }

    /// Compares the outcome of the last call of a request.
    fn ended(&mut self, core: &Core, last: Option<Last>, see: See<'_>) -> Result<(), String> {
        let Some((call, outcome, fault)) = last else { return Ok(()) };
        self.pass(core, &Step::Outcome { call: &call, outcome, fault }, see)
    }

    fn has_ended(&self) -> bool {
        self.line().is_none_or(|line| line.input == Input::End)
    }
}
