//! rdma-core's cmtime on cmid: `cmtime -c 1000` for both sides on the simulated fabric; with the feature `verbs`
//! `cmtime --device verbs -b ADDRESS` for a server and `cmtime --device verbs -s ADDRESS -c 1000` for its client.
//!
//! Makes many connections and measures each of their phases. The two sides communicate only by the
//! connections, so either can be cmtime of rdma-core before version 52 (Debian 12 has 44). With `--oob` either
//! can be of version 52 to 58 (Debian 13 has 56). There, both sides synchronize over TCP.
#![forbid(unsafe_code)]

#[macro_use]
mod say;
mod args;
mod client;
mod equipment;
mod failure_text;
mod on_driver;
mod on_sim;
#[cfg(any(feature = "verbs", test))]
mod oob;
mod phase;
mod point;
mod report;
mod server;
mod side;
mod tally;
#[cfg(test)]
mod tests;

#[cfg(not(feature = "verbs"))]
use anyhow::bail;
use anyhow::{Result, ensure};
use clap::Parser;

use crate::args::{Args, DeviceName};
#[cfg(feature = "verbs")]
use crate::args::{Plan, Role};
#[cfg(feature = "verbs")]
use crate::on_driver::run_on;
#[cfg(feature = "verbs")]
use crate::oob::Oob;
#[cfg(feature = "verbs")]
use crate::point::Point;
use crate::report::{Report, print_served};
#[cfg(feature = "verbs")]
use crate::side::Outcome;
use crate::tally::Tally;

fn main() -> Result<()> {
    let args = Args::parse();
    match args.device {
        DeviceName::Sim => on_the_simulator(&args),
        DeviceName::Verbs => on_verbs(&args),
    }
}

/// Runs both sides, because a simulated fabric cannot be shared with another process.
fn on_the_simulator(args: &Args) -> Result<()> {
    ensure!(!args.oob, "--oob is for --device verbs: on the simulator both sides are here");
    let (tally, served) = on_sim::run(args.driver, args.port, args.plan())?;
    conclude(args, args.connections, &tally, true)?;
    if let Some(served) = served.filter(|_| !args.json) {
        say!("the server:")?;
        print_served(&served)?;
    }
    Ok(())
}

/// Ends a client: fails unless all connections have finished. Prints the results if `prints`, and after a failure.
fn conclude(args: &Args, connections: u64, tally: &Tally, prints: bool) -> Result<()> {
    if prints || tally.finished() != connections {
        Report::new(args, connections, tally).print(args.json)?;
    }
    let counted = tally.finished() + tally.failures() + tally.unfinished;
    ensure!(counted == connections, "{counted} connections were counted, not {connections}");
    ensure!(tally.finished() == connections, "not all connections have finished");
    Ok(())
}

#[cfg(feature = "verbs")]
fn on_verbs(args: &Args) -> Result<()> {
    use std::net::{IpAddr, Ipv4Addr};

    let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let role = match args.server {
        Some(server) => Role::Client((server, args.port).into()),
        None => Role::Server((args.bind.unwrap_or(any), args.port).into()),
    };
    if !args.oob {
        return one_round(args, role, args.plan(), true, &mut |_| Ok(()));
    }
    let mut oob = Oob::new(role, args.plan().deadline)?;
    for (number, plan) in oob::rounds(args.plan()).into_iter().enumerate() {
        let warms_up = number == 0;
        if let Role::Client(_) = role {
            oob.sync(Point::Ready)?;
        }
        one_round(args, role, plan, !warms_up, &mut |point| match (role, point) {
            // The client is ready before its first phase, and the time of that phase is measured.
            (Role::Client(_), Point::Ready) => Ok(()),
            _ => oob.sync(point),
        })?;
    }
    Ok(())
}

/// Makes the connections of a plan on a device of their own. Prints the results if `prints`.
#[cfg(feature = "verbs")]
fn one_round(
    args: &Args,
    role: Role,
    plan: Plan,
    prints: bool,
    meet: &mut dyn FnMut(Point) -> Result<()>,
) -> Result<()> {
    use anyhow::Context as _;

    let device = cmid_verbs::Verbs::open_with(args.backend).context("opening the RDMA device")?;
    match run_on(args.driver, device, role, plan, meet)? {
        Outcome::Client(tally) => conclude(args, plan.connections, &tally, prints),
        Outcome::Server(served) => {
            if prints {
                print_served(&served)?;
            }
            ensure!(served.ended == plan.connections, "{} of {} connections", served.ended, plan.connections);
            Ok(())
        }
    }
}

#[cfg(not(feature = "verbs"))]
fn on_verbs(_: &Args) -> Result<()> {
    bail!("this cmtime was built without the feature `verbs`: there is only --device sim")
}
