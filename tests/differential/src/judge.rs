//! Whether what was seen elsewhere is one of the things that the simulator allows.

use std::time::Duration;

use cmid_sim::Flavour;

use crate::program::{Numbers, Program};
use crate::runner::Observed;
use crate::simulated::{Limits, Schedule, schedules, simulate};
use crate::trace::Trace;

/// How much earlier than the simulator's a real timer is taken to be over.
const MARGIN: Duration = Duration::from_millis(25);

/// What came of a run on what the simulator is compared with.
#[derive(Clone, Debug)]
pub struct Run {
    /// The ports and QP numbers that it used.
    pub numbers: Numbers,
    /// What the sides have seen.
    pub trace: Trace,
    /// What else there is to say.
    pub observed: Observed,
    /// How long its parts took.
    pub phases: Vec<Duration>,
    /// How long all of it took.
    pub whole: Duration,
}

/// What the simulator is compared with: a kernel.
pub trait Reality {
    /// Runs programs, at the same time if it can.
    ///
    /// # Errors
    /// If it is broken itself.
    fn run(&mut self, programs: &[Program]) -> anyhow::Result<Vec<Run>>;

    /// Which kernel it is.
    fn flavour(&self) -> Flavour;
}

/// How a run compares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The simulator's, under one of the schedules.
    Agrees,
    /// A timer may have run out at another step. To be run again.
    TooSlow,
    /// No schedule gives this; the nearest one does that.
    Differs(Box<Trace>),
}

/// Compares.
#[must_use]
pub fn judge(program: &Program, run: &Run, flavour: Flavour) -> Verdict {
    let mut search = Search { program, run, flavour, nearest: None, slow: false };
    for schedule in schedules(program) {
        let first = match search.in_any_order(&schedule) {
            Ok(()) => return Verdict::Agrees,
            Err(first) => first,
        };
        if schedule.prompt(first.sends).any(|schedule| search.in_any_order(&schedule).is_ok()) {
            return Verdict::Agrees;
        }
    }
    match search.nearest {
        Some((_, trace)) if !search.slow => Verdict::Differs(Box::new(trace)),
        _ => Verdict::TooSlow,
    }
}

/// What a simulated run leaves open: [`Simulated::time_waits_in_turn`](crate::simulated::Simulated::time_waits_in_turn) and
/// [`Simulated::sends`](crate::simulated::Simulated::sends).
struct Choices {
    in_turn: u32,
    sends: u32,
}

/// Looks for the schedule of a run.
struct Search<'a> {
    program: &'a Program,
    run: &'a Run,
    flavour: Flavour,
    nearest: Option<(usize, Trace)>,
    slow: bool,
}

impl Search<'_> {
    /// Whether it is this one, with time waits in any order; if not, what the simulator gives.
    fn in_any_order(&mut self, schedule: &Schedule) -> Result<(), Choices> {
        let first = match self.agrees(schedule) {
            Ok(()) => return Ok(()),
            Err(first) => first,
        };
        let mut orders = schedule.other_orders(first.in_turn);
        if orders.any(|schedule| self.agrees(&schedule).is_ok()) { Ok(()) } else { Err(first) }
    }

    /// Whether it is this one; if not, what else its run leaves open.
    fn agrees(&mut self, schedule: &Schedule) -> Result<(), Choices> {
        let simulated = simulate(self.program, self.run.numbers, self.flavour, schedule);
        if simulated.trace.agrees(&self.run.trace) {
            return Ok(());
        }
        self.slow |= is_too_slow(self.run, &simulated.limits);
        let distance = distance(&simulated.trace, &self.run.trace);
        if self.nearest.as_ref().is_none_or(|(least, _)| distance < *least) {
            self.nearest = Some((distance, simulated.trace));
        }
        Err(Choices { in_turn: simulated.time_waits_in_turn, sends: simulated.sends })
    }
}

fn is_too_slow(run: &Run, limits: &Limits) -> bool {
    let over = |(took, limit): (&Duration, &Option<Duration>)| limit.is_some_and(|limit| *took + MARGIN >= limit);
    run.phases.iter().zip(&limits.phases).any(over) || over((&run.whole, &limits.whole))
}

/// The number of lines by which they differ, about.
fn distance(one: &Trace, other: &Trace) -> usize {
    let of = |one: &[_], other: &[_]| {
        let same = one.iter().zip(other).filter(|(one, other)| one == other).count();
        one.len().max(other.len()) - same
    };
    of(&one.a, &other.a) + of(&one.b, &other.b)
}
