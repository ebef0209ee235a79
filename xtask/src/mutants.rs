//! `cargo xtask mutants`: changes `cmid-proto` in one place at a time, and its own tests must fail. cargo-mutants does it, with
//! `.cargo/mutants.toml`; a change that makes no difference is excluded there, with the reason.
//!
//! There are more than a thousand changes, so they are judged in shards. A shard that is done stays done until something changes
//! that it depends on: a run that is stopped goes on where it was.

use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use clap::Args;

use crate::context::Context;
use crate::tools::MUTANTS;

/// Each has about 120 changes, spread over all files: a few shards are a sample.
const SHARDS: u32 = 16;

/// How many in a hundred changes that compile must fail a test.
const SCORE: usize = 95;

/// What the verdicts depend on.
const INPUTS: [&str; 4] = [".cargo/mutants.toml", "proto", "Cargo.toml", "Cargo.lock"];

/// The exit statuses of cargo-mutants when it has judged: all failed a test, some failed none, tests did not end.
const JUDGED: [i32; 3] = [0, 2, 3];

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Judge these shards only, of 0 to 15
    #[arg(value_name = "SHARD", value_parser = clap::value_parser!(u32).range(..i64::from(SHARDS)))]
    shards: Vec<u32>,
}

pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    if arguments.shards.is_empty() { judge(context, 0..SHARDS) } else { judge(context, arguments.shards.clone()) }
}

/// All of them, as a step.
pub(crate) fn all(context: &mut Context) -> Result<()> {
    judge(context, 0..SHARDS)
}

fn judge(context: &Context, shards: impl IntoIterator<Item = u32>) -> Result<()> {
    let mut hasher = DefaultHasher::new();
    for input in INPUTS {
        hash(&context.root.join(input), &mut hasher)?;
    }
    let place = context.target().join("mutants").join(format!("{:016x}", hasher.finish()));
    let mut sum = Verdicts::default();
    for shard in shards {
        let output = place.join(shard.to_string());
        let done = output.join("done");
        if !done.is_file() {
            fs::create_dir_all(&output).with_context(|| output.display().to_string())?;
            let mut command = MUTANTS.command(context)?;
            command.args([
                "mutants",
                "--package",
                "cmid-proto",
                "--no-shuffle",
                "--colors",
                "never",
                "--sharding",
                "round-robin",
                "--shard",
            ]);
            command.arg(format!("{shard}/{SHARDS}")).arg("--output").arg(&output).env_remove("CARGO_TARGET_DIR");
            let status = command.status().context("cargo-mutants")?;
            ensure!(status.code().is_some_and(|code| JUDGED.contains(&code)), "cargo-mutants, shard {shard}: {status}");
            fs::write(&done, "").with_context(|| done.display().to_string())?;
        }
        sum.read(&output.join("mutants.out"))?;
    }
    sum.missed.iter().for_each(|change| println!("fails no test of cmid-proto: {change}"));
    let (failed, viable) = (sum.failed, sum.failed + sum.missed.len());
    println!("{failed} of {viable} changes failed a test; {} more did not compile", sum.unviable);
    ensure!(viable > 0, "no change was made");
    ensure!(failed * 100 >= viable * SCORE, "fewer than {SCORE} % of the changes failed a test");
    Ok(())
}

/// What became of changes.
#[derive(Debug, Default)]
struct Verdicts {
    /// A test failed, or did not end.
    failed: usize,
    unviable: usize,
    missed: Vec<String>,
}

impl Verdicts {
    /// Adds what the lists say that cargo-mutants writes, a change per line.
    fn read(&mut self, folder: &Path) -> Result<()> {
        let lines = |name: &str| -> Result<Vec<String>> {
            let path = folder.join(name);
            let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            Ok(text.lines().map(str::to_owned).collect())
        };
        self.failed += lines("caught.txt")?.len() + lines("timeout.txt")?.len();
        self.unviable += lines("unviable.txt")?.len();
        self.missed.extend(lines("missed.txt")?);
        Ok(())
    }
}

/// Hashes a file, or a folder with everything in it.
fn hash(path: &Path, hasher: &mut DefaultHasher) -> Result<()> {
    if path.is_dir() {
        let entries = fs::read_dir(path)?.collect::<Result<Vec<_>, _>>()?;
        let mut names: Vec<_> = entries.iter().map(fs::DirEntry::file_name).collect();
        names.sort();
        names.hash(hasher);
        names.iter().try_for_each(|name| hash(&path.join(name), hasher))
    } else {
        fs::read(path).with_context(|| path.display().to_string())?.hash(hasher);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_are_read_from_the_lists_and_add_up() {
        let folder = tempfile::tempdir().unwrap();
        let lists = [("caught.txt", "a\nb\n"), ("timeout.txt", "c\n"), ("unviable.txt", ""), ("missed.txt", "d\n")];
        for (name, text) in lists {
            fs::write(folder.path().join(name), text).unwrap();
        }
        let mut sum = Verdicts::default();
        sum.read(folder.path()).unwrap();
        sum.read(folder.path()).unwrap();
        assert_eq!((sum.failed, sum.unviable, sum.missed.len()), (6, 0, 2));
        fs::remove_file(folder.path().join("missed.txt")).unwrap();
        assert!(sum.read(folder.path()).is_err(), "a list that is not there is not empty");
    }

    #[test]
    fn a_change_of_any_file_is_another_hash() {
        let root = tempfile::tempdir().unwrap();
        let of = || {
            let mut hasher = DefaultHasher::new();
            hash(root.path(), &mut hasher).unwrap();
            hasher.finish()
        };
        fs::create_dir(root.path().join("src")).unwrap();
        fs::write(root.path().join("src/lib.rs"), "1").unwrap();
        let before = of();
        assert_eq!(of(), before);
        fs::write(root.path().join("src/lib.rs"), "2").unwrap();
        assert_ne!(of(), before);
    }
}
