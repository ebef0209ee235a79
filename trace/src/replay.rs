//! Runs a recording through a new core, line by line. Requests with a short path are also performed at once, on a copy.

use std::collections::HashMap;
use std::fmt::{Debug, Display};

use cmid_proto::{AckToken, Call, ChannelKey, Core, Errno, IdKey, Refused, Released, Time, Token};

use crate::at_once::AtOnce;
use crate::line::Line;
use crate::read::{Recording, Wrong};
use crate::snapshot::{Snapshot, Sum, admission, event, state};
use crate::transition::{Transition, describe};
use crate::values::As;

/// Released ids that are not adopted yet, by ticket. Shared by the replays of several drivers.
#[derive(Debug, Default)]
pub struct Between(HashMap<String, Released>);

/// The replay of one recording. Works like an iterator, but each step needs [`Between`].
#[derive(Debug)]
pub struct Replay<'a> {
    recording: &'a Recording,
    core: Core,
    now: Time,
    /// The number of replayed lines, without the first of the file.
    done: usize,
    /// The call that is under way.
    call: Option<(Token, Call)>,
    /// The channel that is being read.
    reads: Option<ChannelKey>,
    /// Ack tokens of delivered events that are not acked yet.
    ack_tokens: Vec<AckToken>,
    /// The core that has performed the request under way at once, to compare at its last outcome.
    at_once: Option<AtOnce>,
    performed: usize,
}

/// The result of one step of a replay.
#[derive(Debug)]
pub enum Played {
    /// The core behaved as recorded.
    Step(Transition),
    /// The step adopts an id that no replay has released yet. Other replays must continue first.
    Waits,
    /// There are no more lines.
    Over,
}

impl<'a> Replay<'a> {
    /// Creates a replay at the first line.
    #[must_use]
    pub fn new(recording: &'a Recording) -> Self {
        let core = Core::new(recording.limits);
        Replay {
            recording,
            core,
            now: Time::ZERO,
            done: 0,
            call: None,
            reads: None,
            ack_tokens: Vec::new(),
            at_once: None,
            performed: 0,
        }
    }

    /// Returns the current core.
    #[must_use]
    pub fn core(&self) -> &Core {
        &self.core
    }

    /// The number of requests that were also performed at once ([`Core::perform`], [`Core::perform_create`]) with the
    /// same resulting core.
    #[must_use]
    pub fn performed(&self) -> usize {
        self.performed
    }

    /// Returns the number of the next line in the file.
    #[must_use]
    pub fn next_line(&self) -> usize {
        self.done + 2
    }

    /// Replays the next line.
    ///
    /// # Errors
    /// The core's result differs from that of the line.
    pub fn step(&mut self, between: &mut Between) -> Result<Played, Wrong> {
        let recording = self.recording;
        let Some(line) = recording.lines.get(self.done) else { return Ok(Played::Over) };
        if let Line::Adopt { ticket, .. } = line {
            if !between.0.contains_key(ticket) {
                return Ok(Played::Waits);
            }
        }
        let number = self.next_line();
        let id = self.target(line);
        let before = id.and_then(|id| self.core.state(id));
        let played = self.perform(line).and_then(|()| self.play(line, between)).and_then(|()| self.follow());
        played.map_err(|what| Wrong::at(number, what))?;
        self.done += 1;
        let after = id.and_then(|id| self.core.state(id));
        let (arrow, text) = describe(line);
        Ok(Played::Step(Transition { line: number, at: self.now, id, before, after, arrow, text }))
    }

    /// Returns the id that a line concerns.
    fn target(&self, line: &Line) -> Option<IdKey> {
        match line {
            Line::CreateId { is, .. } => is.map(|As(id)| id),
            Line::Submit { id, .. } | Line::Join { id, .. } | Line::Release { id, .. } | Line::Adopt { id, .. } => {
                Some(id.0)
            }
            Line::Ack { owner, .. } => Some(owner.0),
            Line::Event { raw, .. } => Some(raw.id.0),
            Line::Child(id) => Some(id.0),
            Line::Outcome { .. } => self.call.as_ref().and_then(|(_, call)| call.id()),
            // Several ids may be due; this returns the first.
            Line::Timeout => self.core.poll_timeout().map(|(_, id)| id),
            Line::Begin { .. }
            | Line::Time(_)
            | Line::OpenChannel { .. }
            | Line::CloseChannel { .. }
            | Line::Readable(_)
            | Line::Look { .. }
            | Line::Unreadable { .. }
            | Line::WaitForRoom(_)
            | Line::Iwarp(_)
            | Line::PauseChannel { .. }
            | Line::ResumeChannel { .. }
            | Line::Call { .. }
            | Line::Deliver { .. }
            | Line::Yield(_)
            | Line::End(_) => None,
        }
    }

