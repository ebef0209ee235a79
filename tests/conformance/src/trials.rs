//! Scenarios as the trials of a test harness.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

use cmid_conformance::{Entry, Outcome, Report, Scenario, Speed, scenarios_on};
use cmid_harness::{DeviceName, Disturbance, Env, Rereg};
use libtest_mimic::{Failed, Trial};

use crate::args::Args;

/// The bounds of every environment of this program, because trials may run on threads.
pub(crate) trait Here: Env + Send + Sync + 'static {}
impl<L: Env + Send + Sync + 'static> Here for L {}

/// The parameters of a run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    speed: Speed,
    driver: Option<&'static str>,
    filter: Option<String>,
    skip: Vec<String>,
    alone: Option<String>,
    /// The kernel removes a device completely only when every program that has opened it ends. So scenarios that
    /// remove it run in a process of their own, and first: this process has not opened the device yet.
    apart: bool,
    /// The library to preload for scenarios with devices that re-register memory differently from rdma-core.
    shim: Option<PathBuf>,
}

impl Plan {
    pub(crate) fn of(args: &Args) -> Self {
        Plan {
            speed: args.speed,
            driver: args.driver.map(|driver| driver.name()),
            filter: args.filter.clone(),
            skip: args.skip.clone(),
            alone: args.alone.clone(),
            apart: args.device == DeviceName::Verbs && args.alone.is_none(),
            shim: args.rereg_shim.clone(),
        }
    }

    fn wants(&self, entry: &Entry) -> bool {
        match &self.alone {
            Some(name) => entry.name == name,
            None => {
                entry.speed == self.speed
                    && self.filter.as_ref().is_none_or(|part| entry.name.contains(part))
                    && !self.skip.iter().any(|part| entry.name.contains(part))
            }
        }
    }

    fn runs_apart(&self, entry: &Entry) -> bool {
        self.apart && (takes_the_device(entry) || self.shim_for(entry).is_some())
    }

    fn shim_for(&self, entry: &Entry) -> Option<&Path> {
        self.shim.as_deref().filter(|_| entry.rereg == Some(SHIMMED))
    }
}

/// The re-registration that devices support in a process with the shim.
pub(crate) const SHIMMED: Rereg = Rereg::PdAccess;

fn takes_the_device(entry: &Entry) -> bool {
    entry.needs.contains(&Disturbance::DeviceGoes)
}

/// The trials of a run.
#[derive(Debug)]
pub(crate) struct Set {
    plan: Plan,
    report: Arc<Mutex<Report>>,
    first: Vec<Trial>,
    then: Vec<Trial>,
}

impl Set {
    pub(crate) fn new(plan: Plan, report: Arc<Mutex<Report>>) -> Self {
        Set { plan, report, first: Vec::new(), then: Vec::new() }
    }

    /// Adds the scenarios on a driver.
    pub(crate) fn add<L: Here>(&mut self, driver: &'static str, env: L) {
        if self.plan.driver.is_some_and(|wanted| wanted != driver) {
            return;
        }
        let env = Arc::new(env);
        for scenario in
            scenarios_on::<L>(env.transport()).into_iter().filter(|scenario| self.plan.wants(&scenario.entry))
        {
            let apart = self.plan.runs_apart(&scenario.entry);
            // Alone it was asked for: it may not be ignored, which would look like success.
            let is_asked = self.plan.alone.is_some() || self.plan.shim_for(&scenario.entry).is_some();
            let here = is_asked || scenario.fits(&env);
            let trial = self.trial(driver, &env, scenario, apart).with_ignored_flag(!here);
            if apart { &mut self.first } else { &mut self.then }.push(trial);
        }
    }

    fn trial<L: Here>(&self, driver: &'static str, env: &Arc<L>, scenario: Scenario<L>, apart: bool) -> Trial {
        let (env, report, alone) = (Arc::clone(env), Arc::clone(&self.report), self.plan.alone.is_some());
        let shim = self.plan.shim_for(&scenario.entry).map(Path::to_owned);
        Trial::test(format!("{driver}::{}", scenario.entry.name), move || {
            let outcome = match (apart, alone) {
                (true, _) => run_apart(driver, &*env, &scenario.entry, shim.as_deref()),
                // The parent process adds the device again.
                (false, true) => {
                    scenario.run(&env).map_or_else(|failure| Outcome::Failed(failure.0), |()| Outcome::Passed)
                }
                (false, false) => scenario.outcome(&*env),
            };
            report.lock().unwrap_or_else(PoisonError::into_inner).note(
                scenario.entry.name,
                scenario.entry.speed,
                driver,
                outcome.clone(),
            );
            match outcome {
                Outcome::Passed | Outcome::NotHere => Ok(()),
                Outcome::Failed(reason) => Err(Failed::from(reason)),
            }
        })
    }

    pub(crate) fn into_trials(self) -> Vec<Trial> {
        self.first.into_iter().chain(self.then).collect()
    }
}

fn run_apart<L: Here>(driver: &str, env: &L, entry: &Entry, shim: Option<&Path>) -> Outcome {
    let this = std::env::current_exe().unwrap_or_else(|_| "conformance".into());
    let mut command = Command::new(this);
    command.args(["--device", "verbs", "--driver", driver, "--alone", entry.name]);
    if let Some(shim) = shim {
        command.arg("--shimmed").env("LD_PRELOAD", shim);
    }
    let outcome = match command.output() {
        Ok(output) if output.status.success() => Outcome::Passed,
        Ok(output) => Outcome::Failed(String::from_utf8_lossy(&output.stdout).into_owned()),
        Err(error) => Outcome::Failed(error.to_string()),
    };
    if !takes_the_device(entry) {
        return outcome;
    }
    match env.disturb(Disturbance::DeviceComes) {
        Err(failure) if outcome == Outcome::Passed => Outcome::Failed(failure.0),
        Ok(()) | Err(_) => outcome,
    }
}
