//! [`Redial`] with any program: what happens, in any order, at any time, within any limits.
//!
//! A program that does what it is told is modelled beside: it has a handshake and a connection when the answers say so.
//! At the end the handshakes fail and the connections are lost, and it gives up within its limits.

use std::time::Duration;

use cmid_proto::Time;
use cmid_proto::redial::{Cause, Redial, RedialLimits, Stage, Todo};

use crate::input::Input;
use crate::say::say;

const CAUSES: [Cause; 5] = [Cause::Heals, Cause::Stale, Cause::Crossed, Cause::Refused, Cause::Unfit];

/// Runs the input.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let mut program = Program::new(&mut input);
    while !input.is_over() {
        program.step(&mut input);
    }
    program.end();
}

struct Program {
    redial: Redial,
    limits: RedialLimits,
    now: Time,
    /// What a program has that does what it is told.
    handshake: bool,
    connection: bool,
    /// The beginning of the series.
    since: Time,
}

fn span(input: &mut Input<'_>) -> Duration {
    match input.below(4) {
        0 => Duration::from_millis(input.any::<u8>().into()),
        1 => Duration::from_secs(input.any::<u16>().into()),
        2 => Duration::ZERO,
        _ => Duration::MAX,
    }
}

impl Program {
    fn new(input: &mut Input<'_>) -> Self {
        let limits = RedialLimits {
            handshake: span(input),
            backoff: span(input),
            backoff_max: span(input),
            attempts: input.any::<u8>().into(),
            within: span(input),
        };
        say(|| format!("{limits:?}"));
        let now = if input.once_in(8) { Time(u64::MAX - 1) } else { Time::ZERO };
        Program { redial: Redial::new(3, limits, now), limits, now, handshake: false, connection: false, since: now }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let (now, random) = (self.now, if input.once_in(2) { u32::MAX } else { 0 });
        let before = self.redial.stage();
        let todo = match input.below(8) {
            0 => return self.now = now.after(span(input)),
            1 => return self.now = self.redial.timeout().unwrap_or(now).max(now),
            2 => self.redial.handle_timeout(now, random),
            3 => self.redial.called(input.below(7) as u64, now),
            4 => self.ends(|redial| redial.established(now)),
            5 => {
                let cause = CAUSES[input.below(CAUSES.len())];
                self.ends(|redial| redial.failed(cause, now, random))
            }
            6 => self.loses(random),
            _ if input.once_in(4) => self.redial.stop(),
            _ => self.redial.handle_timeout(now, random),
        };
        say(|| format!("{now}: {before}, then {}: {todo:?}", self.redial.stage()));
        self.does(todo);
    }

    /// A handshake ends by itself. Without one the machine is told nevertheless, and ignores it.
    fn ends(&mut self, tell: impl FnOnce(&mut Redial) -> Todo) -> Todo {
        let had = std::mem::take(&mut self.handshake);
        let todo = tell(&mut self.redial);
        assert!(had || matches!(todo, Todo::Nothing), "no handshake has ended, and {todo:?}");
        todo
    }

    /// The connection ends, if there is one; a series begins.
    fn loses(&mut self, random: u32) -> Todo {
        if std::mem::take(&mut self.connection) {
            self.since = self.now;
        }
        self.redial.lost(self.now, random)
    }

    /// Does what it is told, and checks that it is possible.
    fn does(&mut self, todo: Todo) {
        match todo {
            Todo::Nothing | Todo::Reject => {}
            Todo::Wait { until } => assert!(until >= self.now && !self.handshake && !self.connection),
            Todo::Dial { .. } => {
                assert!(!self.handshake && !self.connection);
                self.handshake = true;
            }
            Todo::Accept { instead, .. } => assert_eq!(std::mem::replace(&mut self.handshake, true), instead),
            Todo::Cancel => assert!(std::mem::take(&mut self.handshake)),
            Todo::Use { instead } => assert_eq!(std::mem::replace(&mut self.connection, true), instead),
            Todo::GiveUp(_) => (self.handshake, self.connection) = (false, false),
        }
        let expected = match self.redial.stage() {
            Stage::Waiting | Stage::GivenUp => (false, false),
            Stage::Calling | Stage::Answering => (true, false),
            Stage::Connected => (false, true),
            Stage::Replacing => (true, true),
        };
        assert_eq!((self.handshake, self.connection), expected, "while {}", self.redial.stage());
        // It waits for its program alone only with a connection, or at the end.
        assert_eq!(self.redial.timeout().is_none(), matches!(self.redial.stage(), Stage::Connected | Stage::GivenUp));
        assert_eq!(self.redial.given_up().is_some(), self.redial.stage() == Stage::GivenUp);
        assert!(self.redial.attempts() <= self.limits.attempts);
    }

    /// Nothing succeeds any more, and no handshake even ends: it gives up within its limits.
    fn end(mut self) {
        let begun = self.now;
        // Each turn ends a wait or a handshake, and there are at most 255 own calls in a series.
        for turn in 0.. {
            assert!(turn < 2_000, "no end of it: {:?}", self.redial);
            if self.redial.stage() == Stage::GivenUp {
                break;
            }
            let todo = match self.redial.timeout() {
                Some(due) => {
                    self.now = due.max(self.now);
                    self.redial.handle_timeout(self.now, 0)
                }
                None => self.loses(0),
            };
            self.does(todo);
        }
        let latest = self.since.after(self.limits.within).max(begun);
        assert!(self.now <= latest, "given up at {}, later than {latest}", self.now);
    }
}
