//! `cargo xtask mutants`: mutation testing of `cmid-proto` with its tests and those of the model, by cargo-mutants with
//! `.cargo/mutants.toml`. Equivalent mutants are excluded there, with the reason.
//!
//! There are more than a thousand mutants, so they are judged in shards. A finished shard is not repeated until one
//! of its inputs changes: a run that is stopped can be continued.

use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use clap::Args;

use crate::context::Context;
use crate::tools::MUTANTS;

/// Each shard has about 120 mutants, spread over all files: a few shards are a sample.
const SHARDS: u32 = 16;

/// The minimum of compiling mutants that fail a test, in a thousand.
const SCORE: usize = 975;

/// The inputs of the verdicts.
const INPUTS: [&str; 9] = [
    ".cargo/mutants.toml",
    "proto",
    "sim",
    "verbs",
    "programs/nvme",
    "tests/model",
    "fuzz/corpus",
    "Cargo.toml",
    "Cargo.lock",
];

/// The exit statuses of cargo-mutants after a complete run: all mutants caught, some missed, some timed out.
const JUDGED: [i32; 3] = [0, 2, 3];

#[derive(Debug, Default, Args)]
pub(crate) struct Arguments {
    /// Judge only these shards, of 0 to 15
    #[arg(value_name = "SHARD", value_parser = clap::value_parser!(u32).range(..i64::from(SHARDS)))]
    shards: Vec<u32>,
}

pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    if arguments.shards.is_empty() { judge(context, 0..SHARDS) } else { judge(context, arguments.shards.clone()) }
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
            let words =
                "mutants --package cmid-proto --profile mutants --no-shuffle --colors never --sharding round-robin";
            command.args(words.split(' ')).arg("--shard");
            command.arg(format!("{shard}/{SHARDS}")).arg("--output").arg(&output).env_remove("CARGO_TARGET_DIR");
            // The profile says whether builds are incremental.
            command.env_remove("CARGO_INCREMENTAL");
            let status = command.status().context("cargo-mutants")?;
            ensure!(status.code().is_some_and(|code| JUDGED.contains(&code)), "cargo-mutants, shard {shard}: {status}");
            fs::write(&done, "").with_context(|| done.display().to_string())?;
        }
        sum.read(&output.join("mutants.out"))?;
    }
    sum.missed.iter().for_each(|change| println!("fails no test: {change}"));
    let (failed, viable) = (sum.failed, sum.failed + sum.missed.len());
    println!("{failed} of {viable} changes failed a test; {} more did not compile", sum.unviable);
    ensure!(viable > 0, "no change was made");
    ensure!(failed * 1000 >= viable * SCORE, "fewer than {SCORE} of 1000 changes failed a test");
    Ok(())
}

/// The verdicts on mutants.
#[derive(Debug, Default)]
struct Verdicts {
    /// A test failed or timed out.
    failed: usize,
    unviable: usize,
    missed: Vec<String>,
}

impl Verdicts {
    /// Adds the mutants of the lists that cargo-mutants writes, one per line.
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

/// Hashes a file, or a folder with all files in it.
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
