//! Runs a recording through a new core, line by line. A request is replayed with the lines of its calls.

use std::collections::HashMap;
use std::fmt::Display;

use cmid_proto::{AckToken, Begun, ChannelKey, Core, Errno, Event, IdKey, Refused, Released, Time};

use crate::calls::{Ahead, Seen};
use crate::compare::same;
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
    ahead: Ahead,
    /// The channel that is being read.
    reads: Option<ChannelKey>,
    /// The event that the last line has returned.
    taken: Option<Event>,
    /// Ack tokens of delivered events that are not acked yet.
    ack_tokens: Vec<AckToken>,
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
            ahead: Ahead::default(),
            reads: None,
            taken: None,
            ack_tokens: Vec::new(),
        }
    }

    /// Returns the current core. From the line of a request on, it is the core after the last outcome of the request.
    #[must_use]
    pub fn core(&self) -> &Core {
        &self.core
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
        let seen = match (self.ahead.take(), line) {
            (Some(seen), _) => seen,
            (None, Line::Adopt { ticket, .. }) if !between.0.contains_key(ticket) => return Ok(Played::Waits),
            (None, Line::Call { .. }) => self.see_call(),
            (None, _) => self.see(line, between),
        };
        let Seen { id, before, after } = seen.map_err(|what| Wrong::at(self.next_line(), what))?;
        let number = self.next_line();
        self.done += 1;
        let (arrow, text) = describe(line);
        Ok(Played::Step(Transition { line: number, at: self.now, id, before, after, arrow, text }))
    }

    /// Replays a line. If it is a request, its calls are replayed too.
    fn see(&mut self, line: &Line, between: &mut Between) -> Result<Seen, String> {
        let id = self.target(line);
        let before = id.and_then(|id| self.core.state(id));
        self.play(line, between)?;
        // A request changes nothing before its calls.
        let after = if self.ahead.is_empty() { id.and_then(|id| self.core.state(id)) } else { before };
        Ok(Seen { id, before, after })
    }

    /// Replays the line of a call that follows from earlier steps, and the lines after it.
    fn see_call(&mut self) -> Result<Seen, String> {
        let lines = &self.recording.lines[self.done..];
        let no_call = || "the core has no call".to_owned();
        self.ahead.make(&mut self.core, lines, |core| core.next().ok_or_else(no_call))?;
        self.ahead.take().unwrap_or_else(|| Err(no_call()))
    }

    /// Returns the id that a line concerns.
    fn target(&self, line: &Line) -> Option<IdKey> {
        match line {
            Line::CreateId { is, .. } => is.map(|As(id)| id),
            Line::Submit { id, .. } | Line::Release { id, .. } | Line::Adopt { id, .. } => Some(id.0),
            Line::Ack { owner, .. } => Some(owner.0),
            Line::Event { raw, .. } => Some(raw.id.0),
            Line::Child(id) => Some(id.0),
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
            | Line::Outcome { .. }
            | Line::Deliver { .. }
            | Line::Yield(_)
            | Line::End(_) => None,
        }
    }

    /// Makes a request of the core, with the outcomes in the lines that follow.
    fn make<'r, R>(&mut self, begin: impl for<'c> FnOnce(&'c mut Core) -> Result<Begun<'c, 'r>, R>) -> Result<(), R> {
        self.ahead.make(&mut self.core, &self.recording.lines[self.done + 1..], begin)
    }

    fn play(&mut self, line: &Line, between: &mut Between) -> Result<(), String> {
        // A read completes in the next line: with an event, or with none.
        let reads = self.reads.take();
        if let Some(taken) = self.taken.as_ref().filter(|_| !matches!(line, Line::Deliver { .. } | Line::End(_))) {
            return Err(format!("{} is taken, and this line does not deliver it", event(taken)));
        }
        match line {
            Line::Begin { .. } => Err("the trace begins twice".into()),
            Line::Time(now) => {
                self.now = self.now.max(Time(*now));
                Ok(())
            }
            Line::OpenChannel { acks, is, refused } => {
                let mut key = None;
                let answer = self.make(|core| core.open_channel(acks.0).map(|it| keyed(it, &mut key)));
                answered(answer.map(|()| key), is.map(|As(key)| key), refused)
            }
            Line::CloseChannel { channel, refused } => done(self.make(|core| core.close_channel(channel.0)), refused),
            Line::CreateId { on, port_space, is, refused } => {
                let (mut key, on) = (None, on.map(|As(on)| on));
                let answer = self.make(|core| core.create_id(on, port_space.0).map(|it| keyed(it, &mut key)));
                answered(answer.map(|()| key), is.map(|As(id)| id), refused)
            }
            Line::Submit { id, request, deadline, refused } => {
                let (now, request) = (self.now, request.request());
                done(self.make(|core| core.begin(now, id.0, &request, ends(*deadline))), refused)
            }
            Line::Ack { owner, group, refused } => self.ack(owner.0, group.map(|As(group)| group), refused),
            Line::Call { .. } => Err("the core has no call".into()),
            Line::Outcome { .. } => Err("there is no call under way".into()),
            Line::Readable(channel) => {
                self.core.handle_readable(channel.0);
                Ok(())
            }
            Line::Look { on, child } => {
                same("whether the channel is to be read", &self.core.may_have_event(on.0), &true)?;
                self.reads = child.map(|_| on.0);
                same("the key for a child", &self.core.begin_read(on.0).map(As), child)
            }
            Line::Event { on, raw, to, is, state, once } => {
                if reads != Some(on.0) {
                    return Err(format!("{} is not being read", on.0));
                }
                let answer = match to {
                    Some(to) => {
                        let (answer, taken) = self.core.take_event(on.0, &raw.event(), to.0);
                        self.taken = taken;
                        answer
                    }
                    None => self.core.handle_event(on.0, raw.event()),
                };
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
            Line::Child(id) => {
                let next = self.core.next_child().and_then(|begun| begun.call()).and_then(|call| call.id());
                same("the next id to destroy", &next, &Some(id.0))?;
                self.make(|core| core.next_child().ok_or_else(|| "there is no id to destroy".to_owned()))
            }
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
        let taken = self.taken.take().or_else(|| self.core.poll_event(on)).ok_or("there is no event to take")?;
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

/// Keeps the key of an object that is being created.
fn keyed<'c, K>((key, begun): (K, Begun<'c, 'static>), keep: &mut Option<K>) -> Begun<'c, 'static> {
    *keep = Some(key);
    begun
}

fn done(answer: Result<(), Refused>, refused: &Option<String>) -> Result<(), String> {
    same("the refusal", &answer.err().map(|it| it.to_string()), refused)
}

fn answered<K: PartialEq + Display>(
    answer: Result<Option<K>, Refused>,
    recorded: Option<K>,
    refused: &Option<String>,
) -> Result<(), String> {
    let (key, reason) = match answer {
        Ok(key) => (key, None),
        Err(reason) => (None, Some(reason.to_string())),
    };
    same("the refusal", &reason, refused)?;
    let text = |key: &Option<K>| key.as_ref().map(K::to_string);
    same("the key", &text(&key), &text(&recorded))
}
