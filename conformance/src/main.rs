//! The conformance suite as a program: on the simulator anywhere, on a real kernel inside the VM.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::sync::Arc;

use clap::{Parser, ValueEnum};
use cmid_conformance::{DriverName, Lab, OnBlocking, OnEpoll, OnMio, SimLab, scenarios};
use libtest_mimic::{Arguments, Failed, Trial};

/// Runs the scenarios and says what did not come out as expected.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// Which device.
    #[arg(long, value_enum, default_value_t = DeviceName::Sim)]
    device: DeviceName,
    /// Which driver; all of them if none is named.
    #[arg(long, value_enum)]
    driver: Option<DriverName>,
    /// Only scenarios whose names contain this.
    filter: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum DeviceName {
    /// The simulated fabric.
    Sim,
    /// librdmacm, on the network of the project's VM.
    Verbs,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let drivers = args.driver.map_or(DriverName::ALL.to_vec(), |driver| vec![driver]);
    let trials: Vec<Trial> = drivers.into_iter().flat_map(|driver| trials(args.device, driver)).collect();
    // A filter that fits nothing must not look like success.
    let fits = |trial: &Trial| args.filter.as_ref().is_none_or(|filter| trial.name().contains(filter.as_str()));
    if !trials.iter().any(fits) {
        eprintln!("no scenario is called that");
        return ExitCode::FAILURE;
    }
    let one_by_one = Arguments { test_threads: Some(1), filter: args.filter, ..Arguments::default() };
    libtest_mimic::run(&one_by_one, trials).exit_code()
}

fn trials(device: DeviceName, driver: DriverName) -> Vec<Trial> {
    match (device, driver) {
        (DeviceName::Sim, DriverName::Mio) => on("sim", driver, SimLab::<OnMio<_>>::new()),
        (DeviceName::Sim, DriverName::Epoll) => on("sim", driver, SimLab::<OnEpoll<_>>::new()),
        (DeviceName::Sim, DriverName::Blocking) => on("sim", driver, SimLab::<OnBlocking<_>>::new()),
        #[cfg(feature = "verbs")]
        (DeviceName::Verbs, DriverName::Mio) => on("verbs", driver, cmid_conformance::VerbsLab::<OnMio<_>>::new()),
        #[cfg(feature = "verbs")]
        (DeviceName::Verbs, DriverName::Epoll) => on("verbs", driver, cmid_conformance::VerbsLab::<OnEpoll<_>>::new()),
        #[cfg(feature = "verbs")]
        (DeviceName::Verbs, DriverName::Blocking) => {
            on("verbs", driver, cmid_conformance::VerbsLab::<OnBlocking<_>>::new())
        }
        #[cfg(not(feature = "verbs"))]
        (DeviceName::Verbs, _) => vec![Trial::test("verbs", || Err(Failed::from("built without the feature `verbs`")))],
    }
}

fn on<L: Lab + Send + 'static>(device: &str, driver: DriverName, lab: L) -> Vec<Trial> {
    let lab = Arc::new(lab);
    scenarios::<L>()
        .into_iter()
        .map(|scenario| {
            let lab = Arc::clone(&lab);
            let name = format!("{device}::{}::{}", driver.name(), scenario.name);
            Trial::test(name, move || scenario.run(&lab).map_err(|failure| Failed::from(failure.0)))
        })
        .collect()
}
