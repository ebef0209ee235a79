//! The machine: computes the input of the table from what has happened, the limits and the time.

use super::cause::Cause;
use super::limits::RedialLimits;
use super::rules::{Effect, Input, REDIAL, Stage};
use crate::columns::columns;
use crate::time::Time;

/// What the program has to do. A connection and a handshake belong to the program; [`Redial`] has neither.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the machine is in the state after it"]
pub enum Todo {
    /// Nothing. Call [`Redial::handle_timeout`] at [`Redial::timeout`], if there is one; so after every other answer.
    Nothing,
    /// Wait until this time, then call [`Redial::handle_timeout`].
    Wait {
        /// The time of the next attempt.
        until: Time,
    },
    /// Start a [`Dial`](crate::handshake::Dial). Report its end to [`Redial::established`] or [`Redial::failed`].
    Dial {
        /// The deadline of the handshake.
        deadline: Time,
    },
    /// [Accept](crate::handshake::Incoming::accept) the peer's call, and report the end as for [`Todo::Dial`].
    Accept {
        /// The deadline of the handshake.
        deadline: Time,
        /// Cancel the handshake under way first.
        instead: bool,
    },
    /// [Reject](crate::handshake::Incoming::reject) the peer's call, with [`CROSSED`](super::CROSSED) as private data.
    Reject,
    /// Cancel the handshake under way: its deadline has passed. A connection stays.
    Cancel,
    /// The connection of the handshake is the one to use. Report its end to [`Redial::lost`].
    Use {
        /// Close the old connection first.
        instead: bool,
    },
    /// Cancel the handshake and close the connection, if there are any. No attempt follows.
    GiveUp(GivenUp),
}

columns! {
    /// Why a [`Redial`] has given up.
    pub enum GivenUp {
        /// [`Cause::Refused`].
        Refused = "the peer has refused",
        /// [`Cause::Unfit`].
        Unfit = "the call cannot succeed as it is",
        /// [`RedialLimits::attempts`] is reached.
        Attempts = "the limit on attempts is reached",
        /// [`RedialLimits::within`] has passed, or would pass before the next attempt.
        Deadline = "the time limit has passed",
        /// [`Redial::stop`].
        Stopped = "stopped",
    }
}

/// Which of two calls at the same time is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kept {
    /// That of this side.
    Own,
    /// That of the peer.
    Peers,
}

/// Decides which of two calls at the same time is kept: that of the lower number. With equal numbers each side keeps its
/// own and rejects the other, so both end.
#[must_use]
pub const fn kept(own: u64, peer: u64) -> Kept {
    if own <= peer { Kept::Own } else { Kept::Peers }
}

/// The connection with one peer over any number of handshakes. See the [module](super).
///
/// `now` of each call is the time, which never decreases. `random` is any number, uniformly distributed; it is the only
/// source of the jitter.
#[derive(Clone, Debug)]
pub struct Redial {
    number: u64,
    limits: RedialLimits,
    stage: Stage,
    /// The end of the wait, or the deadline of the handshake.
    until: Time,
    /// The deadline of the series.
    deadline: Time,
    /// Own calls, and failures, since the series began anew.
    attempts: u32,
    failures: u32,
    /// The last failure was stale.
    was_stale: bool,
    connected_at: Time,
    given_up: Option<GivenUp>,
}

impl Redial {
    /// Creates the machine. The first attempt is due at once: call [`handle_timeout`](Redial::handle_timeout).
    ///
    /// `number` is that of this side, other than that of the peer. It matters only if both sides call ([`kept`]).
    #[must_use]
    pub fn new(number: u64, limits: RedialLimits, now: Time) -> Self {
        let limits = limits.in_range();
        Redial {
            number,
            limits,
            stage: Stage::Waiting,
            until: now,
            deadline: now.after(limits.within),
            attempts: 0,
            failures: 0,
            was_stale: false,
            connected_at: now,
            given_up: None,
        }
    }

    /// Returns the state.
    #[must_use]
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// Returns the number of own calls since the series began anew.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Returns why it has given up, if it has.
    #[must_use]
    pub fn given_up(&self) -> Option<GivenUp> {
        self.given_up
    }

    /// Returns the time of the next [`handle_timeout`](Redial::handle_timeout). `None` while there is a connection and no
    /// handshake, and after it has given up; in all other states there is one.
    #[must_use]
    pub fn timeout(&self) -> Option<Time> {
        match self.stage {
            Stage::Waiting | Stage::Calling | Stage::Answering | Stage::Replacing => Some(self.until),
            Stage::Connected | Stage::GivenUp => None,
        }
    }

    /// Lets time pass. Does nothing before [`timeout`](Redial::timeout).
    pub fn handle_timeout(&mut self, now: Time, random: u32) -> Todo {
        if self.timeout().is_none_or(|due| now < due) {
            return Todo::Nothing;
        }
        let input = match self.stage {
            Stage::Waiting => self.begin(now),
            Stage::Calling | Stage::Answering => self.again(Cause::Heals, now, random, Input::Late),
            Stage::Replacing | Stage::Connected | Stage::GivenUp => Input::Late,
        };
        self.enter(input)
    }

