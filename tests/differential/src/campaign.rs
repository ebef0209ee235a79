//! Many programs, and what came of them.

use std::cmp::Reverse;
use std::fmt;
use std::ops::Range;
use std::time::{Duration, Instant};

use crate::coverage::Coverage;
use crate::generate;
use crate::judge::{Reality, Run, Verdict, judge};
use crate::program::Program;
use crate::show::side_by_side;
use crate::shrink::shrink;
use crate::trace::Trace;

/// A run that was too slow is repeated, with fewer others at its side each time.
const ATTEMPTS: u32 = 10;
/// How many of them are repeated at once, the first time.
const REPEATED_AT_ONCE: usize = 16;
/// Fewer at once are of no use to a machine that is slow: each batch waits for its timers.
const SMALLEST: usize = 16;
/// A disagreement is repeated, to tell whether it always shows.
pub const REPEATS: usize = 3;

/// The first program of every day: what was found once is found again. Chosen so that [`LEAST`] programs reach everything,
/// which a test holds.
pub const FIRST_SEED: u64 = 2001;
/// How many programs must agree every day, however slow the machine.
pub const LEAST: u64 = 100;

/// What is to be done.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Which programs.
    pub seeds: Range<u64>,
    /// How many at once.
    pub batch: usize,
    /// Begin no more after this, if `least` agree.
    pub limit: Option<Duration>,
    /// Fewer are not enough.
    pub least: u64,
    /// Do nothing more after this, but end what was begun: what was too slow until then stays undecided.
    pub deadline: Option<Duration>,
    /// Stop after so many disagreements.
    pub failures: usize,
    /// Make them small.
    pub shrink: bool,
}

/// A program that the simulator and the kernel do not run alike.
#[derive(Clone, Debug)]
pub struct Disagreement {
    /// As it was made.
    pub program: Program,
    /// As small as it got.
    pub smallest: Program,
    /// What the nearest schedule of the simulator gives.
    pub simulator: Trace,
    /// What the kernel does.
    pub reality: Trace,
    /// How often it showed when it was repeated, of [`REPEATS`]; `None` if it was not.
    pub repeated: Option<usize>,
}

/// What came of a campaign.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Programs that agree.
    pub agreed: u64,
    /// Programs whose every run was too slow for their timers, or was until the deadline.
    pub undecided: Vec<u64>,
    /// Programs that differ.
    pub disagreements: Vec<Disagreement>,
    /// Runs that had to be repeated.
    pub repeated: u64,
    /// What the runs reached.
    pub coverage: Coverage,
    /// How many programs the plan has that were not run.
    pub not_run: u64,
}

/// Runs the plan.
///
/// # Errors
/// The reality's own.
pub fn run(plan: &Plan, reality: &mut impl Reality, say: impl FnMut(&str)) -> anyhow::Result<Outcome> {
    run_made(plan, |seed| Ok(generate::program(seed)), reality, say)
}

/// Runs the plan with programs that `made` returns for its seeds, in order.
///
/// # Errors
/// The reality's own, and those of `made`.
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
    // Those that were too slow, and how often.
    let mut again: Vec<(Program, u32)> = Vec::new();
    let late = || plan.deadline.is_some_and(|limit| began.elapsed() >= limit);
    while !late() {
        let over = plan.limit.is_some_and(|limit| began.elapsed() >= limit) && outcome.agreed >= plan.least;
        // The last fifth is for repeats.
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
        for found in outcome.disagreements.iter_mut().skip(known) {
            if plan.shrink && !late() {
                found.repeated = Some(confirm(&found.program, reality)?);
            }
            say(&found.to_string());
        }
        if !repeats {
            // As many at once as this machine can do in time.
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
        for found in &mut outcome.disagreements {
            say(&format!("making seed {} smaller", found.program.seed));
            make_small(found, reality, &late)?;
            say(&found.to_string());
        }
    }
    Ok(outcome)
}

impl Outcome {
    /// Programs that a busy machine may leave undecided: one in fifty, or a single one.
    fn undecided_at_most(&self) -> u64 {
        let run = self.agreed + (self.disagreements.len() + self.undecided.len()) as u64;
        (run / 50).max(1)
    }

    /// Why this is no success of that plan; nothing if it is. What was to be reached is left out where it was not asked for.
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

/// Runs programs, and returns those whose run was too slow.
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
            Verdict::TooSlow if slow + 1 >= ATTEMPTS => outcome.undecided.push(program.seed),
            Verdict::TooSlow => {
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

/// How often it shows when the program is alone.
fn confirm(program: &Program, reality: &mut impl Reality) -> anyhow::Result<usize> {
    let mut shown = 0;
    for _ in 0..REPEATS {
        for run in reality.run(std::slice::from_ref(program))? {
            shown += usize::from(matches!(judge(program, &run, reality.flavour()), Verdict::Differs(_)));
        }
    }
    Ok(shown)
}

fn make_small(found: &mut Disagreement, reality: &mut impl Reality, late: &impl Fn() -> bool) -> anyhow::Result<()> {
    let smallest = shrink(&found.program, reality, late)?;
    for _ in 0..REPEATS {
        for run in reality.run(std::slice::from_ref(&smallest))? {
            if let Verdict::Differs(simulator) = judge(&smallest, &run, reality.flavour()) {
                (found.smallest, found.simulator, found.reality) = (smallest, *simulator, run.trace);
                return Ok(());
            }
        }
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
        writeln!(f, "again: cargo xtask differential --program '{json}'")
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.coverage)?;
        if !self.undecided.is_empty() {
            writeln!(f, "undecided, too slow for their timers: seeds {:?}", self.undecided)?;
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
