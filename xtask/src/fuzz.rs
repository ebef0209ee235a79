//! `cargo xtask fuzz`: runs a fuzz target with cargo-fuzz, or shows what an input does.
//!
//! New inputs go to a corpus under `target/`. `--keep` adds them to the committed corpus and minimises that by the
//! covered edges, not by how often they are reached, which keeps it small.

use anyhow::{Context as _, Result, bail};
use clap::{Args, builder::PossibleValuesParser};
use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::context::Context;
use crate::tools::{self, succeeds};

/// The maximum length of committed inputs in bytes.
const LONGEST: u64 = 2048;

/// The prefix of inputs that stay in a committed corpus: they show something besides covering an edge.
const PINNED: &[u8] = b"pinned-";

/// The target in `examples/replog`: the protocol of an application, in a simulated world.
const WORLD: &str = "world";

/// Coverage instrumentation needs a nightly compiler.
const TOOLCHAIN: &str = "nightly";

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The target
    #[arg(value_parser = PossibleValuesParser::new(names()))]
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

/// The names of all targets.
fn names() -> impl Iterator<Item = &'static str> {
    cmid_reference::TARGETS.iter().map(|target| target.name).chain([WORLD])
}

/// The folder of a target for cargo-fuzz.
fn folder(target: &str) -> &'static str {
    if target == WORLD { "examples/replog/fuzz" } else { "fuzz" }
}

pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<()> {
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
    if arguments.target == WORLD {
        let inputs = arguments.inputs.iter().map(|input| input.to_str().context("the path of an input is not text"));
        let mut command = vec!["run", "--quiet", "--package", "replog", "--", WORLD];
        command.extend(inputs.collect::<Result<Vec<_>>>()?);
        return context.cargo(&command, &[]);
    }
    let target =
        cmid_reference::TARGETS.iter().find(|target| target.name == arguments.target).context("no such target")?;
    for input in &arguments.inputs {
        println!("==> {}", input.display());
        let data = fs::read(input).with_context(|| input.display().to_string())?;
        cmid_reference::trace();
        (target.run)(&data);
    }
    Ok(())
}

/// Installs the compiler if it is missing.
fn prepare() -> Result<()> {
    if !succeeds(Command::new("rustup").args(["run", TOOLCHAIN, "rustc", "--version"])) {
        let mut install = Command::new("rustup");
        finish(install.args(["toolchain", "install", TOOLCHAIN, "--profile", "minimal"]))?;
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
    finish(command.env("CARGO_TARGET_DIR", context.target().join("fuzz")))
}

fn finish(command: &mut Command) -> Result<()> {
    let what = command.get_args().collect::<Vec<_>>().join(OsStr::new(" "));
    let status = command.status().with_context(|| format!("{:?}", command.get_program()))?;
    if !status.success() {
        bail!("{} failed: {status}", what.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_target_is_a_program_of_cargo_fuzz() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for name in names() {
            let program = root.join(folder(name)).join("fuzz_targets").join(name).with_extension("rs");
            assert!(program.is_file(), "{}", program.display());
        }
    }
}
