//! Runs inputs of a fuzz target and prints what happens in them: `fuzz-input TARGET INPUT...`. `cargo xtask fuzz TARGET
//! INPUT` starts it.
#![forbid(unsafe_code)]

use std::env::args_os;
use std::process::ExitCode;
use std::{fs, path::PathBuf};

use cmid_model::{TARGETS, Target, trace};

fn main() -> ExitCode {
    let mut arguments = args_os().skip(1);
    let name = arguments.next().unwrap_or_default();
    let Some(target) = TARGETS.iter().find(|target| name == target.name) else {
        let names: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
        eprintln!("fuzz-input TARGET INPUT...; the targets are {}", names.join(", "));
        return ExitCode::FAILURE;
    };
    match arguments.map(PathBuf::from).try_for_each(|input| show(target, input)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fuzz-input: {error}");
            ExitCode::FAILURE
        }
    }
}

#[allow(clippy::print_stdout, reason = "it was asked for")]
fn show(target: &Target, input: PathBuf) -> Result<(), String> {
    let name = input.display();
    println!("==> {name}");
    let data = fs::read(&input).map_err(|error| format!("{name}: {error}"))?;
    trace();
    (target.run)(&data);
    Ok(())
}
