//! Steps in the VM, a few at a time: most of them wait for the kernel's timers most of the time.

use crate::{
    context::{Context, this_program},
    programme::Programme,
    step::{NumberedStep, Outcome},
};
use anyhow::{Context as _, Error, Result, ensure};
use std::{
    io::{self, BufRead as _, BufReader},
    process::{Command, Stdio},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::Instant,
};

/// How many VMs run at once, if there are as many CPUs. Each has one CPU, which is emulated by one thread.
const LANES: usize = 2;

/// What became of a step, and its failure.
pub(crate) type Ended = (Outcome, Option<Error>);

/// Runs the steps, each in a process of its own. What they say is told apart by their numbers. After a failure none begins.
pub(crate) fn run(context: &Context, programme: Programme, steps: &[NumberedStep<'_>]) -> Vec<Ended> {
    let lanes = thread::available_parallelism().map_or(1, |cpus| cpus.get().min(LANES));
    in_lanes(lanes, steps, |place| {
        place.announce();
        let begin = Instant::now();
        place.conclude(begin, run_apart(context, programme, place))
    })
}

fn in_lanes<T: Sync>(lanes: usize, steps: &[T], step: impl Fn(&T) -> Ended + Sync) -> Vec<Ended> {
    let next = AtomicUsize::new(0);
    let ended = Mutex::new(steps.iter().map(|_| (Outcome::NotReached, None)).collect::<Vec<_>>());
    let lane = || {
        while let Some((index, place)) = steps.iter().enumerate().nth(next.fetch_add(1, Relaxed)) {
            let one = step(place);
            if one.1.is_some() {
                next.store(steps.len(), Relaxed);
            }
            ended.lock().unwrap_or_else(PoisonError::into_inner)[index] = one;
        }
    };
    thread::scope(|scope| (0..lanes).for_each(|_| drop(scope.spawn(lane))));
    ended.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the step in a process of its own, which the step's limit ends.
fn run_apart(context: &Context, programme: Programme, place: &NumberedStep<'_>) -> Result<()> {
    let (output, input) = io::pipe().context("a pipe")?;
    let mut command = Command::new(this_program()?);
    command.args(["step", place.step.name, "--kernel", context.kernel.series()]);
    command.args(matches!(programme, Programme::Slow).then_some("--slow"));
    let mut child = command.stdin(Stdio::null()).stdout(input.try_clone()?).stderr(input).spawn()?;
    drop(command); // with its ends of the pipe
    let said = BufReader::new(output).split(b'\n').try_for_each(|line| {
        println!("{:2}| {}", place.number, String::from_utf8_lossy(&line?));
        io::Result::Ok(())
    });
    if said.is_err() {
        child.kill().context("the step's process")?;
    }
    let status = child.wait().context("the step's process")?;
    said.context("what the step says")?;
    ensure!(status.success(), "{status}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn after_a_failure_none_begins() {
        let passes = |_: &usize| (Outcome::Passed(Duration::ZERO), None);
        assert!(in_lanes(2, &[0, 1, 2, 3, 4], passes).iter().all(|(outcome, _)| matches!(outcome, Outcome::Passed(_))));
        let third_fails = |&number: &usize| match number {
            2 => (Outcome::Failed(Duration::ZERO), Some(Error::msg("no"))),
            other => passes(&other),
        };
        let ended = in_lanes(1, &[0, 1, 2, 3, 4], third_fails);
        assert!(matches!(ended[1], (Outcome::Passed(_), None)));
        assert!(matches!(ended[2], (Outcome::Failed(_), Some(_))));
        assert!(ended[3..].iter().all(|one| matches!(one, (Outcome::NotReached, None))));
    }
}
