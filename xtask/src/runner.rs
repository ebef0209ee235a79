//! Runs the steps of a programme: the plan, their order, their times, and the summary.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{self, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use std::{iter, thread};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use cmid_softroce::Kernel;
use rustix::pipe::{PipeFlags, pipe_with};

use crate::context::Context;
use crate::programme::BUILDS;
use crate::step::{Lane, OutOfReach, Outcome, Step, Work};
use crate::{host, needs};

/// The steps of a programme.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Programme {
    pub(crate) steps: &'static [Step],
    /// The option of `cargo xtask step` that selects it.
    pub(crate) option: Option<&'static str>,
}

/// What of a programme is run.
#[derive(Debug, Args)]
pub(crate) struct Selection {
    /// Leave out the steps that run in the VM (the summary shows them)
    #[arg(long)]
    no_vm: bool,
    /// Begin with this step. What those before it have built is used
    #[arg(long, value_name = "STEP")]
    from: Option<String>,
    /// Continue the last run with this kernel: leave out the steps that have passed in it, or that it has left out by
    /// --from, but not the builds for the VM
    #[arg(long, conflicts_with = "from")]
    resume: bool,
    /// Only print the steps, with their times and commands
    #[arg(long)]
    plan: bool,
}

impl Selection {
    /// Why a step is left out: an option.
    fn left_out(&self, steps: &[Step], index: usize, first: usize, passed: &str) -> Option<&'static str> {
        let name = steps[index].name;
        let is_passed = self.resume && !BUILDS.contains(&name) && passed.lines().any(|passed| passed == name);
        let reasons = [
            (self.no_vm && steps[index].work.needs_vm(), "--no-vm"),
            (index < first, "--from"),
            (is_passed, "--resume"),
        ];
        reasons.into_iter().find_map(|(is_so, reason)| is_so.then_some(reason))
    }
}

/// A step with its number in the programme, from one.
#[derive(Clone, Copy)]
struct Place {
    number: usize,
    step: &'static Step,
}

/// The outcome of a step, and the message of its error.
type Ended = (Outcome, Option<String>);

/// Runs the selected steps up to the first failure. Consecutive steps run a few at a time, if they have a lane.
pub(crate) fn run_all(context: &Context, programme: Programme, selection: &Selection) -> Result<()> {
    let steps = programme.steps;
    let first = selection.from.as_ref().map_or(Ok(0), |from| position(programme, from))?;
    let file = passed(context, programme);
    if !selection.resume && !selection.plan {
        // A later --resume leaves out what this run does.
        let names = steps[..first].iter().map(|step| format!("{}\n", step.name));
        fs::write(&file, names.collect::<String>()).with_context(|| file.display().to_string())?;
    }
    let before = fs::read_to_string(&file).unwrap_or_default();
    let left_out: Vec<_> = (0..steps.len()).map(|index| selection.left_out(steps, index, first, &before)).collect();
    let places = steps.iter().zip(1..).map(|(step, number)| Place { number, step });
    let places: Vec<_> = places.filter(|place| left_out[place.number - 1].is_none()).collect();
    let groups: Vec<_> = places.chunk_by(are_together).collect();
    plan(context, &places, &groups);
    if selection.plan {
        return Ok(());
    }
    let needs_vm = places.iter().any(|place| place.step.work.needs_vm());
    needs::check(context, kernels(context, programme, needs_vm), programme.option.is_some())?;

    let outcome = |left: &Option<_>| left.map_or(Outcome::NotReached, Outcome::LeftOut);
    let mut outcomes: Vec<_> = left_out.iter().map(outcome).collect();
    let mut failures = Vec::new();
    for group in groups {
        for (place, (outcome, failure)) in run_group(group, |place| run(context, programme, place, &file)) {
            outcomes[place.number - 1] = outcome;
            failures.extend(failure);
        }
        if !failures.is_empty() {
            break;
        }
    }
    let rows = steps
        .iter()
        .zip(outcomes)
        .map(|(step, end)| [step.name.to_owned(), step.work.place(context.kernel), end.to_string()]);
    print!("\n{}", table(&["step", "where", "result"], &rows.collect::<Vec<_>>()));
    ensure!(failures.is_empty(), "{}\n`cargo xtask test --resume` continues", failures.join("\n"));
    Ok(())
}