    /// Performs the request of a line at once, if the line is a request.
    fn perform(&mut self, line: &Line) -> Result<(), String> {
        let lines = &self.recording.lines[self.done + 1..];
        if let Line::Submit { id, request, deadline, .. } = line {
            self.at_once = AtOnce::request(&self.core, self.now, id.0, &request.request(), ends(*deadline), lines)?;
        } else if let Line::CreateId { on: Some(on), port_space, .. } = line {
            self.at_once = AtOnce::create(&self.core, on.0, port_space.0, lines)?;
        }
        Ok(())
    }

    /// Compares with the core that has performed the request, once the last outcome is replayed.
    fn follow(&mut self) -> Result<(), String> {
        if let Some(at_once) = &mut self.at_once {
            if at_once.follow(&self.core)? {
                self.at_once = None;
                self.performed += 1;
            }
        }
        Ok(())
    }

    fn play(&mut self, line: &Line, between: &mut Between) -> Result<(), String> {
        // A driver makes each call and reports its outcome before any other step.
        if self.call.is_some() && !matches!(line, Line::Outcome { .. } | Line::End(_)) {
            return Err("a call is under way, and this line is not its outcome".into());
        }
        // A read completes in the next line: with an event, or with none.
        let reads = self.reads.take();
        match line {
            Line::Begin { .. } => Err("the trace begins twice".into()),
            Line::Time(now) => {
                self.now = self.now.max(Time(*now));
                Ok(())
            }
            Line::OpenChannel { acks, is, refused } => {
                answered(self.core.open_channel(acks.0), is.map(|As(key)| key), refused)
            }
            Line::CloseChannel { channel, refused } => done(self.core.close_channel(channel.0), refused),
            Line::CreateId { on, port_space, is, refused } => {
                let id = self.core.create_id(on.map(|As(on)| on), port_space.0);
                answered(id, is.map(|As(id)| id), refused)
            }
            Line::Submit { id, request, deadline, refused, state } => {
                done(self.core.submit(self.now, id.0, request.request(), ends(*deadline)), refused)?;
                self.is_in(Some(id.0), state)
            }
            Line::Join { id, addr, send_only, deadline, is, refused } => {
                let group = self.core.join(self.now, id.0, *addr, *send_only, ends(*deadline));
                answered(group, is.map(|As(group)| group), refused)
            }
            Line::Ack { owner, group, refused } => self.ack(owner.0, group.map(|As(group)| group), refused),
            Line::Call { call, data } => {
                let (token, next) = self.core.poll_call().ok_or("the core has no call")?;
                same("the call", &format!("{next:?}"), call)?;
                same("its private data", &crate::values::Bytes::from(self.core.call_data(token)), data)?;
                self.call = Some((token, next));
                Ok(())
            }
            Line::Outcome { errno, fault, state } => {
                let (token, call) = self.call.take().ok_or("there is no call under way")?;
                let outcome = errno.map_or(Ok(()), |As(errno)| Err(errno));
                let answer = self.core.handle_outcome(token, outcome);
                same("the fault", &answer.err().map(|fault| fault.to_string()), fault)?;
                self.is_in(call.id(), state)
            }
            Line::Readable(channel) => {
                self.core.handle_readable(channel.0);
                Ok(())
            }
            Line::Look { on, child } => {
                same("the channel to be read", &self.core.poll_readable().map(As), &Some(*on))?;
                self.reads = child.map(|_| on.0);
                same("the key for a child", &self.core.wants_event(on.0).map(As), child)
            }
            Line::Event { on, raw, is, state, once } => {
                if reads != Some(on.0) {
                    return Err(format!("{} is not being read", on.0));
                }
                let answer = self.core.handle_event(on.0, raw.event());
                if !once {
                    self.core.handle_readable(on.0);
                }
                same("the result of the event", &admission(&answer), is)?;
                self.is_in(Some(raw.id.0), state)
            }
            Line::Unreadable { on, .. } => {
                self.core.handle_unreadable(on.0);
                Ok(())
            }
            Line::Child(id) => same("the next id to destroy", &self.core.poll_child().map(As), &Some(*id)),
            Line::Iwarp(id) => {
                self.core.note_iwarp(id.0);
                Ok(())
            }
            Line::PauseChannel { channel, refused } => done(self.core.pause_channel(channel.0), refused),
            Line::ResumeChannel { channel, refused } => done(self.core.resume_channel(channel.0), refused),
            Line::WaitForRoom(channel) => {
                self.core.wait_for_room(channel.0);
                Ok(())
            }
            Line::Timeout => {
                self.core.handle_timeout(self.now);
                Ok(())
            }
            Line::Deliver { on, event } => self.deliver(on.0, event),
            Line::Release { id, ticket, refused, errno } => {
                self.release(id.0, ticket.as_deref(), refused, errno.is_some(), between)
            }
            Line::Adopt { ticket, id, channel, errno } => {
                let adopted =
                    between.0.remove(ticket).ok_or_else(|| format!("no released id has the ticket {ticket:?}"))?;
                self.adopt(adopted, (id.0, channel.0), errno.map(|As(errno)| errno))
            }
            Line::Yield(sum) => same("the summary", &Sum::of(&self.core), sum),
            Line::End(snapshot) => same("the state", &Snapshot::of(&self.core), snapshot),
        }
    }

