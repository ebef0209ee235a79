//! Visits every state of the worlds and prints how many there are.

use std::process::ExitCode;

use clap::Parser;
use cmid_exploration::connections::{Connections, scenes};
use cmid_exploration::search;

/// Visits every state of small worlds around the real core. Prints their number and the findings.
#[derive(Parser)]
struct Args {
    /// Worlds with wider bounds too.
    #[arg(long)]
    large: bool,
    /// Only these worlds.
    worlds: Vec<String>,
}

#[expect(clippy::print_stdout, reason = "it is a program that prints")]
fn main() -> ExitCode {
    let args = Args::parse();
    let is_wanted = |name: &str, large: bool| {
        if args.worlds.is_empty() { args.large || !large } else { args.worlds.iter().any(|it| it == name) }
    };
    let (mut good, mut searched) = (true, 0);
    for (scenes, large) in [(scenes::ALL, false), (scenes::LARGE, true)] {
        for scene in scenes.iter().filter(|scene| is_wanted(scene.name, large)) {
            let report = search(Connections::new(scene.clone()));
            println!("{report}");
            good &= report.is_good();
            searched += 1;
        }
    }
    if good && searched > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
