//! `cargo xtask planted`: plants the bugs of `planted/` one at a time in a copy of the workspace, and sees which check finds
//! them. What no check finds fails the command: it asks for a new check.

mod bug;
mod copy;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;

use self::bug::Bug;
use self::copy::Copy;
use crate::context::Context;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Only these, or all of a file of planted/
    names: Vec<String>,
    /// Let every check judge every bug, instead of stopping at the first that finds it
    #[arg(long)]
    every_check: bool,
    /// Only the checks that take seconds: what they do not find is not lost yet
    #[arg(long)]
    quick: bool,
    /// Only tell which bugs there are
    #[arg(long)]
    list: bool,
}

/// What may find a bug.
#[derive(Debug)]
struct Check {
    name: &'static str,
    part: Part,
    /// For cargo: what is built, and what the tests are told.
    build: &'static [&'static str],
    run: &'static [&'static str],
    /// A check whose process works for longer has found something that never ends.
    seconds: u64,
    /// It measures time, and may fail on a busy machine: it has found a bug when it fails twice.
    twice: bool,
}

/// The part of `cmid-proto` that a check looks at. No part uses another one, but for keys and errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    All,
    Core,
    Memory,
}

impl Part {
    fn has(self, file: &str) -> bool {
        self == Part::All || (self == Part::Memory) == file.starts_with("proto/src/memory")
    }
}

/// From cheap to dear. The rendered tables come last: they find any other cell, but not which one is right.
const CHECKS: &[Check] = &[
    test("memory", Part::Memory, &["--package", "cmid-proto", "--all-features", "--test", "memory"], &[], 60),
    test("dialogues", Part::Core, DIALOGUES, &["--skip", RANDOM], 30),
    test("driving, cells, planted", Part::All, DRIVING, &[], 30),
    test("unit tests", Part::All, &["--package", "cmid-proto", "--all-features", "--lib"], &[], 30),
    test("random runs", Part::Core, DIALOGUES, &[RANDOM], 60),
    test("corpora", Part::All, &["--package", "cmid-fuzz"], &[], 60),
    test("small worlds", Part::All, &["--package", "cmid-model"], &[], 900),
    Check {
        twice: true,
        ..test("conformance", Part::All, &["--package", "cmid-conformance", "--test", "sim"], &[], 300)
    },
    Check {
        twice: true,
        ..test("failing calls", Part::All, &["--package", "cmid-conformance", "--test", "failing"], &[], 900)
    },
    Check { run: &["diagrams", "--check"], ..test(DOCUMENTS, Part::All, &["--package", "xtask"], &[], 120) },
];

/// The first so many take seconds.
const QUICK: usize = 4;

/// The one that is no test.
const DOCUMENTS: &str = "documents";

const DIALOGUES: &[&str] = &["--package", "cmid-proto", "--all-features", "--test", "dialogues"];

const DRIVING: &[&str] =
    &["--package", "cmid-proto", "--all-features", "--test", "driving", "--test", "cells", "--test", "planted"];

/// The module of the dialogues that holds random ones.
const RANDOM: &str = "property::";

const fn test(
    name: &'static str,
    part: Part,
    build: &'static [&'static str],
    run: &'static [&'static str],
    seconds: u64,
) -> Check {
    Check { name, part, build, run, seconds, twice: false }
}

/// What became of a bug.
#[derive(Debug, Default)]
struct Verdict {
    /// The checks that found it, by their place in [`CHECKS`].
    found_by: Vec<usize>,
}

pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    let bugs = chosen(bug::all(&context.root)?, &arguments.names)?;
    if arguments.list {
        for bug in &bugs {
            println!("{:12} {}: {}", bug.kind, bug.name, bug.text);
        }
        return Ok(());
    }
    let mut ground = Ground::new(context)?;
    let mut verdicts = Vec::new();
    for (at, bug) in bugs.iter().enumerate() {
        let begin = Instant::now();
        let verdict = ground.judge(bug, arguments)?;
        let seconds = begin.elapsed().as_secs_f32();
        println!("{:3}/{} {:48} {} ({seconds:.0} s)", at + 1, bugs.len(), bug.name, verdict.summary());
        verdicts.push(verdict);
    }
    conclude(&bugs, &verdicts)
}

