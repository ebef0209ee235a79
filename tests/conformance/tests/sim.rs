//! Every fast scenario on the simulator, on every driver. Writes the outcomes to the file in `CMID_REPORT`, if set.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use cmid_conformance::{Outcome, Report, Speed, scenarios};
use cmid_harness::{Env, OnBlocking, OnEpoll, OnMio, SimEnv};
use libtest_mimic::{Arguments, Failed, Trial};

fn main() {
    let report = Arc::new(Mutex::new(Report::new("the simulator, in real time")));
    let mut trials = on("mio", SimEnv::<OnMio<_>>::new(), &report);
    trials.extend(on("epoll", SimEnv::<OnEpoll<_>>::new(), &report));
    trials.extend(on("blocking", SimEnv::<OnBlocking<_>>::new(), &report));
    // One at a time: descriptors and heap are counted, and quiet periods are measured.
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    let conclusion = libtest_mimic::run(&arguments, trials);
    if let Some(path) = std::env::var_os("CMID_REPORT") {
        let written = report.lock().unwrap_or_else(PoisonError::into_inner).write(Path::new(&path));
        written.expect("the report can be written");
    }
    conclusion.exit();
}

fn on<L: Env + Send + 'static>(driver: &'static str, env: L, report: &Arc<Mutex<Report>>) -> Vec<Trial> {
    let env = Arc::new(env);
    let fast = scenarios::<L>().into_iter().filter(|scenario| scenario.entry.speed == Speed::Fast);
    fast.map(|scenario| {
        let (env, report) = (Arc::clone(&env), Arc::clone(report));
        let fits = scenario.fits(&env);
        let name = format!("{driver}::{}", scenario.entry.name);
        let trial = Trial::test(name, move || {
            let outcome = scenario.outcome(&*env);
            let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
            report.note(scenario.entry.name, scenario.entry.speed, driver, outcome.clone());
            match outcome {
                Outcome::Passed => Ok(()),
                // Ignored trials run only on request.
                Outcome::NotHere => Err(Failed::from("it cannot be shown here")),
                Outcome::Failed(reason) => Err(Failed::from(reason)),
            }
        });
        trial.with_ignored_flag(!fits)
    })
    .collect()
}
