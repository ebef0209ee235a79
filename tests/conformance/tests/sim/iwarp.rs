//! The scenarios of iWARP on the simulator, on every driver.

use cmid_conformance::{Outcome, Scenario, scenarios_on};
use cmid_harness::{Make, OnBlocking, OnEpoll, OnMio, OnTokio, SimEnv};
use cmid_proto::Transport;
use cmid_sim::SimDevice;
use libtest_mimic::{Failed, Trial};

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    add::<OnMio<_>>("mio", &mut trials);
    add::<OnEpoll<_>>("epoll", &mut trials);
    add::<OnBlocking<_>>("blocking", &mut trials);
    add::<OnTokio<_>>("tokio", &mut trials);
    trials
}

fn add<S: Make<SimDevice> + 'static>(driver: &'static str, trials: &mut Vec<Trial>) {
    for scenario in scenarios_on::<SimEnv<S>>(Transport::Iwarp) {
        let fits = scenario.fits(&SimEnv::iwarp());
        trials.push(trial(driver, scenario).with_ignored_flag(!fits));
    }
}

/// Runs the scenario in an environment of its own.
fn trial<S: Make<SimDevice> + 'static>(driver: &'static str, scenario: Scenario<SimEnv<S>>) -> Trial {
    Trial::test(format!("iwarp::{driver}::{}", scenario.entry.name), move || match scenario.outcome(&SimEnv::iwarp()) {
        Outcome::Passed => Ok(()),
        Outcome::NotHere => Err(Failed::from("it cannot be shown here")),
        Outcome::Failed(reason) => Err(Failed::from(reason)),
    })
}