/// Runs the step of that name alone, after the preparation of the host that it needs.
pub(crate) fn run_one(mut context: Context, programme: Programme, name: &str) -> Result<()> {
    let step = &programme.steps[position(programme, name)?];
    if !matches!(&step.work, Work::Vm(vm) if vm.before.is_none()) {
        host::prepare(&mut context)?;
    }
    step.work.run(&mut context)
}

fn position(programme: Programme, name: &str) -> Result<usize> {
    let position = programme.steps.iter().position(|step| step.name == name);
    position.with_context(|| format!("no step is called \"{name}\""))
}

/// The file with the names of the steps that have passed since the programme was begun with this kernel.
fn passed(context: &Context, programme: Programme) -> PathBuf {
    context.target().join(format!("passed{}-{}", programme.option.unwrap_or_default(), context.kernel.series()))
}

fn kernels(context: &Context, programme: Programme, needs_vm: bool) -> &[Kernel] {
    match (needs_vm, programme.option) {
        (false, _) => &[],
        (true, None) => std::slice::from_ref(&context.kernel),
        (true, Some(_)) => &[Kernel::V6_1, Kernel::V6_12],
    }
}

/// Whether a step and the next one are of one group. A step of a VM does not begin before the steps on the host that are
/// above it have ended: they build its program. Those below it run beside it.
fn are_together(one: &Place, next: &Place) -> bool {
    match (one.step.work.lane(), next.step.work.lane()) {
        (Some(one), Some(next)) => one == next || next == Lane::Host,
        _ => false,
    }
}

/// The steps of a group that run one after the other or a few at a time, and how many.
fn lanes(group: &[Place]) -> Vec<(usize, Vec<Place>)> {
    let cpus = thread::available_parallelism().map_or(1, NonZero::get);
    let of = |lane| {
        let steps = group.iter().copied().filter(|place| place.step.work.lane() == lane);
        (lane.map_or(1, |lane: Lane| lane.at_once(cpus)), steps.collect())
    };
    [None, Some(Lane::Host), Some(Lane::Vm)].map(of).into()
}