/// Plants all of them: half an hour on a quiet machine.
pub(crate) fn all(context: &mut Context) -> Result<()> {
    run(context, &Arguments { names: Vec::new(), every_check: false, quick: false, list: false })
}

/// Every bug can still be planted: a check for every day, without building anything.
pub(crate) fn check(context: &mut Context) -> Result<()> {
    let bugs = bug::all(&context.root)?;
    ensure!(bugs.len() >= AT_LEAST, "{} bugs are there, {AT_LEAST} at least should be", bugs.len());
    let mut stale = 0;
    for bug in &bugs {
        let source = fs::read_to_string(context.root.join(&bug.file)).with_context(|| bug.file.clone())?;
        if let Err(error) = bug.plant(&source) {
            stale += 1;
            println!("{error:#}");
        }
    }
    ensure!(stale == 0, "{stale} of {} bugs cannot be planted any more", bugs.len());
    println!("{} bugs can be planted", bugs.len());
    Ok(())
}

/// Without this the check would pass if they were gone.
const AT_LEAST: usize = 200;

fn chosen(bugs: Vec<Bug>, names: &[String]) -> Result<Vec<Bug>> {
    let is_named = |bug: &Bug, name: &String| bug.name == *name || bug.kind == *name;
    if let Some(nobody) = names.iter().find(|name| !bugs.iter().any(|bug| is_named(bug, name))) {
        bail!("no bug and no file of bugs is called {nobody}");
    }
    let wanted = |bug: &Bug| names.is_empty() || names.iter().any(|name| is_named(bug, name));
    Ok(bugs.into_iter().filter(wanted).collect())
}

/// Where bugs are planted.
struct Ground {
    copy: Copy,
    build: PathBuf,
    logs: PathBuf,
    /// The checks that have found nothing where nothing was.
    sound: Vec<bool>,
}

impl Ground {
    fn new(context: &Context) -> Result<Self> {
        let place = context.target().join("planted");
        let logs = place.join("logs");
        fs::create_dir_all(&logs).with_context(|| logs.display().to_string())?;
        let copy = Copy::new(&context.root, place.join("tree"))?;
        Ok(Ground { copy, build: place.join("build"), logs, sound: vec![false; CHECKS.len()] })
    }

    fn judge(&mut self, bug: &Bug, arguments: &Arguments) -> Result<Verdict> {
        let whole = self.copy.read(&bug.file)?;
        let broken = bug.plant(&whole)?;
        let verdict = self.search(bug, [&whole, &broken], arguments);
        self.copy.write(&bug.file, &whole)?;
        verdict
    }

    fn search(&mut self, bug: &Bug, [whole, broken]: [&str; 2], arguments: &Arguments) -> Result<Verdict> {
        let mut verdict = Verdict::default();
        let checks = if arguments.quick { &CHECKS[..QUICK] } else { CHECKS };
        for (at, check) in checks.iter().enumerate().filter(|(_, check)| check.part.has(&bug.file)) {
            if !self.sound[at] {
                self.copy.write(&bug.file, whole)?;
                self.is_sound(check)?;
                self.sound[at] = true;
            }
            self.copy.write(&bug.file, broken)?;
            if self.finds(check, &bug.name)? {
                verdict.found_by.push(at);
                if !arguments.every_check {
                    break;
                }
            }
        }
        Ok(verdict)
    }

    /// Without a bug a check finds nothing. It is asked so before its first bug.
    fn is_sound(&self, check: &Check) -> Result<()> {
        const NOTHING: &str = "nothing";
        let begin = Instant::now();
        if self.finds(check, NOTHING)? {
            bail!("with nothing planted, {} fails: see {}", check.name, self.log(check, NOTHING).display());
        }
        println!("nothing planted: {} finds nothing ({:.0} s)", check.name, begin.elapsed().as_secs_f32());
        Ok(())
    }

