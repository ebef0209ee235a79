//! Every fast scenario on the simulator, on every driver. If `CMID_REPORT` is set, writes the outcomes to that file, and
//! compares them with the recorded ones. In the same program, because compiling the scenarios takes most of its time: those
//! of iWARP (`iwarp::`), and those on devices that copy received data at the poll (`copying::`).

mod copying;
mod iwarp;

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use cmid_conformance::{Outcome, Report, Scenario, Speed, scenarios};
use cmid_harness::{Make, OnBlocking, OnEpoll, OnMio, OnTokio, SimEnv};
use cmid_sim::SimDevice;
use libtest_mimic::{Arguments, Failed, Trial};

/// The number of concurrent scenarios. They mostly wait.
const AT_ONCE: usize = 16;

fn main() {
    let report = Arc::new(Mutex::new(Report::new("the simulator, in real time")));
    let (mut alone, mut together) = (Vec::new(), Vec::new());
    add::<OnMio<_>>("mio", &report, &mut alone, &mut together);
    add::<OnEpoll<_>>("epoll", &report, &mut alone, &mut together);
    add::<OnBlocking<_>>("blocking", &report, &mut alone, &mut together);
    add::<OnTokio<_>>("tokio", &report, &mut alone, &mut together);
    together.extend(iwarp::trials());
    together.extend(copying::trials());
    let arguments = Arguments::from_args();
    let run =
        |trials, threads| libtest_mimic::run(&Arguments { test_threads: Some(threads), ..arguments.clone() }, trials);
    let (first, second) = (run(alone, 1), run(together, AT_ONCE));
    if let Some(path) = std::env::var_os("CMID_REPORT") {
        let report = report.lock().unwrap_or_else(PoisonError::into_inner);
        report.write(Path::new(&path)).expect("the report can be written");
        let recorded = Path::new(env!("CARGO_MANIFEST_DIR")).join("results/sim.json");
        let recorded = Report::recorded(&recorded).expect("the recorded outcomes can be read");
        if let Err(differences) = report.compare(&recorded, Speed::Fast) {
            eprintln!("{differences}");
            std::process::exit(1);
        }
    }
    first.exit_if_failed();
    second.exit();
}

/// Adds the fast scenarios of one driver. Those that count the descriptors and the heap of the process run `alone`.
fn add<S: Make<SimDevice> + 'static>(
    driver: &'static str,
    report: &Arc<Mutex<Report>>,
    alone: &mut Vec<Trial>,
    together: &mut Vec<Trial>,
) {
    let env = SimEnv::<S>::new();
    for scenario in scenarios::<SimEnv<S>>().into_iter().filter(|it| it.entry.speed == Speed::Fast) {
        let trials = if scenario.entry.runs_beside_others(&env) { &mut *together } else { &mut *alone };
        let fits = scenario.fits(&env);
        trials.push(trial(driver, scenario, Arc::clone(report)).with_ignored_flag(!fits));
    }
}

/// Runs the scenario in an environment of its own.
fn trial<S: Make<SimDevice> + 'static>(
    driver: &'static str,
    scenario: Scenario<SimEnv<S>>,
    report: Arc<Mutex<Report>>,
) -> Trial {
    Trial::test(format!("{driver}::{}", scenario.entry.name), move || {
        let outcome = scenario.outcome(&SimEnv::new());
        let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
        report.note(scenario.entry.name, scenario.entry.speed, driver, outcome.clone());
        match outcome {
            Outcome::Passed => Ok(()),
            // Ignored trials run only on request.
            Outcome::NotHere => Err(Failed::from("it cannot be shown here")),
            Outcome::Failed(reason) => Err(Failed::from(reason)),
        }
    })
}