    /// The peer calls, and this is the number in its private data. For a peer that sends none, `u64::MAX` lets the own call
    /// win. Ask for each CONNECT_REQUEST of the peer.
    pub fn called(&mut self, peer: u64, now: Time) -> Todo {
        if self.stage == Stage::GivenUp || (self.stage == Stage::Calling && kept(self.number, peer) == Kept::Own) {
            return self.enter(Input::Crossed);
        }
        let limit = if self.has_connection() { Time::NEVER } else { self.deadline };
        self.until = now.after(self.limits.handshake).min(limit);
        self.enter(Input::Called)
    }

    /// The handshake under way has ended with a connection.
    pub fn established(&mut self, now: Time) -> Todo {
        if self.has_handshake() {
            self.connected_at = now;
        }
        self.enter(Input::Established)
    }

    /// The handshake under way has failed. Not to be called for one that was cancelled.
    pub fn failed(&mut self, cause: Cause, now: Time, random: u32) -> Todo {
        let input = match (self.stage, cause) {
            (Stage::Calling | Stage::Answering, Cause::Refused | Cause::Unfit) => {
                let refused = cause == Cause::Refused;
                self.given_up = Some(if refused { GivenUp::Refused } else { GivenUp::Unfit });
                Input::Refused
            }
            (Stage::Calling | Stage::Answering, _) => self.again(cause, now, random, Input::Failed),
            (Stage::Waiting | Stage::Connected | Stage::Replacing | Stage::GivenUp, _) => Input::Failed,
        };
        self.enter(input)
    }

    /// The connection has ended: by an event such as DISCONNECTED, or by a failed completion. The program has closed it.
    pub fn lost(&mut self, now: Time, random: u32) -> Todo {
        if !self.has_connection() {
            return self.enter(Input::Lost);
        }
        if now >= self.connected_at.after(self.limits.backoff_max) {
            self.attempts = 0;
            self.failures = 0;
        }
        self.was_stale = false;
        self.deadline = now.after(self.limits.within);
        let input = match self.stage {
            Stage::Connected => self.again(Cause::Heals, now, random, Input::Lost),
            // The handshake that goes on is now one of the series.
            Stage::Waiting | Stage::Calling | Stage::Answering | Stage::Replacing | Stage::GivenUp => {
                self.until = self.until.min(self.deadline);
                Input::Lost
            }
        };
        self.enter(input)
    }

    /// No connection is wanted any more.
    pub fn stop(&mut self) -> Todo {
        self.given_up.get_or_insert(GivenUp::Stopped);
        self.enter(Input::Stop)
    }

    fn has_connection(&self) -> bool {
        matches!(self.stage, Stage::Connected | Stage::Replacing)
    }

    fn has_handshake(&self) -> bool {
        matches!(self.stage, Stage::Calling | Stage::Answering | Stage::Replacing)
    }

    /// The wait is over: begins a call, if the limits permit it.
    fn begin(&mut self, now: Time) -> Input {
        if let Some(limit) = self.limit(now) {
            self.given_up = Some(limit);
            return Input::Spent;
        }
        self.attempts += 1;
        self.until = now.after(self.limits.handshake).min(self.deadline);
        Input::Due
    }

    /// Sets the time of the next attempt. Returns `input`, or [`Input::Spent`] if the limits permit none.
    fn again(&mut self, cause: Cause, now: Time, random: u32, input: Input) -> Input {
        let at_once = cause == Cause::Stale && !self.was_stale;
        self.was_stale = cause == Cause::Stale;
        self.until = now;
        if !at_once {
            self.until = now.after(self.limits.wait(self.failures, random));
            self.failures = self.failures.saturating_add(1);
        }
        match self.limit(self.until) {
            // The peer's call is on its way. Without it, the end of the wait gives up.
            Some(GivenUp::Attempts) if cause == Cause::Crossed => input,
            None => input,
            Some(limit) => {
                self.given_up = Some(limit);
                Input::Spent
            }
        }
    }

    /// The limit that forbids an attempt at this time.
    fn limit(&self, at: Time) -> Option<GivenUp> {
        if at >= self.deadline && self.deadline != Time::NEVER {
            Some(GivenUp::Deadline)
        } else if self.attempts >= self.limits.attempts {
            Some(GivenUp::Attempts)
        } else {
            None
        }
    }

    /// Enters the state of the table's cell.
    fn enter(&mut self, input: Input) -> Todo {
        let (stage, effect) = REDIAL[self.stage.index()][input.index()];
        self.stage = stage;
        match effect {
            Effect::Nothing => Todo::Nothing,
            Effect::Wait => Todo::Wait { until: self.until },
            Effect::Dial => Todo::Dial { deadline: self.until },
            Effect::Accept => Todo::Accept { deadline: self.until, instead: false },
            Effect::AcceptInstead => Todo::Accept { deadline: self.until, instead: true },
            Effect::Reject => Todo::Reject,
            Effect::Cancel => Todo::Cancel,
            Effect::Use => Todo::Use { instead: false },
            Effect::UseInstead => Todo::Use { instead: true },
            // Set by whatever leads here.
            Effect::GiveUp => Todo::GiveUp(self.given_up.unwrap_or(GivenUp::Stopped)),
        }
    }
}
