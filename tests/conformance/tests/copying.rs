//! Every fast scenario on simulated devices that copy received data at the poll, to the address of the work request, and check no key,
//! as those of mlx5 and hns do: with completions that go with their QP, as there, and with completions that stay. No poll writes
//! to memory that was given back ([`Env::sound`]).

use cmid_conformance::{Disturbance, Env, OnEpoll, SimLab, Speed, scenarios};
use cmid_sim::SimDevice;
use libtest_mimic::{Arguments, Failed, Trial};

type Here = SimLab<OnEpoll<SimDevice>>;

/// Most of a run is waiting.
const AT_ONCE: usize = 16;
/// They count descriptors and heap, which others take too.
const COUNTS: &str = "nothing_is_left";

fn main() {
    let mut trials = Vec::new();
    for outlive in [false, true] {
        let fits = Here::copying(outlive);
        for scenario in scenarios::<Here>() {
            let entry = &scenario.entry;
            let needs: &[Disturbance] = entry.needs;
            if entry.speed == Speed::Fast && !entry.name.starts_with(COUNTS) && needs.iter().all(|&need| fits.can(need))
            {
                let name = format!("{}::{}", if outlive { "stay" } else { "go" }, entry.name);
                let run = move || scenario.run(&Here::copying(outlive)).map_err(|failure| Failed::from(failure.0));
                trials.push(Trial::test(name, run));
            }
        }
    }
    let arguments = Arguments { test_threads: Some(AT_ONCE), ..Arguments::from_args() };
    libtest_mimic::run(&arguments, trials).exit();
}
