//! A replicated log: replicas, a client, and a demo. See README.md.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "its output is what it is for")]

mod args;
mod bench;
mod demo;
mod operated;
mod picture;
mod processes;
mod serve;
mod torture;

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
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
            eprintln!("replog: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<()> {
    match command {
        Command::Demo => demo::run(),
        Command::Serve(options) => serve::run(&options),
        Command::Torture { local, operated, transport, rounds, seed } if operated.is_empty() => {
            let mut processes = Processes::start(&local, transport, local.reactors)?;
            torture::run(&mut processes, rounds, seed, local.election_timeout)
        }
        Command::Torture { local, operated, rounds, seed, .. } => {
            torture::run(&mut Operated(operated), rounds, seed, local.election_timeout)
        }
        Command::Bench { local, seconds, picture } => bench::run(&local, seconds, picture.as_deref()),
        Command::World { inputs } => inputs.iter().try_for_each(|input| {
            println!("==> {}", input.display());
            let data = std::fs::read(input).with_context(|| input.display().to_string())?;
            match replog::world::explain_bytes(&data) {
                Ok(trace) => print!("{trace}"),
                Err(failure) => {
                    print!("{}", failure.trace);
                    bail!("{failure}");
                }
            }
            Ok(())
        }),
        Command::Append { replicas, text, limit } => {
            let index = client(&replicas).append(text.as_bytes(), Duration::from_secs(limit))?;
            println!("{index}");
            Ok(())
        }
        Command::Read { replicas, index } => {
            let data = client(&replicas).read(index)?;
            let data = data.with_context(|| format!("the replica has no committed record {index}"))?;
            std::io::stdout().write_all(&data)?;
            println!();
            Ok(())
        }
        Command::Status { replicas } => {
            let mut client = client(&replicas);
            for (id, addr) in replicas.client.iter().enumerate() {
                client.turn_to(id);
                match client.status() {
                    Ok(Reply::Status { term, leader, commit, last }) => {
                        let leader = leader.map_or("unknown".to_owned(), |leader| leader.to_string());
                        println!("replica {id} at {addr}: term {term}, leader {leader}, commit {commit}, last {last}");
                    }
                    Ok(reply) => println!("replica {id} at {addr}: {reply:?}"),
                    Err(error) => println!("replica {id} at {addr}: {error:#}"),
                }
            }
            Ok(())
        }
    }
}

fn client(replicas: &Replicas) -> Client {
    Client::new(&replicas.client)
}
