//! Every scenario on the simulator, on every driver.

use std::sync::Arc;

use cmid_conformance::{Lab, OnBlocking, OnEpoll, OnMio, SimLab, scenarios};
use libtest_mimic::{Arguments, Failed, Trial};

fn main() {
    // One at a time: descriptors and heap are counted, and quiet moments are measured.
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    let mut trials = on("mio", SimLab::<OnMio<_>>::new());
    trials.extend(on("epoll", SimLab::<OnEpoll<_>>::new()));
    trials.extend(on("blocking", SimLab::<OnBlocking<_>>::new()));
    libtest_mimic::run(&arguments, trials).exit();
}

fn on<L: Lab + Send + 'static>(driver: &str, lab: L) -> Vec<Trial> {
    let lab = Arc::new(lab);
    scenarios::<L>()
        .into_iter()
        .map(|scenario| {
            let lab = Arc::clone(&lab);
            let name = format!("{driver}::{}", scenario.name);
            Trial::test(name, move || scenario.run(&lab).map_err(|failure| Failed::from(failure.0)))
        })
        .collect()
}
