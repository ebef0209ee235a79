//! `cargo xtask demo`: the demonstrations on the simulated fabric.

use anyhow::Result;

use crate::context::Context;

/// The demonstrations: programs that have the command `demo`, the one that is built soonest first. Without optimization,
/// because building takes longer than running, and most dependencies are then built for this program already.
const DEMOS: [(&str, &str); 2] = [
    ("rping", "rdma-core's ping, on each driver, and an id that moves between channels"),
    ("replog", "a log on three replicas, of which one dies"),
];

/// Runs each demonstration as soon as it is built. cargo shows what it builds.
pub(crate) fn run(context: &mut Context) -> Result<()> {
    DEMOS.iter().zip(1..).try_for_each(|((program, what), number)| {
        println!("\n==> {number}/{} {program}: {what}. A first build takes a minute or more.", DEMOS.len());
        context.program(&format!("--package {program}"), ["demo"])
    })
}
