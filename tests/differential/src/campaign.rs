//! Runs many programs, and collects their outcomes.

use std::cmp::Reverse;
use std::fmt;
use std::ops::Range;
use std::time::{Duration, Instant};

use proptest::strategy::ValueTree as _;

use crate::coverage::Coverage;
use crate::generate::Kind;
use crate::judge::{Reality, Run, Verdict, judge};
use crate::program::Program;
use crate::show::side_by_side;
use crate::trace::Trace;

/// The maximum number of runs of a program that is too slow. Each time fewer others run beside it.
const ATTEMPTS: u32 = 10;
/// The number of slow programs that are repeated at once, the first time.
const REPEATED_AT_ONCE: usize = 16;
/// The smallest batch. Smaller ones do not help a slow machine: each batch waits for its timers.
const SMALLEST: usize = 16;
/// The number of smaller programs that are tried: the bytes of the last ones change little.
const SMALLER_MAX: usize = 2000;
/// The number of repetitions of a disagreement, which show whether it is reproducible.
pub const REPEATS: usize = 3;

/// The first seed of the daily run. It is fixed, so that disagreements are reproducible, and chosen so that [`LEAST`]
/// programs reach all goals, which a test checks.
pub const FIRST_SEED: u64 = 2001;
/// The minimum number of programs that must agree in the daily run, on any machine.
pub const LEAST: u64 = 100;

/// The parameters of a campaign.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The kind of the programs.
    pub kind: Kind,
    /// The seeds of the programs.
    pub seeds: Range<u64>,
    /// The number of concurrent programs.
    pub batch: usize,
    /// Begin no new program after this, if `least` agree.
    pub limit: Option<Duration>,
    /// The minimum number of programs that must agree.
    pub least: u64,
    /// Begin nothing after this, but finish what was begun. Programs that were too slow until then stay undecided.
    pub deadline: Option<Duration>,
    /// Stop after the batch with this many disagreements, and show and shrink no more: they mostly have one cause.
    pub failures: usize,
    /// Shrink the programs that differ.
    pub shrink: bool,
}

/// A program with different results on the simulator and on the kernel.
#[derive(Clone, Debug)]
pub struct Disagreement {
    /// The generated program.
    pub program: Program,
    /// The program after shrinking.
    pub smallest: Program,
    /// The trace of the simulator's nearest schedule.
    pub simulator: Trace,
    /// The kernel's trace.
    pub reality: Trace,
    /// How often it was reproduced in [`REPEATS`] repetitions; `None` if it was not repeated.
    pub repeated: Option<usize>,
}

/// The outcome of a campaign.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Programs that agree.
    pub agreed: u64,
    /// Programs that were too slow for their timers in all runs, up to the deadline.
    pub undecided: Vec<u64>,
    /// Programs that differ.
    pub disagreements: Vec<Disagreement>,
    /// Runs that had to be repeated.
    pub repeated: u64,
    /// The goals that the runs have reached.
    pub coverage: Coverage,
    /// The number of programs in the plan that were not run.
    pub not_run: u64,
}

/// Runs the plan.
///
/// # Errors
/// The reality fails.
pub fn run(plan: &Plan, reality: &mut impl Reality, say: impl FnMut(&str)) -> anyhow::Result<Outcome> {
    run_made(plan, |seed| Ok(plan.kind.program(seed)), reality, say)
}

