//! Programs with steps of the data path reach what they are to compare.

use cmid_differential::generate::{Kind, NUMBERS};
use cmid_differential::program::Network;
use cmid_differential::simulated::{Schedule, simulate};
use cmid_differential::trace::Seen;
use cmid_sim::Flavour;

/// What some program of a short run must see.
const GOALS: [&str; 24] = [
    "success WcOpcode(0)",
    "success WcOpcode(1)",
    "success WcOpcode(2)",
    "success WcOpcode(3)",
    "success WcOpcode(4)",
    "success WcOpcode(128)",
    "success WcOpcode(129)",
    "bytes, Some(",
    "RNR retry counter exceeded",
    "work request flushed",
    "remote access error",
    "local QP operation error",
    "remote operation error",
    "in flight",
    "EINVAL",
    "ENOMEM",
    "ENOTCONN",
    "success WcOpcode(5)",
    "3 posted",
    "Anew",
    "1 and 0 notifications",
    "0 and 1 notifications",
    "WcFlags(GRH)",
    "remote invalid request error",
];

/// The same on soft-iWARP.
const GOALS_ON_IWARP: [&str; 16] = [
    "success WcOpcode(0)",
    "success WcOpcode(1)",
    "success WcOpcode(2)",
    "success WcOpcode(128)",
    "work request flushed",
    "local length error",
    "local protection error",
    "local QP operation error",
    "general error",
    "EOPNOTSUPP",
    "EIO",
    "3 posted",
    "1 and 0 notifications",
    "0 and 1 notifications",
    "SQD",
    "in flight",
];

#[test]
fn a_thousand_programs_reach_all_outcomes() {
    reach(Network::Roce, &GOALS);
    reach(Network::Iwarp, &GOALS_ON_IWARP);
}

fn reach(network: Network, goals: &[&str]) {
    let mut results = String::new();
    for seed in 1..=1000 {
        let run = simulate(&Kind::Data(network).program(seed), NUMBERS, Flavour::Linux6_12, &Schedule::default());
        assert_eq!(run.stalls, 0, "seed {seed}");
        for line in run.trace.a.into_iter().chain(run.trace.b) {
            if let Seen::Call { name: "data", result, .. } = line.what {
                results += &result;
                results.push('\n');
            }
        }
    }
    let missing: Vec<_> = goals.iter().filter(|goal| !results.contains(**goal)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
