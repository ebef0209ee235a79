//! Runs a test in the worlds of many seeds, and explains the first failure.

use std::cell::Cell;
use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::path::PathBuf;
use std::sync::Once;

use crate::fabric::config::Config;
use crate::worlds::World;
use crate::worlds::coverage::Coverage;

/// The variable that replaces the seeds of [`check`]: a seed, or `FIRST..END`.
const VARIABLE: &str = "CMID_SEED";

/// The maximum number of worlds to find out which faults a failure needs.
const ATTEMPTS: usize = 200;

/// Told as a fault, of a world that needs it.
const READS_LATE: &str = "devices read memory until the completion (Config::reads_late)";

/// A world in which a test has failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed of the world.
    pub seed: u64,
    /// The text of the panic.
    pub message: String,
    /// The faults of [`World::chaos`] that it needs: without any one of them the test does not fail.
    pub faults: Vec<String>,
    /// What has happened: [`World::trace`].
    pub trace: String,
    /// The same as a sequence chart: [`World::chart`].
    pub chart: String,
}

/// What the worlds of a test have met that has passed.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The number of worlds.
    pub worlds: u64,
    /// What the programs and rules of all worlds have met.
    pub coverage: Coverage,
}

/// The message and the faults.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}: {}", self.seed, self.message)?;
        self.faults.iter().try_for_each(|fault| write!(f, "\n  fault: {fault}"))
    }
}

/// Runs a test in the world of each seed. The test adds hosts, runs the world and asserts; see [`World`]. Afterwards no
/// buffer may have been returned while the device referred to it. In the worlds of odd seeds devices read memory late
/// ([`Config::reads_late`]).
///
/// The variable `CMID_SEED` replaces the seeds: `CMID_SEED=17 cargo test NAME -- --exact` repeats the world of one failure,
/// `CMID_SEED=1000..2000` tries others; with the same `--features`, if the test or what it tests depends on them.
///
/// Returns what they have met: see [`Report::coverage`].
///
/// # Panics
/// If the variable has no seed. If the test panics, with the seed, the command that repeats it, the faults that it needs, and the files of the
/// trace and the chart: see [`World::trace`]. They are in the folder `cmid-worlds` of [`std::env::temp_dir`], by package,
/// test and seed: the next failure with the same ones replaces them.
#[track_caller]
pub fn check(seeds: Range<u64>, test: impl Fn(&mut World)) -> Report {
    check_with(&Config::default(), seeds, test)
}

/// As [`check`], in fabrics of this configuration. The seed and the clock of it do not count.
///
/// # Panics
/// As [`check`].
#[track_caller]
pub fn check_with(config: &Config, seeds: Range<u64>, test: impl Fn(&mut World)) -> Report {
    // A test that runs another world, or none, would pass.
    let asked = std::env::var_os(VARIABLE).map(|text| {
        let seeds = text.to_str().and_then(parse);
        seeds.unwrap_or_else(|| panic!("{VARIABLE}={text:?}: neither a seed nor a range as 1000..2000"))
    });
    let seeds = asked.unwrap_or(seeds);
    match run_all(config, seeds, test) {
        Ok(report) => report,
        Err(failure) => panic!("{}", explanation(&failure)),
    }
}

/// Returns the first failure of a test in the worlds of these seeds, with the faults that it needs. For tests that
/// expect one; otherwise see [`check`].
pub fn find(seeds: Range<u64>, test: impl Fn(&mut World)) -> Option<Failure> {
    find_with(&Config::default(), seeds, test)
}

/// As [`find`], in fabrics of this configuration. The seed and the clock of it do not count.
pub fn find_with(config: &Config, seeds: Range<u64>, test: impl Fn(&mut World)) -> Option<Failure> {
    run_all(config, seeds, test).err()
}

/// Runs the worlds up to the first failure.
#[allow(clippy::result_large_err, reason = "once in a test")]
fn run_all(config: &Config, seeds: Range<u64>, test: impl Fn(&mut World)) -> Result<Report, Failure> {
    let mut report = Report::default();
    for seed in seeds {
        let late = Config { reads_late: config.reads_late || seed % 2 == 1, ..config.clone() };
        let ended = quietly(|| run(&late, seed, &[], false, &test));
        let Some((message, faults)) = ended.failed else {
            report.coverage.add(&ended.coverage);
            report.worlds += 1;
            continue;
        };
        let needs_late = !config.reads_late && quietly(|| run(config, seed, &[], false, &test)).failed.is_none();
        let config = if needs_late { &late } else { config };
        let left_out = quietly(|| shrink(config, seed, faults.len(), &test));
        let ended = quietly(|| run(config, seed, &left_out, true, &test));
        let (trace, chart) = (ended.trace, ended.chart);
        let again = format!("{message}\n  not again: the programs are not deterministic");
        let (message, mut faults) = ended.failed.unwrap_or((again, Vec::new()));
        faults.extend(needs_late.then(|| READS_LATE.to_owned()));
        return Err(Failure { seed, message, faults, trace, chart });
    }
    Ok(report)
}

