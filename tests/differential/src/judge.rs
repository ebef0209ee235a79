//! Decides whether a trace is one of those that the simulator allows.

use std::time::Duration;

use cmid_sim::Flavour;

use crate::address::Numbers;
use crate::program::Program;
use crate::runner::Observed;
use crate::simulated::{Limits, Schedule, Simulated, schedules, simulate};
use crate::trace::Trace;

/// How much earlier than the simulator's a real timer may end.
const MARGIN: Duration = Duration::from_millis(25);

/// The time waits of a slow run that are tried in other orders: there are as many runs as steps already.
const LATE_TURNS: u32 = 2;

/// The result of a run on a reality.
#[derive(Clone, Debug)]
pub struct Run {
    /// The ports and QP numbers that the run used.
    pub numbers: Numbers,
    /// The observations of the sides.
    pub trace: Trace,
    /// Counts that are not part of the trace.
    pub observed: Observed,
    /// Whether [the errnos of QPs](Trace::drop_errnos) are not in it.
    pub drops_errnos: bool,
    /// The duration of each part.
    pub phases: Vec<Duration>,
    /// The duration of the whole run.
    pub whole: Duration,
}

impl Run {
    /// A run on the simulator in place of a kernel. It takes no time.
    #[must_use]
    pub fn simulated(numbers: Numbers, ran: Simulated) -> Self {
        let phases = vec![Duration::ZERO; ran.limits.phases.len()];
        let Simulated { trace, observed, .. } = ran;
        Run { numbers, trace, observed, drops_errnos: false, phases, whole: Duration::ZERO }
    }
}

/// The system that the simulator is compared with: a kernel.
pub trait Reality {
    /// Runs programs, concurrently if possible.
    ///
    /// # Errors
    /// The reality itself fails.
    fn run(&mut self, programs: &[Program]) -> anyhow::Result<Vec<Run>>;

    /// The version of the kernel.
    fn flavour(&self) -> Flavour;
}

/// The result of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The trace is the simulator's, under one of the schedules.
    Agrees,
    /// A timer may have ended at another step. The run must be repeated. Holds the trace of the nearest schedule.
    TooSlow(Box<Trace>),
    /// No schedule gives this trace. Holds the trace of the nearest one.
    Differs(Box<Trace>),
}

/// Compares a run with the simulator.
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
    if search.slow && schedules(program).iter().any(|schedule| search.late(schedule)) {
        return Verdict::Agrees;
    }
    match search.nearest {
        Some((_, trace)) if search.slow => Verdict::TooSlow(Box::new(trace)),
        Some((_, trace)) => Verdict::Differs(Box::new(trace)),
        // Each program has a schedule.
        None => Verdict::Agrees,
    }
}

/// The choices of a simulated run: [`Simulated::time_waits_in_turn`](crate::simulated::Simulated::time_waits_in_turn)
/// and [`Simulated::sends`](crate::simulated::Simulated::sends).
struct Choices {
    in_turn: u32,
    sends: u32,
}

/// Searches the schedule of a run.
struct Search<'a> {
    program: &'a Program,
    run: &'a Run,
    flavour: Flavour,
    nearest: Option<(usize, Trace)>,
    slow: bool,
}

impl Search<'_> {
    /// Succeeds if the run agrees with this schedule, with time waits in any order. Otherwise returns the simulator's
    /// choices.
    fn in_any_order(&mut self, schedule: &Schedule) -> Result<(), Choices> {
        let first = match self.agrees(schedule) {
            Ok(()) => return Ok(()),
            Err(first) => first,
        };
        let mut orders = schedule.other_orders(first.in_turn);
        if orders.any(|schedule| self.agrees(&schedule).is_ok()) { Ok(()) } else { Err(first) }
    }

    /// Whether a run that was slower than its timers agrees with this schedule, if they end after one of its steps.
    fn late(&mut self, schedule: &Schedule) -> bool {
        schedule.late(self.program.steps.len(), self.run.whole).any(|schedule| {
            let Err(first) = self.agrees(&schedule) else { return true };
            schedule.other_orders(first.in_turn.min(LATE_TURNS)).any(|schedule| self.agrees(&schedule).is_ok())
        })
    }

    /// Succeeds if the run agrees with this schedule. Otherwise returns the other choices of its run.
    fn agrees(&mut self, schedule: &Schedule) -> Result<(), Choices> {
        let mut simulated = simulate(self.program, self.run.numbers, self.flavour, schedule);
        if self.run.drops_errnos {
            simulated.trace.drop_errnos();
        }
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

/// The approximate number of different lines.
fn distance(one: &Trace, other: &Trace) -> usize {
    let of = |one: &[_], other: &[_]| {
        let same = one.iter().zip(other).filter(|(one, other)| one == other).count();
        one.len().max(other.len()) - same
    };
    of(&one.a, &other.a) + of(&one.b, &other.b)
}