    fn is_in(&self, id: Option<IdKey>, expected: &Option<String>) -> Result<(), String> {
        same("the id's state", &id.and_then(|id| state(&self.core, id)), expected)
    }

    fn deliver(&mut self, on: ChannelKey, expected: &str) -> Result<(), String> {
        let taken = self.core.poll_event(on).ok_or("there is no event to take")?;
        same("the event", event(&taken).as_str(), expected)?;
        self.ack_tokens.extend(taken.ack_token);
        Ok(())
    }

    fn ack(
        &mut self,
        owner: IdKey,
        group: Option<cmid_proto::GroupKey>,
        refused: &Option<String>,
    ) -> Result<(), String> {
        // Ack tokens with the same owner and group are interchangeable.
        match self.ack_tokens.iter().position(|ack_token| ack_token.owner() == owner && ack_token.group() == group) {
            Some(at) => done(self.core.ack(self.ack_tokens.swap_remove(at)).map_err(Refused::from), refused),
            // The token belongs to another drive, and the core refused it, so nothing has changed.
            None if refused.is_some() => Ok(()),
            None => Err("no such event was delivered".into()),
        }
    }

    fn release(
        &mut self,
        id: IdKey,
        ticket: Option<&str>,
        refused: &Option<String>,
        lost: bool,
        between: &mut Between,
    ) -> Result<(), String> {
        match (self.core.release(id), refused) {
            (Ok((released, _)), None) => match ticket {
                Some(ticket) => match between.0.insert(ticket.to_owned(), released) {
                    None => Ok(()),
                    Some(_) => Err(format!("the ticket {ticket:?} is in use")),
                },
                None if lost => Ok(()),
                None => Err("a release without a ticket".into()),
            },
            (answer, refused) => done(answer.map(drop), refused),
        }
    }

    fn adopt(
        &mut self,
        released: Released,
        expected: (IdKey, ChannelKey),
        failed: Option<Errno>,
    ) -> Result<(), String> {
        let keys = self.core.adopt(released).map_err(|(refused, _)| format!("refused: {refused}"))?;
        same("the keys", &keys, &expected)?;
        if failed.is_some() {
            // The id does not exist at the device, so the driver releases it from the core and drops it.
            drop(self.core.release(keys.0));
        }
        Ok(())
    }
}

/// Replays recordings together, because one may adopt ids that another releases. Calls `see` with the index of the
/// recording and each step.
///
/// # Errors
/// The index of the recording, from 0, and the error.
pub fn replay<'a>(
    recordings: &'a [Recording],
    mut see: impl FnMut(usize, &Transition),
) -> Result<Vec<Replay<'a>>, (usize, Wrong)> {
    let mut between = Between::default();
    let mut replays: Vec<_> = recordings.iter().map(Replay::new).collect();
    loop {
        let (mut stirred, mut waiting) = (false, None);
        for (which, replay) in replays.iter_mut().enumerate() {
            loop {
                match replay.step(&mut between).map_err(|wrong| (which, wrong))? {
                    Played::Step(transition) => see(which, &transition),
                    Played::Waits => {
                        waiting = waiting.or(Some((which, replay.next_line())));
                        break;
                    }
                    Played::Over => break,
                }
                stirred = true;
            }
        }
        match waiting {
            None => return Ok(replays),
            Some((which, line)) if !stirred => {
                let what = "no given trace releases the id that this line adopts: give the other driver's trace too";
                return Err((which, Wrong::at(line, what)));
            }
            Some(_) => {}
        }
    }
}

fn ends(deadline: Option<u64>) -> Time {
    deadline.map_or(Time::NEVER, Time)
}

fn same<T: PartialEq + Debug + ?Sized>(what: &str, found: &T, recorded: &T) -> Result<(), String> {
    if found == recorded { Ok(()) } else { Err(format!("{what} is {found:?}; recorded was {recorded:?}")) }
}

fn done(answer: Result<(), Refused>, refused: &Option<String>) -> Result<(), String> {
    same("the refusal", &answer.err().map(|it| it.to_string()), refused)
}

fn answered<K: PartialEq + Display>(
    answer: Result<K, Refused>,
    recorded: Option<K>,
    refused: &Option<String>,
) -> Result<(), String> {
    let (key, reason) = match answer {
        Ok(key) => (Some(key), None),
        Err(reason) => (None, Some(reason.to_string())),
    };
    same("the refusal", &reason, refused)?;
    let text = |key: &Option<K>| key.as_ref().map(K::to_string);
    same("the key", &text(&key), &text(&recorded))
}