/// What a run has left. Without a log there is nothing to trace or to draw.
struct Ended {
    /// The text of a panic, and the faults.
    failed: Option<(String, Vec<String>)>,
    coverage: Coverage,
    trace: String,
    chart: String,
}

/// Runs a test in one world.
fn run(config: &Config, seed: u64, left_out: &[usize], with_log: bool, test: &impl Fn(&mut World)) -> Ended {
    let mut world = World::with(&Config { seed, ..config.clone() }, left_out, with_log);
    let ended = catch_unwind(AssertUnwindSafe(|| {
        test(&mut world);
        let counters = world.fabric.counters();
        assert_eq!(
            (counters.freed_in_use, counters.copied_to_freed),
            (0, 0),
            "memory was returned while it was in use"
        );
    }));
    let failed = ended.err().map(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        let faults = world.planned().map(|(_, fault)| fault.to_string()).collect();
        (text.unwrap_or_else(|| "a panic without a text".into()), faults)
    });
    let message = failed.as_ref().map(|(message, _)| (world.now(), message.clone()));
    world.fabric.with(|it| it.log.iter_mut().for_each(|log| log.failed.clone_from(&message)));
    Ended { failed, coverage: world.coverage(), trace: world.trace(), chart: world.chart() }
}

/// Returns the faults that can be left out: without any other one the test does not fail.
fn shrink(config: &Config, seed: u64, faults: usize, test: &impl Fn(&mut World)) -> Vec<usize> {
    let (mut left_out, mut attempts) = (Vec::new(), 0);
    let mut size = faults;
    while size > 0 {
        let mut is_smaller = false;
        let kept: Vec<usize> = (0..faults).filter(|no| !left_out.contains(no)).collect();
        for some in kept.chunks(size) {
            attempts += 1;
            let fewer = [&left_out[..], some].concat();
            if attempts <= ATTEMPTS && run(config, seed, &fewer, false, test).failed.is_some() {
                (left_out, is_smaller) = (fewer, true);
            }
        }
        // Single faults once more, because one may need another that is gone now.
        size = if size > 1 { size / 2 } else { usize::from(is_smaller && attempts <= ATTEMPTS) };
    }
    left_out
}

/// After the command that repeats a failure: a test behind a feature is not found without it, and passes.
const FEATURES: &str = "         with the same --features";

/// The text of the panic of [`check`].
fn explanation(failure: &Failure) -> String {
    let thread = std::thread::current();
    let name = thread.name().filter(|name| *name != "main").unwrap_or("NAME");
    let seed = failure.seed;
    // cargo tells the tests that it runs.
    let package = std::env::var("CARGO_PKG_NAME").unwrap_or_default();
    let of_package = if package.is_empty() { String::new() } else { format!(" -p {package}") };
    let mut text =
        format!("{failure}\n  again: {VARIABLE}={seed} cargo test{of_package} {name} -- --exact\n{FEATURES}");
    let file = format!("{package}-{name}-{seed}").replace(|it: char| !it.is_ascii_alphanumeric(), "-");
    for (what, end, content) in [("trace", "txt", &failure.trace), ("chart", "svg", &failure.chart)] {
        text += &match store(&format!("{file}.{end}"), content) {
            Ok(path) => format!("\n  {what}: {}", path.display()),
            Err(error) => format!("\n  no {what}: {error}"),
        };
    }
    text
}

fn store(name: &str, content: &str) -> std::io::Result<PathBuf> {
    let folder = std::env::temp_dir().join("cmid-worlds");
    std::fs::create_dir_all(&folder)?;
    let path = folder.join(name);
    std::fs::write(&path, content)?;
    Ok(path)
}

fn parse(text: &str) -> Option<Range<u64>> {
    let range = match text.split_once("..") {
        Some((first, end)) => first.parse().ok()?..end.parse().ok()?,
        None => text.parse().ok().and_then(|seed: u64| Some(seed..seed.checked_add(1)?))?,
    };
    (!range.is_empty()).then_some(range)
}

thread_local! {
    /// Whether panics of this thread print nothing: they are the outcomes of worlds.
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs an action whose panics print nothing.
fn quietly<T>(action: impl FnOnce() -> T) -> T {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |panic| {
            if !IS_QUIET.get() {
                before(panic);
            }
        }));
    });
    let was_quiet = IS_QUIET.replace(true);
    let result = action();
    IS_QUIET.set(was_quiet);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_is_a_seed_or_a_range() {
        assert_eq!([parse("17"), parse("3..9"), parse("x"), parse("1..")], [Some(17..18), Some(3..9), None, None]);
    }
}