/// Runs the steps of a group. After a failure no new one begins.
fn run_group(group: &[Place], one: impl Fn(Place) -> Ended + Sync) -> Vec<(Place, Ended)> {
    let (ended, is_over) = (Mutex::new(Vec::new()), AtomicBool::new(false));
    let run = |place: Place| {
        let end = if is_over.load(SeqCst) { (Outcome::NotReached, None) } else { one(place) };
        is_over.fetch_or(end.1.is_some(), SeqCst);
        ended.lock().unwrap_or_else(PoisonError::into_inner).push((place, end));
    };
    thread::scope(|scope| {
        for (at_once, steps) in lanes(group) {
            let steps = Arc::new(Mutex::new(steps.into_iter()));
            let next = move || steps.lock().unwrap_or_else(PoisonError::into_inner).next();
            for _ in 0..at_once {
                let (next, run) = (next.clone(), &run);
                scope.spawn(move || iter::from_fn(next).for_each(run));
            }
        }
    });
    ended.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Prints what is run, and how long it takes.
fn plan(context: &Context, places: &[Place], groups: &[&[Place]]) {
    let row = |place: &Place| {
        let Step { name, seconds, work } = place.step;
        [place.number.to_string(), (*name).to_owned(), work.place(context.kernel), seconds.to_string(), work.commands()]
    };
    let rows: Vec<_> = places.iter().map(row).collect();
    print!("{}", table(&["", "step", "where", "s", "command"], &rows));
    let makespan =
        |(at_once, steps): (usize, Vec<Place>)| makespan(at_once, steps.iter().map(|place| place.step.seconds));
    let seconds = groups.iter().filter_map(|group| lanes(group).into_iter().map(makespan).max());
    let minutes = seconds.sum::<u64>().div_ceil(60);
    println!("{} steps, about {minutes} minutes on two quiet cores where nothing is built", places.len());
}

/// The time of jobs of these lengths, a few at a time, in their order.
fn makespan(at_once: usize, jobs: impl Iterator<Item = u64>) -> u64 {
    let mut lanes = vec![0; at_once];
    for job in jobs {
        if let Some(first) = lanes.iter_mut().min() {
            *first += job;
        }
    }
    lanes.into_iter().max().unwrap_or_default()
}

/// Runs the step, with a line above its output and one below it. Adds its name to the file of those that have passed.
fn run(context: &Context, programme: Programme, place: Place, passed: &Path) -> Ended {
    let name = place.step.name;
    println!("\n==> {}/{} {name}", place.number, programme.steps.len());
    let begin = Instant::now();
    let (outcome, failure) = match apart(context, programme, place) {
        Ok(None) => (Outcome::Passed(begin.elapsed()), None),
        Ok(Some(what)) => (Outcome::OutOfReach(what), None),
        Err(error) => (Outcome::Failed(begin.elapsed()), Some(format!("the step \"{name}\" failed: {error:#}"))),
    };
    println!("<== {name}: {outcome}");
    if matches!(outcome, Outcome::Passed(_)) {
        let file = OpenOptions::new().create(true).append(true).open(passed);
        if let Err(error) = file.and_then(|mut file| writeln!(file, "{name}")) {
            println!("{}: {error}: --resume will run this step again", passed.display());
        }
    }
    (outcome, failure)
}

/// The number of lines of a failed step's output that the error repeats: the other lanes print between them.
const REPEATED: usize = 20;

/// Runs the step in a process of its own. Prefixes its output with its number. An error has the last lines of the
/// output. Returns what is out of reach, if the step could not run for that.
fn apart(context: &Context, programme: Programme, place: Place) -> Result<Option<String>> {
    let (output, input) = pipe_with(PipeFlags::CLOEXEC).context("a pipe")?;
    // A VM that waits for a CPU can miss a time limit, so the steps on the host are behind. The program is named by its
    // process: a step that builds the whole workspace may replace the file.
    let behind = if place.step.work.lane() == Some(Lane::Vm) { "0" } else { "10" };
    let mut command = Command::new("nice");
    command
        .args(["-n", behind, &format!("/proc/{}/exe", process::id())])
        .args(["step", place.step.name, "--kernel", context.kernel.series()])
        .args(programme.option);
    // A backtrace of an error would hide its message. Panics keep theirs.
    command.env("RUST_LIB_BACKTRACE", "0");
    let mut child = command.stdin(Stdio::null()).stdout(input.try_clone()?).stderr(input).spawn()?;
    drop(command); // with its ends of the pipe
    let mut all = Vec::new();
    let said = BufReader::new(File::from(output)).split(b'\n').try_for_each(|line| {
        all.push(String::from_utf8_lossy(&line?).into_owned());
        println!("{:2}| {}", place.number, all[all.len() - 1]);
        io::Result::Ok(())
    });
    if said.is_err() {
        child.kill().context("the step's process")?;
    }
    let status = child.wait().context("the step's process")?;
    said.context("what the step says")?;
    match status.code() {
        Some(0) => Ok(None),
        Some(code) if code == i32::from(OutOfReach::STATUS) => {
            Ok(Some(all.pop().unwrap_or_default().trim_start_matches("xtask: ").to_owned()))
        }
        _ => bail!("{status}. Its last lines:\n{}", all[all.len().saturating_sub(REPEATED)..].join("\n")),
    }
}

/// A table with a head.
fn table<const N: usize>(head: &[&str; N], rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0).max(head[column].len());
    let line = |cells: &[String; N]| {
        let cells = cells.iter().enumerate().map(|(column, cell)| match column + 1 < N {
            true => format!("{cell:width$}", width = width(column)),
            false => cell.clone(),
        });
        cells.collect::<Vec<_>>().join(" | ").trim_end().to_owned() + "\n"
    };
    [&head.map(str::to_owned)].into_iter().chain(rows).map(line).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::backend::Backend;
    use crate::step::{On, Vm};

    const STEPS: [Step; 3] = [
        Step { name: "a", seconds: 1, work: Work::Cargo("a") },
        Step { name: "b", seconds: 1, work: Work::Vms(Kernel::V6_12, |_| Ok(())) },
        Step { name: "c", seconds: 1, work: Work::Cargo("c") },
    ];

    #[test]
    fn the_table_tells_what_was_not_run() {
        let end = |outcome: Outcome| outcome.to_string();
        let rows = [
            ["a step".into(), "host".into(), end(Outcome::Passed(Duration::from_millis(1500)))],
            ["b".into(), "VM, 6.12".into(), end(Outcome::LeftOut("--no-vm"))],
        ];
        let table = table(&["step", "where", "result"], &rows);
        assert!(table.contains("a step | host     | passed       1.5 s\n"), "{table}");
        assert!(table.contains("b      | VM, 6.12 | NOT RUN (--no-vm)\n"), "{table}");
    }

    #[test]
    fn options_leave_steps_out() {
        let all = Selection { no_vm: false, from: None, resume: false, plan: false };
        let of = |selection: &Selection| {
            let first = usize::from(selection.from.is_some());
            [0, 1, 2].map(|index| selection.left_out(&STEPS, index, first, "a\n").is_some())
        };
        assert_eq!(of(&all), [false; 3]);
        assert_eq!(of(&Selection { no_vm: true, from: Some("b".into()), ..all }), [true, true, false]);
        let resumed = Selection { no_vm: false, from: None, resume: true, plan: false };
        assert_eq!(of(&resumed), [true, false, false]);
        // The sources may have changed since then.
        let build = Step { name: BUILDS[0], seconds: 1, work: Work::Cargo("build") };
        assert_eq!(resumed.left_out(&[build], 0, 0, BUILDS[0]), None);
    }

    #[test]
    fn a_run_with_another_kernel_is_not_continued() {
        let of = |kernel| passed(&Context::new(kernel).unwrap(), Programme { steps: &STEPS, option: None });
        assert_ne!(of(Kernel::V6_1), of(Kernel::V6_12));
    }

    /// Steps that run alone (a), on the host (h) and in a VM (v).
    fn places(kinds: &str) -> Vec<Place> {
        let work = |kind| match kind {
            'a' => Work::Alone(|_| Ok(())),
            'h' => Work::Cargo(""),
            _ => Work::Vm(Vm::new(On::Selected, Backend::Kernel, 1, &[])),
        };
        let steps: Vec<_> = kinds.chars().map(|kind| Step { name: "", seconds: 1, work: work(kind) }).collect();
        steps.leak().iter().zip(1..).map(|(step, number)| Place { number, step }).collect()
    }

    #[test]
    fn a_vm_waits_for_the_host_steps_above_it_and_not_for_those_below() {
        let places = places("aahhvvhha");
        let groups = places.chunk_by(are_together).map(|group| group.len());
        assert_eq!(groups.collect::<Vec<_>>(), [1, 1, 2, 4, 1]);
    }

    #[test]
    fn after_a_failure_none_begins() {
        let end = |place: Place| (Outcome::Passed(Duration::ZERO), (place.number == 2).then(String::new));
        let passed = |steps| {
            let ended = run_group(&places(steps), end);
            ended.iter().filter(|(_, (end, _))| matches!(end, Outcome::Passed(_))).count()
        };
        assert_eq!([passed("a"), passed("h")], [1, 1]);
        let ended = run_group(&places("vvvvvvvvvvhhhhhhhhhh"), |place| {
            thread::sleep(Duration::from_millis(20));
            end(place)
        });
        let begun = ended.iter().filter(|(_, (end, _))| matches!(end, Outcome::Passed(_))).count();
        assert!(ended.len() == 20 && begun < 15, "{begun} of {}", ended.len());
    }

    #[test]
    fn the_first_free_lane_takes_the_next_job() {
        assert_eq!([makespan(1, [3, 2, 4].into_iter()), makespan(2, [3, 2, 4].into_iter())], [9, 6]);
    }
}
