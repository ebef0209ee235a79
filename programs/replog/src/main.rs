//! A replicated log: replicas, a client, and a demo. See README.md.
#![forbid(unsafe_code)]

/// Prints a line. Returns the error of standard output, such as that of a full disk.
macro_rules! say {
    ($($arg:tt)*) => {{
        use std::io::Write as _;
        writeln!(std::io::stdout(), $($arg)*).map_err(|error| anyhow::anyhow!("standard output: {error}"))
    }};
}

mod args;
mod bench;
mod demo;
mod operated;
mod processes;
mod serve;
mod torture;

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use args::{Command, Replicas};
use clap::Parser;
use operated::Operated;
use processes::Processes;
use replog::client::Client;
use replog::wire::Reply;

fn main() -> ExitCode {
    match run(args::Args::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The exit status tells it too.
            let _ = writeln!(io::stderr(), "replog: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<()> {
    match command {
        Command::Demo => demo::run(),
        Command::Serve(options) => serve::run(&options),
        Command::Torture { local, operated, transport, rounds, seed } if operated.is_empty() => {
            let mut processes = Processes::start(&local, transport)?;
            torture::run(&mut processes, rounds, seed, local.election_timeout)
        }
        Command::Torture { local, operated, rounds, seed, .. } => {
            torture::run(&mut Operated(operated), rounds, seed, local.election_timeout)
        }
        Command::Bench { local, seconds } => bench::run(&local, seconds),
        Command::World { inputs } => inputs.iter().try_for_each(|input| {
            say!("==> {}", input.display())?;
            let data = std::fs::read(input).with_context(|| input.display().to_string())?;
            match replog::world::explain_bytes(&data) {
                Ok(trace) => say!("{}", trace.trim_end()),
                Err(failure) => {
                    say!("{}", failure.trace.trim_end())?;
                    bail!("{failure}");
                }
            }
        }),
        Command::Append { replicas, text, limit } => {
            let index = client(&replicas).append(text.as_bytes(), Duration::from_secs(limit))?;
            say!("{index}")
        }
        Command::Read { replicas, index } => {
            let data = client(&replicas).read(index)?;
            let data = data.with_context(|| format!("the replica has no committed record {index}"))?;
            let mut out = io::stdout();
            out.write_all(&data).and_then(|()| out.write_all(b"\n")).context("standard output")
        }
        Command::Status { replicas } => {
            let (mut client, mut silent) = (client(&replicas), 0);
            for (id, addr) in replicas.client.iter().enumerate() {
                client.turn_to(id);
                match client.status() {
                    Ok(Reply::Status { term, leader, commit, last }) => {
                        let leader = leader.map_or("unknown".to_owned(), |leader| leader.to_string());
                        say!("replica {id} at {addr}: term {term}, leader {leader}, commit {commit}, last {last}")?;
                    }
                    Ok(reply) => bail!("replica {id} at {addr}: {reply:?}"),
                    Err(error) => {
                        silent += 1;
                        say!("replica {id} at {addr}: {error:#}")?;
                    }
                }
            }
            ensure!(silent == 0, "{silent} of {} replicas have no state", replicas.client.len());
            Ok(())
        }
    }
}

fn client(replicas: &Replicas) -> Client {
    Client::new(&replicas.client)
}
