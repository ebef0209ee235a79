//! Runs the steps of a programme: their order, their times, and the summary.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::num::NonZero;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Error, Result, bail, ensure};
use cmid_softroce::Kernel;
use rustix::pipe::{PipeFlags, pipe_with};

use crate::context::{Context, THIS_PROGRAM};
use crate::step::{Ended, Lane, OutOfReach, Outcome, Step};
use crate::{host, lanes, needs};

/// The steps of a programme.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Programme {
    pub(crate) steps: &'static [Step],
    /// The option of `cargo xtask step` that selects it.
    pub(crate) option: Option<&'static str>,
    /// The time it takes.
    pub(crate) time: &'static str,
}

impl Programme {
    /// Checks what it needs, before its first step.
    fn check(self, context: &Context, vm: bool) -> Result<()> {
        println!("{} steps, about {}; a table of results is at the end", self.steps.len(), self.time);
        let is_slow = self.option.is_some();
        let kernels: &[Kernel] = match (vm, is_slow) {
            (false, _) => &[],
            (true, false) => &[context.kernel],
            (true, true) => &[Kernel::V6_1, Kernel::V6_12],
        };
        needs::check(context, kernels, is_slow)
    }
}

/// A step with its number in the programme, from one.
#[derive(Clone, Copy)]
struct NumberedStep<'a> {
    number: usize,
    of: usize,
    step: &'a Step,
}

impl NumberedStep<'_> {
    fn lane(&self) -> Option<Lane> {
        self.step.work.lane()
    }

    /// Runs the step, with a line above its output and one below it. Adds the step's name to an error.
    fn run(&self, work: impl FnOnce() -> Result<()>) -> Ended {
        println!("\n==> {}/{} {}", self.number, self.of, self.step.name);
        let begin = Instant::now();
        let result = work();
        let outcome = Outcome::of(&result, begin.elapsed());
        println!("<== {}: {outcome}", self.step.name);
        let failure = result.err().filter(|error| !error.is::<OutOfReach>());
        (outcome, failure.map(|error| error.context(format!("the step \"{}\" failed", self.step.name))))
    }
}

/// Runs the steps up to the first failure. Consecutive steps of the same lane run a few at a time.
pub(crate) fn run_all(mut context: Context, programme: Programme, vm: bool) -> Result<()> {
    programme.check(&context, vm)?;
    let steps = programme.steps;
    let is_left_out = |step: &Step| !vm && step.work.needs_vm();
    let unless_run = |step| if is_left_out(step) { Outcome::LeftOut } else { Outcome::NotReached };
    let mut outcomes: Vec<_> = steps.iter().map(unless_run).collect();
    let places = steps.iter().zip(1..).map(|(step, number)| NumberedStep { number, of: steps.len(), step });
    let places: Vec<_> = places.filter(|place| !is_left_out(place.step)).collect();
    let mut failures = Vec::new();
    for group in places.chunk_by(|one, next| one.lane().is_some() && one.lane() == next.lane()) {
        let ended = match group {
            [place] => vec![Some(place.run(|| place.step.work.run(&mut context)))],
            _ => {
                let cpus = thread::available_parallelism().map_or(1, NonZero::get);
                let at_once = group[0].lane().map_or(1, |lane| lane.at_once(cpus));
                let run = |place: &NumberedStep<'_>| place.run(|| run_apart(&context, programme, place));
                lanes::run(at_once, group, run, |(_, failure)| failure.is_some())
            }
        };
        for (place, end) in group.iter().zip(ended) {
            let (outcome, failure) = end.unwrap_or((Outcome::NotReached, None));
            outcomes[place.number - 1] = outcome;
            failures.extend(failure);
        }
        if !failures.is_empty() {
            break;
        }
    }
    let rows = steps.iter().zip(outcomes).map(|(step, outcome)| (step.name, step.work.place(&context), outcome));
    print!("{}", table(&rows.collect::<Vec<_>>()));
    match failures.len() {
        0 => Ok(()),
        1 => Err(failures.remove(0)),
        several => bail!("{several} steps failed: {}", join(&failures)),
    }
}

