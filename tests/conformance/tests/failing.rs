//! The nth device call fails, for every n and every possible errno, in every fast scenario. The scenario may observe
//! unexpected results; but it ends, and everything can be destroyed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use cmid_conformance::{FailingEnv, Run, Scenario, Speed, scenarios};
use cmid_harness::OnEpoll;
use libtest_mimic::{Arguments, Failed, Trial};

type Here = FailingEnv<OnEpoll<cmid_conformance::Failing<cmid_sim::SimDevice>>>;

/// Upper bound of a scenario in this environment.
const HANGS: Duration = Duration::from_secs(60);
/// Scenarios at a time, and runs of each at a time. A run mostly waits.
const AT_ONCE: (usize, usize) = (16, 8);
/// This scenario reads requests past the core, which does not know their ids.
const PAST_THE_CORE: &[&str] = &["behaviour_54_what_the_kernel_does_to_unread_requests"];
/// Upper bound of `n`. Scenarios that make more calls repeat the same ones.
const CALLS: usize = 60;

fn main() {
    let env = Here::new(None, 0);
    let is_tried =
        |it: &Scenario<Here>| it.entry.speed == Speed::Fast && !PAST_THE_CORE.contains(&it.entry.name) && it.fits(&env);
    let names = scenarios::<Here>().into_iter().filter(is_tried).map(|it| it.entry.name);
    let trials = names.map(|name| Trial::test(name, move || every_call_of(name).map_err(Failed::from)));
    let arguments = Arguments { test_threads: Some(AT_ONCE.0), ..Arguments::from_args() };
    libtest_mimic::run(&arguments, trials.collect()).exit();
}

fn every_call_of(name: &'static str) -> Result<(), String> {
    let whole = run(name, None, 0)?;
    let mut failures = 0;
    let all: Vec<_> = (0..whole.calls.min(CALLS)).collect();
    for some in all.chunks(AT_ONCE.1) {
        failures += std::thread::scope(|scope| {
            let every: Vec<_> = some.iter().map(|&nth| scope.spawn(move || every_errno_of(name, nth))).collect();
            let ended = every.into_iter().map(|one| one.join().unwrap_or_else(|_| Err("the test panicked".into())));
            ended.sum::<Result<usize, String>>()
        })?;
    }
    if failures == 0 { Err("no call has failed".into()) } else { Ok(()) }
}

/// Returns how often the call has failed.
fn every_errno_of(name: &'static str, nth: usize) -> Result<usize, String> {
    let mut choice = 0;
    while run(name, Some(nth), choice)?.failed.is_some() {
        choice += 1;
    }
    Ok(choice)
}

/// One run, on a thread that may hang.
fn run(name: &'static str, nth: Option<usize>, choice: usize) -> Result<Run, String> {
    let (done, result) = mpsc::channel();
    let env = Arc::new(Here::new(nth, choice));
    let on_thread = Arc::clone(&env);
    std::thread::spawn(move || {
        let found = scenarios::<Here>().into_iter().find(|scenario| scenario.entry.name == name);
        let ended = catch_unwind(AssertUnwindSafe(|| {
            if let Some(scenario) = &found {
                // The result of the scenario is ignored here.
                drop(scenario.run(&on_thread));
            }
        }));
        let _nobody_waits_any_more = done.send(ended.is_ok());
    });
    let ended = result.recv_timeout(HANGS);
    let run = env.result();
    let what = format!("call {nth:?}, {:?}", run.failed);
    match ended {
        Ok(true) if run.wrong.is_empty() => Ok(run),
        Ok(true) => Err(format!("{what}: {}", run.wrong.join("; "))),
        Ok(false) => Err(format!("{what}: it panicked")),
        Err(_) => Err(format!("{what}: it hangs")),
    }
}
