//! Many programs, and what came of them.

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
const ATTEMPTS: usize = 6;
/// A disagreement is repeated, to tell whether it always shows.
const REPEATS: usize = 3;

/// What is to be done.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Which programs.
    pub seeds: Range<u64>,
    /// How many at once.
    pub batch: usize,
    /// Begin no more after this.
    pub limit: Option<Duration>,
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
    /// How often it showed when it was repeated.
    pub repeated: usize,
}

/// What came of a campaign.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Programs that agree.
    pub agreed: u64,
    /// Programs whose every run was too slow for their timers.
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
#[allow(clippy::disallowed_methods, reason = "a limit of real time")]
pub fn run(plan: &Plan, reality: &mut impl Reality, mut say: impl FnMut(&str)) -> anyhow::Result<Outcome> {
    let began = Instant::now();
    let mut outcome = Outcome::default();
    let mut next = plan.seeds.start;
    let mut batch = plan.batch.max(1);
    while next < plan.seeds.end {
        let over = plan.limit.is_some_and(|limit| began.elapsed() >= limit);
        if over || outcome.disagreements.len() >= plan.failures {
            break;
        }
        let end = plan.seeds.end.min(next + batch as u64);
        let programs: Vec<Program> = (next..end).map(generate::program).collect();
        let before = began.elapsed();
        let slow = decide(&programs, reality, &mut outcome, plan.shrink)?;
        // As many at once as this machine can do in time.
        batch = if slow * 4 > programs.len() { (batch / 2).max(4) } else { (batch + 4).min(plan.batch.max(1)) };
        next = end;
        let (agreed, differ) = (outcome.agreed, outcome.disagreements.len());
        let (count, took) = (programs.len(), began.elapsed().saturating_sub(before).as_secs_f32());
        say(&format!(
            "before seed {next}: {agreed} agree, {differ} differ; of the last {count} {slow} were repeated; {took:.1} s"
        ));
    }
    outcome.not_run = plan.seeds.end - next;
    if plan.shrink {
        for found in &mut outcome.disagreements {
            say(&format!("making seed {} smaller", found.program.seed));
            make_small(found, reality)?;
            say(&found.to_string());
        }
    } else {
        outcome.disagreements.iter().for_each(|found| say(&found.to_string()));
    }
    Ok(outcome)
}

/// Runs programs until each is decided, and returns how many took more than one run.
fn decide(
    programs: &[Program],
    reality: &mut impl Reality,
    outcome: &mut Outcome,
    shrink: bool,
) -> anyhow::Result<usize> {
    let mut left: Vec<Program> = programs.to_vec();
    let mut slow = 0;
    for attempt in 0..ATTEMPTS {
        let at_once = (left.len() >> attempt).max(1);
        let mut again = Vec::new();
        for batch in left.chunks(at_once) {
            for (program, run) in batch.iter().zip(reality.run(batch)?) {
                match judge(program, &run, reality.flavour()) {
                    Verdict::Agrees => {
                        outcome.agreed += 1;
                        outcome.coverage.add(program, &run);
                    }
                    Verdict::TooSlow => again.push(program.clone()),
                    Verdict::Differs(simulator) => {
                        let found = if shrink {
                            confirm(program, run, *simulator, reality)?
                        } else {
                            Disagreement::new(program, run, *simulator)
                        };
                        outcome.disagreements.push(found);
                    }
                }
            }
        }
        outcome.repeated += again.len() as u64;
        if attempt == 0 {
            slow = again.len();
        }
        left = again;
        if left.is_empty() {
            break;
        }
    }
    outcome.undecided.extend(left.iter().map(|program| program.seed));
    Ok(slow)
}

impl Disagreement {
    fn new(program: &Program, run: Run, simulator: Trace) -> Self {
        let (program, reality) = (program.clone(), run.trace);
        Disagreement { smallest: program.clone(), program, simulator, reality, repeated: 0 }
    }
}

fn confirm(program: &Program, run: Run, simulator: Trace, reality: &mut impl Reality) -> anyhow::Result<Disagreement> {
    let mut found = Disagreement::new(program, run, simulator);
    for _ in 0..REPEATS {
        for run in reality.run(std::slice::from_ref(program))? {
            found.repeated += usize::from(matches!(judge(program, &run, reality.flavour()), Verdict::Differs(_)));
        }
    }
    Ok(found)
}

fn make_small(found: &mut Disagreement, reality: &mut impl Reality) -> anyhow::Result<()> {
    let smallest = shrink(&found.program, reality)?;
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
        let times = self.repeated;
        writeln!(
            f,
            "seed {} differs (and did in {times} of {REPEATS} repeats); as small as it gets:",
            self.program.seed
        )?;
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
            "{agreed} programs agree, {differ} differ, {undecided} undecided, {} not run; {} runs were repeated",
            self.not_run, self.repeated
        )
    }
}
