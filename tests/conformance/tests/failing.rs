//! The nth device call fails, for every n and every possible errno, in every fast scenario. The scenario may observe
//! unexpected results; but it ends, and everything can be destroyed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use cmid_conformance::{FailingEnv, Run, Speed, scenarios};
use cmid_harness::{Env, OnEpoll};
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
    let runs = Arc::new(AtomicUsize::new(0));
    let fast = scenarios::<Here>()
        .into_iter()
        .filter(|it| it.entry.speed == Speed::Fast && !PAST_THE_CORE.contains(&it.entry.name));
    let trials = fast.map(|scenario| {
        let runs = Arc::clone(&runs);
        let name = scenario.entry.name;
        Trial::test(name, move || every_call_of(name, &runs).map_err(Failed::from))
    });
    let trials = trials.collect();
    let arguments = Arguments { test_threads: Some(AT_ONCE.0), ..Arguments::from_args() };
    let conclusion = libtest_mimic::run(&arguments, trials);
    eprintln!("{} runs", runs.load(Ordering::Relaxed));
    conclusion.exit();
}

fn every_call_of(name: &'static str, runs: &AtomicUsize) -> Result<(), String> {
    let whole = run(name, None, 0)?;
    runs.fetch_add(1, Ordering::Relaxed);
    let all: Vec<_> = (0..whole.calls.min(CALLS)).collect();
    for some in all.chunks(AT_ONCE.1) {
        std::thread::scope(|scope| {
            let every: Vec<_> = some.iter().map(|&nth| scope.spawn(move || every_errno_of(name, nth, runs))).collect();
            every.into_iter().try_for_each(|one| one.join().unwrap_or_else(|_| Err("the test panicked".into())))
        })?;
    }
    Ok(())
}

fn every_errno_of(name: &'static str, nth: usize, runs: &AtomicUsize) -> Result<(), String> {
    for choice in 0.. {
        if run(name, Some(nth), choice)?.failed.is_none() {
            break;
        }
        runs.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// One run, on a thread that may hang.
fn run(name: &'static str, nth: Option<usize>, choice: usize) -> Result<Run, String> {
    let (done, result) = mpsc::channel();
    let env = Arc::new(Here::new(nth, choice));
    let on_thread = Arc::clone(&env);
    std::thread::spawn(move || {
        let found = scenarios::<Here>().into_iter().find(|scenario| scenario.entry.name == name);
        let needs_met = |env: &Here| found.as_ref().is_some_and(|it| it.entry.needs.iter().all(|&need| env.can(need)));
        let ended = catch_unwind(AssertUnwindSafe(|| match &found {
            // The result of the scenario is ignored here.
            Some(scenario) if needs_met(&on_thread) => drop(scenario.run(&on_thread)),
            Some(_) | None => {}
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
