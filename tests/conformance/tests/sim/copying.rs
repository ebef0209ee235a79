//! Every fast scenario on simulated devices that copy received data at the poll, to the address of the work request,
//! and check no key, as those of mlx5 and hns do. Runs with completions that are discarded with their QP, as there,
//! and with completions that stay. No poll writes to memory that was returned
//! ([`Env::sound`](cmid_harness::Env::sound)).

use cmid_conformance::scenarios;
use cmid_harness::{OnEpoll, SimEnv};
use cmid_sim::SimDevice;
use libtest_mimic::{Failed, Trial};

type Here = SimEnv<OnEpoll<SimDevice>>;

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for outlive in [false, true] {
        let fits = Here::copying(outlive);
        for scenario in scenarios::<Here>().into_iter().filter(|it| it.entry.runs_beside_others(&fits)) {
            let name = format!("copying::{}::{}", if outlive { "stay" } else { "go" }, scenario.entry.name);
            let run = move || scenario.run(&Here::copying(outlive)).map_err(|failure| Failed::from(failure.0));
            trials.push(Trial::test(name, run));
        }
    }
    trials
}
