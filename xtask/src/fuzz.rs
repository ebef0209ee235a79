//! `cargo xtask fuzz`: runs a fuzz target with cargo-fuzz, or shows what an input does.
//!
//! New inputs go to a corpus under `target/`. `--keep` adds them to the committed corpus and minimises that by the
//! covered edges, not by how often they are reached, which keeps it small.

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::context::{self, Context};
use crate::tools::{self, succeeds};

/// The maximum length of committed inputs in bytes.
const LONGEST: u64 = 2048;

/// The prefix of inputs that stay in a committed corpus: they show something besides covering an edge.
const PINNED: &[u8] = b"pinned-";

/// The target in `programs/replog`: the protocol of an application, in a simulated world.
const WORLD: &str = "world";

/// Coverage instrumentation needs a nightly compiler.
const TOOLCHAIN: &str = "nightly";

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The target
    target: String,
    /// The time to fuzz
    #[arg(long, default_value_t = 5, value_name = "N")]
    minutes: u64,
    /// The seed of libFuzzer's choices; without it, libFuzzer chooses one and prints it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    seed: Option<u32>,
    /// Then add new inputs to the committed corpus and minimise it
    #[arg(long)]
    keep: bool,
    /// Run only these inputs, and print what happens in them
    #[arg(value_name = "INPUT", conflicts_with_all = ["minutes", "seed", "keep"])]
    inputs: Vec<PathBuf>,
}

/// The folders of the targets for cargo-fuzz.
const FOLDERS: [&str; 2] = ["fuzz", "programs/replog/fuzz"];

/// The names of all targets.
fn names(root: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for folder in FOLDERS {
        let programs = root.join(folder).join("fuzz_targets");
        for entry in fs::read_dir(&programs).with_context(|| programs.display().to_string())? {
            names.extend(entry?.path().file_stem().map(|name| name.to_string_lossy().into_owned()));
        }
    }
    names.sort();
    Ok(names)
}

/// The folder of a target for cargo-fuzz.
fn folder(target: &str) -> &'static str {
    FOLDERS[usize::from(target == WORLD)]
}

pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    let names = names(&context.root)?;
    ensure!(names.contains(&arguments.target), "no target is called that; there are {}", names.join(", "));
    if !arguments.inputs.is_empty() {
        return show(context, arguments);
    }
    prepare()?;
    let work = context.target().join("fuzz-corpus");
    let (found, minimal) = (work.join(&arguments.target), work.join(format!("{}-minimal", arguments.target)));
    let committed = context.root.join(folder(&arguments.target)).join("corpus").join(&arguments.target);
    for folder in [&found, &committed] {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    let seconds = format!("-max_total_time={}", arguments.minutes * 60);
    // libFuzzer treats 0 as no seed.
    let seed = format!("-seed={}", arguments.seed.unwrap_or(0));
    let looking = [&seconds, &seed, "-len_control=20", "-print_final_stats=1"];
    cargo_fuzz(context, &arguments.target, &[&found, &committed], &looking)?;
    if arguments.keep {
        empty(&minimal)?;
        let merging = ["-set_cover_merge=1", "-use_counters=0"];
        cargo_fuzz(context, &arguments.target, &[&minimal, &found, &committed], &merging)?;
        for entry in fs::read_dir(&committed)? {
            let entry = entry?;
            if !entry.file_name().as_encoded_bytes().starts_with(PINNED) {
                fs::remove_file(entry.path())?;
            }
        }
        for entry in fs::read_dir(&minimal)? {
            let entry = entry?;
            fs::copy(entry.path(), committed.join(entry.file_name()))?;
        }
    }
    Ok(())
}

fn empty(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())
}

/// Shows what inputs do. Needs no fuzzer, because the bodies of the targets are functions.
fn show(context: &Context, arguments: &Arguments) -> Result<()> {
    let package =
        if arguments.target == WORLD { "--package replog" } else { "--package cmid-model --features devices" };
    let words = [OsStr::new(&arguments.target)].into_iter().chain(arguments.inputs.iter().map(|path| path.as_os_str()));
    context.program(package, words)
}

/// Installs the compiler if it is missing.
fn prepare() -> Result<()> {
    if !succeeds(Command::new("rustup").args(["run", TOOLCHAIN, "rustc", "--version"])) {
        let mut install = Command::new("rustup");
        context::run(install.args(["toolchain", "install", TOOLCHAIN, "--profile", "minimal"]))?;
    }
    Ok(())
}

/// Runs a target. New inputs go to the first corpus.
///
/// The core has no unsafe code, so no sanitizer is needed. Traces of comparisons do not help to find choices.
fn cargo_fuzz(context: &Context, target: &str, corpora: &[&Path], options: &[&str]) -> Result<()> {
    let mut command = tools::FUZZ.command(context)?;
    command.args(["fuzz", "run", "--fuzz-dir", folder(target)]).env("RUSTUP_TOOLCHAIN", TOOLCHAIN).env_remove("CARGO");
    command.args(["--sanitizer", "none", "--no-trace-compares", target]).args(corpora);
    command.arg("--").arg(format!("-max_len={LONGEST}")).args(options);
    context::run(command.env("CARGO_TARGET_DIR", context.target().join("fuzz")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_targets_are_those_of_cargo_fuzz() {
        let names = names(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..")).unwrap();
        assert!(["ops", "pair", WORLD].iter().all(|name| names.contains(&(*name).to_owned())), "{names:?}");
    }
}
