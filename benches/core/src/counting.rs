//! Counts instructions with callgrind.
//!
//! This program runs itself under valgrind: [`run`] runs every step of every case at one level, with one number of
//! ids. Callgrind counts while `measured` runs. Whenever `mark` has run, it writes its counts and resets them. So the
//! cases share the prepared ids, which take most of the time, and a figure contains only the instructions of the
//! steps.

use std::collections::BTreeMap;
use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::cases::{self, Case};
use crate::for_each_case;
use crate::level::{Bare, Driven, Level};
use crate::prepared::Prepared;

/// The number of counted steps of a case. Its figure is their mean, rounded up.
const STEPS: u64 = 32;

/// The number of steps before, which are not counted, until the tables do not grow any more.
const WARM_UP: u64 = 8;

/// The counted function. Its own few instructions are included.
#[inline(never)]
fn measured<L: Level, C: Case<L>>(case: &mut C, prepared: &mut Prepared<L>, input: C::Input) -> C::Output {
    case.step(prepared, input)
}

/// Ends a case.
#[inline(never)]
fn mark(case: &str) {
    black_box(case);
}

fn count<L: Level, C: Case<L>>(prepared: &mut Prepared<L>, name: &str) {
    let mut case = C::new(prepared);
    for step in 0..WARM_UP + STEPS {
        let input = case.prepare(prepared);
        let output = if step < WARM_UP { case.step(prepared, input) } else { measured(&mut case, prepared, input) };
        case.check(prepared, output);
        prepared.check();
    }
    prepared.check_counters();
    case.leave(prepared);
    mark(name);
}

macro_rules! table {
    ($($name:literal = $case:ty),+; $($late:literal = $armed:ty),+ $(,)?) => {
        /// The cases, in the order in which they are counted.
        pub const CASES: &[&str] = &[$($name,)+ $($late,)+];

        fn count_all<L: Level>(ids: usize) {
            use cases::*;
            let mut prepared = Prepared::<L>::new(ids);
            $(count::<L, $case>(&mut prepared, $name);)+
            prepared.arm();
            $(count::<L, $armed>(&mut prepared, $late);)+
            // Dropping it would take time and is not measured.
            std::mem::forget(prepared);
        }
    };
}

for_each_case!(table);

/// The levels, by their names.
pub const LEVELS: [&str; 2] = [<Bare as Level>::NAME, <Driven as Level>::NAME];

/// Runs all steps of all cases at a level.
///
/// # Errors
/// There is no such level.
pub fn run(level: &str, ids: usize) -> Result<()> {
    match level {
        <Bare as Level>::NAME => count_all::<Bare>(ids),
        <Driven as Level>::NAME => count_all::<Driven>(ids),
        _ => bail!("no level is called {level}"),
    }
    Ok(())
}

/// Instructions of a step by level, case, and number of ids.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts(BTreeMap<String, BTreeMap<String, BTreeMap<usize, u64>>>);

impl Counts {
    /// Counts with each of these numbers of ids, by running `this` program: its subcommand `run` is [`run`]. With
    /// `keep`, callgrind's files are kept in that folder, as `LEVEL-IDS/CASE`.
    ///
    /// # Errors
    /// Valgrind is missing, or a step had an unexpected result.
    pub fn take(this: &Path, sizes: &[usize], keep: Option<&Path>) -> Result<Self> {
        let mut counts = Counts::default();
        // A thread for each level.
        let taken = std::thread::scope(|scope| {
            let one = |level| {
                move || sizes.iter().map(|&ids| Ok((level, ids, under_callgrind(this, level, ids, keep)?))).collect()
            };
            let threads = LEVELS.map(|level| scope.spawn(one(level)));
            threads.map(|thread| thread.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a thread has panicked"))))
        });
        for taken in taken {
            let taken: Vec<(&str, usize, Vec<u64>)> = taken?;
            for (level, ids, steps) in taken {
                let cases = counts.0.entry(level.to_owned()).or_default();
                for (case, instructions) in CASES.iter().zip(steps) {
                    cases.entry((*case).to_owned()).or_default().insert(ids, instructions);
                }
            }
        }
        Ok(counts)
    }

    /// The counts of a case, by the number of ids.
    ///
    /// # Errors
    /// It was not counted.
    pub fn of(&self, level: &str, case: &str) -> Result<&BTreeMap<usize, u64>> {
        self.0.get(level).and_then(|cases| cases.get(case)).with_context(|| format!("{case} was not counted"))
    }
}

/// The instructions of a step of each of [`CASES`].
fn under_callgrind(this: &Path, level: &str, ids: usize, keep: Option<&Path>) -> Result<Vec<u64>> {
    let folder = tempfile::tempdir().context("a temporary folder")?;
    let out = folder.path().join("out");
    let module = module_path!();
    let mut command = Command::new("valgrind");
    command
        .args(["--tool=callgrind", "--quiet", "--error-exitcode=9"])
        .arg(format!("--toggle-collect={module}::measured*"))
        .arg(format!("--dump-after={module}::mark*"))
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(this)
        .args(["run", level, &ids.to_string()]);
    let said = folder.path().join("said");
    command.stdout(Stdio::null()).stderr(fs::File::create(&said).context("a file for what it says")?);
    let status = within(limit(ids), command.spawn().context("valgrind")?)?;
    let said = || fs::read_to_string(&said).unwrap_or_default();
    match status {
        None => bail!(
            "{level} among {ids} ids: not done within {:?}: a step takes the longer the more ids there are",
            limit(ids)
        ),
        Some(status) => ensure!(status.success(), "{level} among {ids} ids: {status}\n{}", said()),
    }
    let dump = |number: usize| folder.path().join(format!("out.{number}"));
    ensure!(!dump(CASES.len() + 1).exists(), "callgrind wrote more than asked");
    if let Some(keep) = keep.map(|keep| keep.join(format!("{level}-{ids}"))) {
        fs::create_dir_all(&keep).with_context(|| keep.display().to_string())?;
        for (case, number) in CASES.iter().zip(1..) {
            fs::copy(dump(number), keep.join(case)).with_context(|| format!("{case} in {}", keep.display()))?;
        }
    }
    (1..=CASES.len()).map(|number| instructions(&dump(number)).map(|all| all.div_ceil(STEPS))).collect()
}

/// Time limit: many times what it takes if no step depends on the number of ids.
const fn limit(ids: usize) -> Duration {
    Duration::from_secs(300 + ids as u64 / 1000)
}

/// Waits for a program to end. At the limit, kills it and returns `None`.
fn within(limit: Duration, mut program: Child) -> Result<Option<ExitStatus>> {
    let begin = Instant::now();
    loop {
        if let Some(status) = program.try_wait().context("valgrind")? {
            return Ok(Some(status));
        }
        if begin.elapsed() > limit {
            program.kill().and_then(|()| program.wait()).context("valgrind")?;
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The sum in a file of callgrind.
fn instructions(dump: &Path) -> Result<u64> {
    let text = fs::read_to_string(dump).with_context(|| format!("callgrind wrote no {}", dump.display()))?;
    let of = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
    ensure!(
        of("desc: Trigger:").is_some_and(|by| by.starts_with("--dump-after=")),
        "not by a mark: {}",
        dump.display()
    );
    ensure!(of("events:") == Some("Ir"), "callgrind counted something else");
    let sum: u64 = of("totals:").context("no totals")?.parse().context("totals")?;
    ensure!(sum > 0, "nothing was counted");
    Ok(sum)
}