/// Runs the plan with programs that `made` returns for its seeds, in order.
///
/// # Errors
/// The reality or `made` fails.
#[allow(clippy::disallowed_methods, reason = "a limit of real time")]
pub fn run_made(
    plan: &Plan,
    mut made: impl FnMut(u64) -> anyhow::Result<Program>,
    reality: &mut impl Reality,
    mut say: impl FnMut(&str),
) -> anyhow::Result<Outcome> {
    let began = Instant::now();
    let mut outcome = Outcome::default();
    let mut next = plan.seeds.start;
    let mut size = plan.batch.max(1);
    // Programs that were too slow, and how often.
    let mut again: Vec<(Program, u32)> = Vec::new();
    let late = || plan.deadline.is_some_and(|limit| began.elapsed() >= limit);
    while !late() {
        let over = plan.limit.is_some_and(|limit| began.elapsed() >= limit) && outcome.agreed >= plan.least;
        // The last fifth of the time is for repeats.
        let over = over || plan.deadline.is_some_and(|limit| began.elapsed() >= limit * 4 / 5);
        let over = over || next == plan.seeds.end || outcome.disagreements.len() >= plan.failures;
        let repeats = again.len() >= REPEATED_AT_ONCE || over;
        let batch = if repeats {
            again.sort_by_key(|&(_, times)| Reverse(times));
            let most = again.first().map_or(0, |&(_, times)| (REPEATED_AT_ONCE >> (times - 1).min(31)).max(1));
            again.drain(..most.min(again.len())).collect()
        } else {
            let end = plan.seeds.end.min(next.saturating_add(size as u64));
            let new: anyhow::Result<Vec<_>> = (next..end).map(|seed| Ok((made(seed)?, 0))).collect();
            next = end;
            new?
        };
        if batch.is_empty() {
            break;
        }
        let (count, before, known) = (batch.len(), began.elapsed(), outcome.disagreements.len());
        let slow = decide(batch, reality, &mut outcome)?;
        for (number, found) in outcome.disagreements.iter_mut().enumerate().skip(known) {
            if plan.shrink && !late() {
                found.repeated = Some(confirm(&found.program, reality)?);
            }
            if number < plan.failures {
                say(&found.to_string());
            } else {
                say(&format!("seed {} differs too", found.program.seed));
            }
        }
        // What no repeat shows is due to the time that the others took: the kernel's timers ran meanwhile.
        for found in outcome.disagreements.split_off(known) {
            if found.repeated == Some(0) {
                outcome.undecided.push(found.program.seed);
            } else {
                outcome.disagreements.push(found);
            }
        }
        if !repeats {
            // Adapts the number of concurrent programs to the speed of the machine.
            size = if slow.len() * 4 > count { (size / 2).max(SMALLEST) } else { (size + 4).min(plan.batch.max(1)) };
        }
        let (agreed, differ) = (outcome.agreed, outcome.disagreements.len());
        let took = began.elapsed().saturating_sub(before).as_secs_f32();
        say(&format!(
            "before seed {next}: {agreed} agree, {differ} differ; of the last {count} {} are to be repeated; {took:.1} s",
            slow.len()
        ));
        again.extend(slow);
    }
    outcome.undecided.extend(again.iter().map(|(program, _)| program.seed));
    outcome.not_run = plan.seeds.end.saturating_sub(next);
    if plan.shrink {
        for found in outcome.disagreements.iter_mut().take(plan.failures) {
            say(&format!("making seed {} smaller", found.program.seed));
            make_small(found, plan.kind, reality, &late)?;
            say(&found.to_string());
        }
    }
    Ok(outcome)
}

impl Outcome {
    /// The number of programs that a busy machine may leave undecided: one in fifty, or a single one.
    fn undecided_at_most(&self) -> u64 {
        let run = self.agreed + (self.disagreements.len() + self.undecided.len()) as u64;
        (run / 50).max(1)
    }

    /// The reasons why the outcome fails the plan; empty if it succeeds. Missing goals count only with `everything`.
    #[must_use]
    pub fn objections(&self, plan: &Plan, everything: bool) -> Vec<String> {
        let (differ, undecided, missing) = (self.disagreements.len(), self.undecided.len(), self.coverage.missing());
        let all = [
            (differ > 0, format!("{differ} differ")),
            (undecided as u64 > self.undecided_at_most(), format!("{undecided} are undecided")),
            (self.agreed < plan.least.max(1), format!("only {} agree, of {} at least", self.agreed, plan.least.max(1))),
            (plan.limit.is_none() && self.not_run > 0, format!("{} were not run", self.not_run)),
            (everything && !missing.is_empty(), format!("no program reached: {}", missing.join("; "))),
        ];
        all.into_iter().filter_map(|(holds, text)| holds.then_some(text)).collect()
    }
}