    /// Whether a check fails, or hangs. What it says goes to a file.
    fn finds(&self, check: &Check, name: &str) -> Result<bool> {
        let path = self.log(check, name);
        let log = File::create(&path).with_context(|| path.display().to_string())?;
        // A bug that does not compile is none.
        let (build, run) =
            if check.name == DOCUMENTS { (&["build"][..], "run") } else { (&["test", "--no-run"][..], "test") };
        ensure!(
            self.cargo(&[build, check.build].concat(), BUILDING, &log)?,
            "{name} does not compile: see {}",
            path.display()
        );
        let command = [&[run], check.build, &["--"], check.run].concat();
        let tries = if check.twice { 2 } else { 1 };
        for _ in 0..tries {
            if self.cargo(&command, check.seconds, &log)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn log(&self, check: &Check, name: &str) -> PathBuf {
        self.logs.join(format!("{name}-{}.txt", check.name.replace([',', ' '], "-")))
    }

    /// Runs cargo in the copy; coreutils' `timeout` ends what it started as well. How long a process works does not depend on
    /// what else the machine does, as the time that passes does.
    fn cargo(&self, arguments: &[&str], seconds: u64, log: &File) -> Result<bool> {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=10", &PATIENCE.to_string()]);
        command.args(["prlimit", &format!("--cpu={seconds}"), &format!("--as={MEMORY}"), "cargo"]);
        command.args(arguments);
        command.current_dir(self.copy.root()).env("CARGO_TARGET_DIR", &self.build);
        // A bug may leave something unused; and nobody reads where a test has panicked but here.
        command.envs([("RUSTFLAGS", "-Awarnings --cap-lints=warn"), ("CARGO_PROFILE_DEV_DEBUG", "0")]);
        command.env_remove("CARGO_MANIFEST_DIR").stdout(log.try_clone()?).stderr(log.try_clone()?);
        Ok(command.status().context("timeout, of coreutils")?.success())
    }
}

/// Seconds; longer than the compiler works on any crate.
const BUILDING: u64 = 600;
/// Seconds; longer than any check takes on a machine that is busy with other things.
const PATIENCE: u64 = 3600;
/// Bytes of a process's address space; more than the compiler and any check take. A bug may queue things without end.
const MEMORY: u64 = 4 << 30;

impl Verdict {
    fn summary(&self) -> String {
        if self.found_by.is_empty() {
            return "SURVIVED".to_owned();
        }
        let names: Vec<_> = self.found_by.iter().map(|&at| CHECKS[at].name).collect();
        format!("found by {}", names.join(", "))
    }
}

/// The table, and an error if a bug was not found.
fn conclude(bugs: &[Bug], verdicts: &[Verdict]) -> Result<()> {
    print!("{}", table(bugs, verdicts));
    let survivors: Vec<_> = bugs
        .iter()
        .zip(verdicts)
        .filter(|(_, verdict)| verdict.found_by.is_empty())
        .map(|(bug, _)| &*bug.name)
        .collect();
    println!("{} of {} bugs were found", bugs.len() - survivors.len(), bugs.len());
    ensure!(survivors.is_empty(), "not found: {}", survivors.join(", "));
    Ok(())
}

/// How many of each file each check has found, of how many.
fn table(bugs: &[Bug], verdicts: &[Verdict]) -> String {
    let mut kinds: BTreeMap<&str, (usize, usize, Vec<usize>)> = BTreeMap::new();
    for (bug, verdict) in bugs.iter().zip(verdicts) {
        let (planted, found, by) = kinds.entry(&bug.kind).or_insert_with(|| (0, 0, vec![0; CHECKS.len()]));
        *planted += 1;
        *found += usize::from(!verdict.found_by.is_empty());
        verdict.found_by.iter().for_each(|&at| by[at] += 1);
    }
    let names: Vec<_> = CHECKS.iter().map(|check| check.name).collect();
    let mut text = format!(
        "\n| bugs | planted | found | {} |\n| --- | ---{}\n",
        names.join(" | "),
        " | ---".repeat(names.len() + 1) + " |"
    );
    let total = kinds.values().fold((0, 0, vec![0; CHECKS.len()]), |(planted, found, by), row| {
        (planted + row.0, found + row.1, by.iter().zip(&row.2).map(|(a, b)| a + b).collect())
    });
    for (kind, (planted, found, by)) in kinds.into_iter().chain([("all", total)]) {
        let by: Vec<_> = by.iter().map(usize::to_string).collect();
        text.push_str(&format!("| {kind} | {planted} | {found} | {} |\n", by.join(" | ")));
    }
    text
}
