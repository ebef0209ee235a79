//! `cargo xtask coverage`: which lines of `cmid-proto` its tests and the fuzz corpora run.
//!
//! The compiler counts (`-C instrument-coverage`, which stable has); its counts are read by a crate, as LLVM's own tools would
//! have to be as new as the compiler. Per line they agree with `llvm-cov`. Branches are counted by an unstable compiler only.

mod explained;
mod lines;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use llvm_profparser::{CoverageMapping, coverage_mapping::read_object_file, merge_profiles};

use self::explained::Explained;
use self::lines::{File, Line};
use crate::context::Context;

/// What is looked at.
const SOURCE: &str = "proto/src";

/// What is called instead of the compiler.
const COMPILER: &str = "xtask/src/coverage/compiler.sh";

/// What runs.
const TESTS: &[&str] = &[
    "test",
    "--package",
    "cmid-proto",
    "--package",
    "cmid-reference",
    "--features",
    "cmid-proto/std",
    "--lib",
    "--tests",
];

/// Prints the figures; fails if a line is neither run nor explained, or an explanation explains nothing.
pub(crate) fn run(context: &mut Context) -> Result<()> {
    let place = context.target().join("coverage");
    if place.exists() {
        // An old profile must not count for this run.
        fs::remove_dir_all(&place).with_context(|| place.display().to_string())?;
    }
    fs::create_dir_all(&place).with_context(|| place.display().to_string())?;
    let programs = build_and_run(context, &place)?;
    let files = read(&context.root.join(SOURCE), &place, &programs)?;
    conclude(context, &files)
}

/// Returns the programs that were run.
fn build_and_run(context: &Context, place: &Path) -> Result<Vec<PathBuf>> {
    let compiler = context.root.join(COMPILER);
    let profiles = place.join("%p-%m.profraw");
    let variables = [("RUSTC_WORKSPACE_WRAPPER", compiler.as_os_str()), ("LLVM_PROFILE_FILE", profiles.as_os_str())];
    let building = [TESTS, &["--no-run", "--message-format", "json"]].concat();
    let said = context.cargo_hears(&building, &variables)?;
    let programs: Vec<_> = said.lines().filter_map(executable).collect();
    ensure!(!programs.is_empty(), "cargo named no program that it has built");
    context.cargo(&[TESTS, &["--quiet"]].concat(), &variables)?;
    Ok(programs)
}

/// The program that a message of cargo names.
fn executable(message: &str) -> Option<PathBuf> {
    let message: serde_json::Value = serde_json::from_str(message).ok()?;
    Some(PathBuf::from(message.get("executable")?.as_str()?))
}

/// Counts, by file under `source`.
fn read(source: &Path, place: &Path, programs: &[PathBuf]) -> Result<BTreeMap<PathBuf, File>> {
    let mut profiles = Vec::new();
    for entry in fs::read_dir(place)? {
        let path = entry?.path();
        if path.extension() == Some(OsStr::new("profraw")) {
            profiles.push(path);
        }
    }
    let profile = merge_profiles(&profiles).context("the profiles cannot be read")?;
    let version = profile.version().context("the profiles have no version")?;
    for program in programs {
        // The crate leaves out what it cannot read.
        read_object_file(program, version).with_context(|| format!("{} cannot be read", program.display()))?;
    }
    let mapping = CoverageMapping::new(programs, &profile, false)?;
    let report = mapping.generate_subreport(|paths| paths.iter().any(|path| path.starts_with(source)))?;
    let mut files = BTreeMap::new();
    for (path, result) in &report.files {
        if let Ok(name) = path.strip_prefix(source) {
            let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
            let regions = result.hits.iter().map(|(at, &count)| (at.clone(), count > 0));
            files.insert(name.to_owned(), File::new(&text, regions.collect()));
        }
    }
    Ok(files)
}

fn conclude(context: &Context, files: &BTreeMap<PathBuf, File>) -> Result<()> {
    let mut explained = Explained::read(&context.root)?;
    println!("\n{:24} {:>13} {:>8} {:>15}", "file", "lines", "", "regions");
    let mut total = [0; 4];
    let mut open = 0;
    for (name, file) in files {
        let figures = file.figures();
        total.iter_mut().zip(figures).for_each(|(sum, figure)| *sum += figure);
        println!("{}", row(&name.display().to_string(), figures));
    }
    println!("{}\n", row("all", total));
    ensure!(total[1] > LEAST, "only {} lines were looked at: the counts cannot be complete", total[1]);
    for (name, file) in files {
        for Line { number, text } in file.not_run() {
            if !explained.explains(name, text) {
                open += 1;
                println!("not run: {SOURCE}/{}:{number}: {text}", name.display());
            }
        }
    }
    let stale = explained.stale();
    for line in &stale {
        println!("explained, but run or gone: {line}");
    }
    println!("{} lines are not run, and explained", explained.used());
    ensure!(
        open == 0,
        "{open} lines are neither run nor explained: test, delete or explain them in {}",
        explained::FILE
    );
    ensure!(stale.is_empty(), "{} explanations in {} are of no use any more", stale.len(), explained::FILE);
    Ok(())
}

/// There are more lines of code than that.
const LEAST: usize = 2500;

fn row(name: &str, [lines_run, lines, regions_run, regions]: [usize; 4]) -> String {
    let percent = |part: usize, whole: usize| if whole == 0 { 100.0 } else { part as f64 * 100.0 / whole as f64 };
    format!(
        "{name:24} {lines_run:>6}/{lines:<6} {:>6.2} % {regions_run:>6}/{regions:<6} {:>6.2} %",
        percent(lines_run, lines),
        percent(regions_run, regions)
    )
}
