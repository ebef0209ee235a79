//! `cargo xtask mutants`: changes `cmid-proto` in one place at a time, and its own tests must fail. cargo-mutants does it, with
//! `.cargo/mutants.toml`; a change that makes no difference is excluded there, with the reason.
//!
//! There are more than a thousand changes, so they are judged in shards. A shard that is done stays done until something changes
//! that it depends on: a run that is stopped goes on where it was.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;

use crate::context::Context;
use crate::tools::Tool;

const MUTANTS: Tool = Tool { name: "cargo-mutants", version: "27.1.0" };

/// Each has about seventy changes.
const SHARDS: u32 = 16;

/// What the verdicts depend on.
const INPUTS: [&str; 4] = [".cargo/mutants.toml", "proto", "Cargo.toml", "Cargo.lock"];

/// cargo-mutants says so when a change failed no test.
const MISSED: i32 = 2;
/// When tests did not end: they have noticed.
const TIMED_OUT: i32 = 3;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Judge these shards only, of 0 to 15
    #[arg(value_name = "SHARD", value_parser = clap::value_parser!(u32).range(..i64::from(SHARDS)))]
    shards: Vec<u32>,
}

pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    if arguments.shards.is_empty() {
        judge(context, &Vec::from_iter(0..SHARDS))
    } else {
        judge(context, &arguments.shards)
    }
}

/// All of them, as a step.
pub(crate) fn all(context: &mut Context) -> Result<()> {
    judge(context, &Vec::from_iter(0..SHARDS))
}

fn judge(context: &Context, shards: &[u32]) -> Result<()> {
    let program = MUTANTS.find(context).map_or_else(|| MUTANTS.compile(context), Ok)?;
    let place = context.target().join("mutants").join(format!("{:016x}", fingerprint(&context.root)?));
    let mut sum = Verdicts::default();
    for &shard in shards {
        let output = place.join(shard.to_string());
        let done = output.join("done");
        if !done.is_file() {
            one(context, &program, shard, &output)?;
            fs::write(&done, "").with_context(|| done.display().to_string())?;
        }
        let verdicts = Verdicts::read(&output.join("mutants.out"))?;
        println!("shard {shard} of {SHARDS}: {}", verdicts.figures());
        sum.add(verdicts);
    }
    println!("{}", sum.figures());
    ensure!(sum.judged() > 0, "no change was made");
    if !sum.missed.is_empty() {
        bail!("these changes fail no test of cmid-proto:\n{}", sum.missed.join("\n"));
    }
    Ok(())
}

fn one(context: &Context, program: &Path, shard: u32, output: &Path) -> Result<()> {
    fs::create_dir_all(output).with_context(|| output.display().to_string())?;
    let mut command = Command::new(program);
    command.args(["mutants", "--package", "cmid-proto", "--no-shuffle", "--colors", "never"]);
    command.arg("--shard").arg(format!("{shard}/{SHARDS}")).arg("--output").arg(output);
    let status = command.current_dir(&context.root).status().context("cargo-mutants")?;
    let judged = matches!(status.code(), Some(0 | MISSED | TIMED_OUT));
    ensure!(judged, "cargo-mutants failed in shard {shard}: {status}");
    Ok(())
}

/// What became of changes.
#[derive(Debug, Default)]
struct Verdicts {
    caught: usize,
    timed_out: usize,
    unviable: usize,
    missed: Vec<String>,
}

impl Verdicts {
    /// From the lists that cargo-mutants writes, a change per line.
    fn read(folder: &Path) -> Result<Self> {
        let lines = |name: &str| -> Result<Vec<String>> {
            let path = folder.join(name);
            let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            Ok(text.lines().map(str::to_owned).collect())
        };
        Ok(Verdicts {
            caught: lines("caught.txt")?.len(),
            timed_out: lines("timeout.txt")?.len(),
            unviable: lines("unviable.txt")?.len(),
            missed: lines("missed.txt")?,
        })
    }

    fn add(&mut self, other: Verdicts) {
        self.caught += other.caught;
        self.timed_out += other.timed_out;
        self.unviable += other.unviable;
        self.missed.extend(other.missed);
    }

    fn judged(&self) -> usize {
        self.caught + self.timed_out + self.missed.len()
    }

    fn figures(&self) -> String {
        format!(
            "{} changes failed a test, {} made tests run without end, {} failed none, {} did not compile",
            self.caught,
            self.timed_out,
            self.missed.len(),
            self.unviable
        )
    }
}

/// Differs when anything has changed that the verdicts depend on.
fn fingerprint(root: &Path) -> Result<u64> {
    let mut files = Vec::new();
    for input in INPUTS {
        collect(&root.join(input), &mut files)?;
    }
    files.sort();
    let mut hasher = DefaultHasher::new();
    for path in files {
        path.strip_prefix(root).unwrap_or(&path).hash(&mut hasher);
        fs::read(&path).with_context(|| path.display().to_string())?.hash(&mut hasher);
    }
    Ok(hasher.finish())
}

fn collect(path: &Path, into: &mut Vec<PathBuf>) -> Result<()> {
    if path.is_dir() {
        for entry in fs::read_dir(path).with_context(|| path.display().to_string())? {
            collect(&entry?.path(), into)?;
        }
    } else {
        into.push(path.to_owned());
    }
    Ok(())
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
        let mut sum = Verdicts::read(folder.path()).unwrap();
        sum.add(Verdicts::read(folder.path()).unwrap());
        assert_eq!((sum.judged(), sum.missed.as_slice()), (8, &["d".to_owned(), "d".to_owned()][..]));
        fs::remove_file(folder.path().join("missed.txt")).unwrap();
        assert!(Verdicts::read(folder.path()).is_err(), "a list that is not there is not empty");
    }

    #[test]
    fn a_change_of_any_file_of_the_core_is_another_fingerprint() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("proto/src")).unwrap();
        fs::create_dir_all(root.path().join(".cargo")).unwrap();
        for input in [".cargo/mutants.toml", "proto/src/lib.rs", "Cargo.toml", "Cargo.lock"] {
            fs::write(root.path().join(input), "1").unwrap();
        }
        let before = fingerprint(root.path()).unwrap();
        assert_eq!(fingerprint(root.path()).unwrap(), before);
        fs::write(root.path().join("proto/src/lib.rs"), "2").unwrap();
        assert_ne!(fingerprint(root.path()).unwrap(), before);
    }
}
