//! replog on three machines, with power cuts and link cuts.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use cmid_softroce::{Kernel, Machines, Options};

use crate::context::Context;

/// The arguments of `cargo xtask cuts`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The number of cuts
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Selects machines and moments
    #[arg(long)]
    seed: Option<u64>,
}

/// Those of the slow programme.
pub(crate) const FIFTY: Arguments = Arguments { rounds: 50, seed: None };

/// The number of replicas, each on a machine of its own.
const REPLICAS: u8 = 3;

/// The port of a replica for clients.
const CLIENTS: u16 = 7600;

/// The election timeout of the replicas in milliseconds.
const ELECTION: &str = "2000";

/// What begins a line of `replog torture` that is a command.
const COMMAND: &str = "operator: ";

/// Cuts the power or the link of one machine at a time while clients append, as often as replog says, and checks the
/// log.
pub(crate) fn cuts(context: &Context, arguments: &Arguments) -> Result<()> {
    let options = Options { kernel: Kernel::V6_12, timeout: Duration::from_secs(3600), ..Options::default() };
    let mut machines = Machines::start(&options, REPLICAS, CLIENTS, &replica(context))?;
    let mut torture = Command::new(context.release("replog"));
    torture.args(["torture", "--election-timeout", ELECTION, "--rounds", &arguments.rounds.to_string()]);
    torture.args(arguments.seed.map(|seed| format!("--seed={seed}")));
    torture.args(machines.addrs().iter().flat_map(|addr| ["--operated".to_owned(), addr.to_string()]));
    let mut torture = torture.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("replog")?;
    let result = operate(&mut machines, &mut torture);
    if result.is_err() {
        // It waits for an answer, or has ended.
        let _ = torture.kill();
    }
    let status = torture.wait().context("replog")?;
    result?;
    ensure!(status.success(), "replog torture: {status}");
    machines.check()?;
    Ok(())
}

/// The command of each machine: starts the replica that has its number.
fn replica(context: &Context) -> Vec<OsString> {
    let mut serve = "exec \"$0\" serve --id $((CMID_MACHINE - 1)) --folder /disk/replog".to_owned();
    for machine in 1..=REPLICAS {
        serve += &format!(" --replica 10.97.0.{machine}:7500");
    }
    serve += &format!(" --client 0.0.0.0:{CLIENTS} --election-timeout {ELECTION}");
    vec!["sh".into(), "-c".into(), serve.into(), context.release("replog").into()]
}

/// Does what the program says, until it ends.
fn operate(machines: &mut Machines, torture: &mut Child) -> Result<()> {
    let mut answers = torture.stdin.take().context("no standard input")?;
    for line in BufReader::new(torture.stdout.take().context("no standard output")?).lines() {
        let line = line?;
        println!("{line}");
        let Some(command) = line.strip_prefix(COMMAND) else { continue };
        obey(machines, command).with_context(|| line.clone())?;
        writeln!(answers, "done")?;
    }
    Ok(())
}

fn obey(machines: &mut Machines, command: &str) -> Result<()> {
    let (what, replica) = command.split_once(' ').context("no replica")?;
    let machine = replica.parse::<u8>().context("the number of a replica")?.saturating_add(1);
    match what {
        "power-off" => machines.cut_power(machine)?,
        "power-on" => machines.restore_power(machine)?,
        "link-off" => machines.set_link(machine, false)?,
        "link-on" => machines.set_link(machine, true)?,
        _ => bail!("an unknown command"),
    }
    Ok(())
}
