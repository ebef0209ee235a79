//! Runs many scenarios at the same time. A lane is a link and a process that runs one scenario after the other on it.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use cmid_harness::{Check, DriverName, Failure};

use crate::{Entry, Link, Outcome, Report};

/// The line that a lane's process prints after the lines of a scenario that has passed.
pub const PASSED: &str = "= passed";
/// The prefix of the line that it prints, with the error, after a scenario that has failed. Then the process ends.
pub const FAILED: &str = "= failed ";

/// Part of the line noted for a device that does not work any more. Its link cannot be reused.
const BROKEN: &str = "no new connection until";

/// A scenario with a driver.
#[derive(Clone, Copy, Debug)]
struct Job {
    entry: Entry,
    driver: DriverName,
}

/// Runs these scenarios with these drivers, `lanes` at a time. Prints and reports each outcome.
///
/// # Errors
/// The set-up common to all links fails.
pub fn run(
    entries: &[Entry],
    drivers: &[DriverName],
    lanes: usize,
    environment: &str,
    say: impl Fn(&str) + Sync,
) -> Check<Report> {
    Link::prepare()?;
    let of = |entry: Entry| {
        entry.drivers.names().iter().filter(|name| drivers.contains(name)).map(move |&driver| Job { entry, driver })
    };
    let mut jobs: Vec<_> = entries.iter().flat_map(|&entry| of(entry)).collect();
    // The longest scenarios begin first.
    jobs.sort_by_key(|job| std::cmp::Reverse(job.entry.bound));
    // Scenarios that delete a device run one after the other, in a lane of their own.
    let (opening, others): (Vec<_>, Vec<_>) = jobs.into_iter().partition(|job| job.entry.makes_pds());
    let (going, staying): (Vec<_>, Vec<_>) = others.into_iter().partition(|job| job.entry.deletes_the_device());
    let (report, wires) = (Mutex::new(Report::new(environment)), AtomicU8::new(0));
    for (alone, together) in [(going, staying), (Vec::new(), opening)] {
        let (alone, together) = (Mutex::new(VecDeque::from(alone)), Mutex::new(VecDeque::from(together)));
        let work = |queue: &Mutex<VecDeque<Job>>| {
            let mut lane = None;
            while let Some(job) = take(queue) {
                let begun = Instant::now();
                let outcome = outcome(&mut lane, &wires, job);
                let took = begun.elapsed().as_secs_f32();
                let (name, driver) = (job.entry.name, job.driver.name());
                match &outcome {
                    Outcome::Passed(_) => say(&format!("ok     {took:5.1} s  {driver}::{name}")),
                    Outcome::Failed(reason) => say(&format!("FAILED {took:5.1} s  {driver}::{name}: {reason}")),
                }
                locked(&report).note(name, job.entry.speed, driver, outcome);
            }
            if let Some(Err(failure)) = lane.map(Lane::end) {
                say(&format!("a wire stays: {failure}"));
            }
        };
        thread::scope(|scope| {
            scope.spawn(|| work(&alone));
            for _ in 0..lanes {
                scope.spawn(|| work(&together));
            }
        });
    }
    Ok(report.into_inner().unwrap_or_else(PoisonError::into_inner))
}

fn take(queue: &Mutex<VecDeque<Job>>) -> Option<Job> {
    locked(queue).pop_front()
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a job on the lane, or on a fresh one. A lane is not reused after a failure: its state is unknown.
fn outcome(lane: &mut Option<Lane>, wires: &AtomicU8, job: Job) -> Outcome {
    let fresh = || Lane::begin(wires);
    if job.entry.wants_a_fresh_process()
        && let Some(Err(failure)) = lane.take().map(Lane::end)
    {
        return Outcome::Failed(format!("the lane before it: {failure}"));
    }
    let observed = lane.take().map_or_else(fresh, Ok).and_then(|mut own| {
        let observed = own.run(job);
        match &observed {
            Ok(lines) if !lines.iter().any(|line| line.contains(BROKEN)) => *lane = Some(own),
            // The observed lines, or the failure, take precedence over the result of `end`.
            Ok(_) | Err(_) => drop(own.end()),
        }
        observed
    });
    observed.map_or_else(|failure| Outcome::Failed(failure.0), Outcome::Passed)
}

/// The arguments of `faults` that start a lane's process.
#[must_use]
pub fn arguments(link: Link) -> [String; 3] {
    ["lane".into(), "--link".into(), link.number().to_string()]
}

/// A link, and a process on it.
struct Lane {
    link: Link,
    child: Child,
    input: ChildStdin,
    said: Receiver<String>,
}

impl Lane {
    fn begin(wires: &AtomicU8) -> Check<Self> {
        let number = wires.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| last.checked_add(1));
        let number = number.map_err(|_| Failure("so many wires there cannot be".into()))? + 1;
        let link = Link::of(number);
        link.lay()?;
        let this = std::env::current_exe()?;
        let mut command = Command::new(this);
        command.args(arguments(link)).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Failure("a lane has no pipes".into()));
        };
        let (sender, said) = mpsc::channel();
        // The thread ends with the process.
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Lane { link, child, input, said })
    }

    /// Runs a job. Returns the lines that the process prints. Fails at the scenario's time limit.
    fn run(&mut self, job: Job) -> Check<Vec<String>> {
        writeln!(self.input, "{} {}", job.driver.name(), job.entry.name)?;
        let end = Instant::now() + Duration::from_secs(job.entry.bound);
        let mut observed = Vec::new();
        loop {
            match self.said.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) if line == PASSED => return Ok(observed),
                Ok(line) => match line.strip_prefix(FAILED) {
                    Some(reason) => return Err(Failure(reason.replace("\\n", "\n"))),
                    None => observed.push(line),
                },
                Err(RecvTimeoutError::Timeout) => {
                    return Err(Failure(format!("hung: not over after {} s", job.entry.bound)));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let status = self.child.wait()?;
                    return Err(Failure(format!("the process ended: {status}")));
                }
            }
        }
    }

    /// Kills the process and removes the link.
    fn end(mut self) -> Check {
        self.child.kill()?;
        self.child.wait()?;
        self.link.remove()
    }
}