/// Runs the step of that name alone, after the preparation of the host that it needs.
pub(crate) fn run_one(mut context: Context, programme: Programme, name: &str) -> Result<()> {
    let step = programme.steps.iter().find(|step| step.name == name);
    let step = step.with_context(|| format!("no step is called \"{name}\""))?;
    if !step.work.is_one_guest() {
        host::prepare(&mut context)?;
    }
    step.work.run(&mut context)
}

/// The number of lines of a failed step's output that the error repeats: the other lanes print between them.
const REPEATED: usize = 20;

/// Runs the step in a process of its own, which ends at the step's limit. Prefixes its output with its number. An
/// error has the last lines of the output.
fn run_apart(context: &Context, programme: Programme, place: &NumberedStep<'_>) -> Result<()> {
    let (output, input) = pipe_with(PipeFlags::CLOEXEC).context("a pipe")?;
    let mut command = Command::new(THIS_PROGRAM);
    command.args(["step", place.step.name, "--kernel", context.kernel.series()]).args(programme.option);
    let mut child = command.stdin(Stdio::null()).stdout(input.try_clone()?).stderr(input).spawn()?;
    drop(command); // with its ends of the pipe
    let mut all = Vec::new();
    let said = BufReader::new(File::from(output)).split(b'\n').try_for_each(|line| {
        all.push(String::from_utf8_lossy(&line?).into_owned());
        println!("{:2}| {}", place.number, all[all.len() - 1]);
        io::Result::Ok(())
    });
    if said.is_err() {
        child.kill().context("the step's process")?;
    }
    let status = child.wait().context("the step's process")?;
    said.context("what the step says")?;
    ensure!(status.success(), "{status}. Its last lines:\n{}", all[all.len().saturating_sub(REPEATED)..].join("\n"));
    Ok(())
}

fn join(failures: &[Error]) -> String {
    failures.iter().map(|failure| format!("{failure:#}")).collect::<Vec<_>>().join("; ")
}

fn table(rows: &[(&str, String, Outcome)]) -> String {
    let name = rows.iter().map(|(name, ..)| name.len()).max().unwrap_or_default();
    let place = rows.iter().map(|(_, place, _)| place.len()).max().unwrap_or_default();
    let mut table = format!("\n{:name$} | {:place$} | result\n", "step", "where");
    for (step, at, outcome) in rows {
        table.push_str(&format!("{step:name$} | {at:place$} | {outcome}\n"));
    }
    table
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::step::Work;

    #[test]
    fn the_table_tells_what_was_not_run() {
        let rows = [
            ("a step", "host".to_owned(), Outcome::Passed(Duration::from_millis(1500))),
            ("b", "VM, kernel 6.12".to_owned(), Outcome::LeftOut),
        ];
        let table = table(&rows);
        assert!(table.contains("a step | host            | passed       1.5 s\n"), "{table}");
        assert!(table.contains("b      | VM, kernel 6.12 | NOT RUN (--no-vm)\n"), "{table}");
    }

    #[test]
    fn a_step_whose_needs_are_out_of_reach_is_not_run_and_no_failure() {
        let step = Step { name: "a", work: Work::Host(|_| Ok(())) };
        let place = NumberedStep { number: 1, of: 1, step: &step };
        let (outcome, failure) = place.run(|| Err(OutOfReach("the database").into()));
        assert_eq!(outcome.to_string(), "NOT RUN (the database is out of reach)");
        assert!(failure.is_none());
        let (outcome, failure) = place.run(|| Err(anyhow::anyhow!("wrong")));
        assert!(matches!(outcome, Outcome::Failed(_)));
        assert_eq!(failure.unwrap().to_string(), "the step \"a\" failed");
    }
}