/// Runs programs, and returns those that were too slow.
fn decide(
    programs: Vec<(Program, u32)>,
    reality: &mut impl Reality,
    outcome: &mut Outcome,
) -> anyhow::Result<Vec<(Program, u32)>> {
    let (programs, slow): (Vec<Program>, Vec<u32>) = programs.into_iter().unzip();
    let mut again = Vec::new();
    for ((program, slow), run) in programs.iter().zip(slow).zip(reality.run(&programs)?) {
        match judge(program, &run, reality.flavour()) {
            Verdict::Agrees => {
                outcome.agreed += 1;
                outcome.coverage.add(program, &run);
            }
            Verdict::TooSlow(_) if slow + 1 >= ATTEMPTS => outcome.undecided.push(program.seed),
            Verdict::TooSlow(_) => {
                outcome.repeated += 1;
                again.push((program.clone(), slow + 1));
            }
            Verdict::Differs(simulator) => {
                let found = Disagreement::new(program, run, *simulator);
                outcome.disagreements.push(found);
            }
        }
    }
    Ok(again)
}

impl Disagreement {
    fn new(program: &Program, run: Run, simulator: Trace) -> Self {
        let (program, reality) = (program.clone(), run.trace);
        Disagreement { smallest: program.clone(), program, simulator, reality, repeated: None }
    }
}

/// Runs the program alone.
fn differs(program: &Program, reality: &mut impl Reality) -> anyhow::Result<Option<Disagreement>> {
    let runs = reality.run(std::slice::from_ref(program))?;
    Ok(runs.into_iter().find_map(|run| match judge(program, &run, reality.flavour()) {
        Verdict::Differs(simulator) => Some(Disagreement::new(program, run, *simulator)),
        Verdict::Agrees | Verdict::TooSlow(_) => None,
    }))
}

/// How often the disagreement is reproduced when the program runs alone.
fn confirm(program: &Program, reality: &mut impl Reality) -> anyhow::Result<usize> {
    let mut shown = 0;
    for _ in 0..REPEATS {
        shown += usize::from(differs(program, reality)?.is_some());
    }
    Ok(shown)
}

/// Makes the program smaller while it still differs and it is not too late: without steps, and with earlier choices.
fn make_small(
    found: &mut Disagreement,
    kind: Kind,
    reality: &mut impl Reality,
    late: &impl Fn() -> bool,
) -> anyhow::Result<()> {
    let mut tree = kind.tree(found.program.seed);
    let mut is_new = tree.simplify();
    for _ in 0..SMALLER_MAX {
        if !is_new || late() {
            break;
        }
        let program = kind.program_of(found.program.seed, &tree.current());
        let shows = if program == found.smallest {
            true
        } else if let Some(smaller) = differs(&program, reality)? {
            *found = Disagreement { program: found.program.clone(), repeated: found.repeated, ..smaller };
            true
        } else {
            false
        };
        is_new = if shows { tree.simplify() } else { tree.complicate() };
    }
    Ok(())
}

impl fmt::Display for Disagreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.repeated {
            Some(times) => writeln!(f, "seed {} differs, alone in {times} of {REPEATS} repeats:", self.program.seed)?,
            None => writeln!(f, "seed {} differs; not repeated:", self.program.seed)?,
        }
        write!(f, "{}", self.smallest)?;
        write!(f, "{}", side_by_side(&self.simulator, &self.reality))?;
        let json = serde_json::to_string(&self.smallest).map_err(|_| fmt::Error)?;
        let transport = if self.program.network.is_roce() { "" } else { "--transport siw " };
        writeln!(f, "again: cargo xtask differential {transport}--program '{json}'")
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.coverage)?;
        if !self.undecided.is_empty() {
            writeln!(
                f,
                "undecided, too slow for their timers, or different only beside others: seeds {:?}",
                self.undecided
            )?;
        }
        let (agreed, differ, undecided) = (self.agreed, self.disagreements.len(), self.undecided.len());
        write!(
            f,
            "{agreed} programs agree, {differ} differ, {undecided} undecided of at most {}, {} not run; {} runs were repeated",
            self.undecided_at_most(),
            self.not_run,
            self.repeated
        )
    }
}
