//! Steps in the VM, a few at a time: most of them wait for the kernel's timers most of the time.

use crate::{
    context::Context,
    programme::Programme,
    step::{Outcome, Place},
};
use anyhow::{Context as _, Error, Result, ensure};
use std::{
    env,
    io::{self, Read as _},
    process::{Command, Stdio},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::Instant,
};

/// How many VMs run at once. Each has one CPU, which is emulated by one thread.
const LANES: usize = 2;

/// Runs the steps, each in a process of its own, and shows what each said when it is over. After a failure none begins.
pub(crate) fn run(context: &Context, programme: Programme, steps: &[Place<'_>]) -> Vec<(Outcome, Option<Error>)> {
    let next = AtomicUsize::new(0);
    let ended = Mutex::new(steps.iter().map(|_| (Outcome::NotReached, None)).collect::<Vec<_>>());
    let lane = || {
        while let Some((index, place)) = steps.iter().enumerate().nth(next.fetch_add(1, Relaxed)) {
            let begin = Instant::now();
            let (said, result) = run_apart(context, programme, place.step.name);
            let mut ended = ended.lock().unwrap_or_else(PoisonError::into_inner); // what is said stays together
            if result.is_err() {
                next.store(steps.len(), Relaxed);
            }
            place.announce();
            print!("{said}");
            ended[index] = place.conclude(begin, result);
        }
    };
    thread::scope(|scope| (0..LANES).for_each(|_| drop(scope.spawn(lane))));
    ended.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the step in a process of its own; what it says, and how it ended.
fn run_apart(context: &Context, programme: Programme, name: &str) -> (String, Result<()>) {
    let mut said = Vec::new();
    let result = (|| {
        let (mut output, input) = io::pipe()?;
        let mut command = Command::new(env::current_exe()?);
        command.args(["step", name, "--kernel", context.kernel.series()]);
        command.args(matches!(programme, Programme::Slow).then_some("--slow"));
        let mut child = command.stdin(Stdio::null()).stdout(input.try_clone()?).stderr(input).spawn()?;
        drop(command); // with its ends of the pipe
        output.read_to_end(&mut said)?;
        child.wait()
    })();
    let result = result.context("the step's process").and_then(|status| {
        ensure!(status.success(), "{status}");
        Ok(())
    });
    (String::from_utf8_lossy(&said).into_owned(), result)
}
