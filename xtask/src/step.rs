//! Steps, their order, their times, and the summary.

use crate::{
    conformance,
    context::Context,
    faults, guest, host, lanes,
    programme::Programme,
    sanitize::{self, Extent},
};
use anyhow::{Context as _, Error, Result, bail};
use cmid_softroce::Kernel;
use std::{
    ffi::{OsStr, OsString},
    fmt,
    time::{Duration, Instant},
};

/// One of the things that must succeed.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) name: &'static str,
    pub(crate) work: Work,
}

/// What a step does.
#[derive(Debug)]
pub(crate) enum Work {
    /// Runs cargo with these arguments.
    Cargo(&'static [&'static str]),
    /// The same with variables set.
    CargoWith(&'static [(&'static str, &'static str)], &'static [&'static str]),
    /// Does something of our own on the host.
    Host(fn(&mut Context) -> Result<()>),
    /// Builds with cargo what a later step runs in the VM.
    BuildForGuest(&'static [&'static str]),
    /// Runs the conformance suite in the VM, for at most so many seconds, and compares with the recorded results.
    Conformance(On, u64),
    /// Lets things go wrong in the VM, for at most so many seconds, and compares with what is to be told.
    Faults(On, u64),
    /// Does something of our own in several VMs at once, on these kernels.
    Guests(&'static str, fn(&mut Context) -> Result<()>),
    /// Runs in the VM a program of the release build, with these arguments, for at most so many seconds.
    Guest(On, u64, &'static str, &'static [&'static str]),
    /// Runs in the VM, for at most so many seconds, a command that is put together first, for that kernel.
    GuestCommand(On, u64, fn(&Context, Kernel) -> Vec<OsString>),
    /// Builds something of its own and runs it in the VM.
    Sanitize(On, Extent),
}

/// The kernel that a step runs on.
#[derive(Debug, Clone, Copy)]
pub(crate) enum On {
    /// The one that was asked for.
    Selected,
    /// This one, whatever was asked for.
    Kernel(Kernel),
}

impl On {
    fn kernel(self, context: &Context) -> Kernel {
        match self {
            On::Selected => context.kernel,
            On::Kernel(kernel) => kernel,
        }
    }
}

impl Work {
    /// Whether there is no use in it without the VM.
    fn needs_vm(&self) -> bool {
        match self {
            Work::Cargo(_) | Work::CargoWith(..) | Work::Host(_) => false,
            Work::BuildForGuest(_)
            | Work::Conformance(..)
            | Work::Faults(..)
            | Work::Guests(..)
            | Work::Guest(..)
            | Work::GuestCommand(..)
            | Work::Sanitize(..) => true,
        }
    }

    /// Whether it is one command in one VM. Such steps have nothing to do with each other: several run at once.
    fn is_one_guest(&self) -> bool {
        matches!(self, Work::Conformance(..) | Work::Faults(..) | Work::Guest(..) | Work::GuestCommand(..))
    }

    fn place(&self, context: &Context) -> String {
        match self {
            Work::Cargo(_) | Work::CargoWith(..) | Work::Host(_) | Work::BuildForGuest(_) => "host".to_owned(),
            Work::Conformance(on, _)
            | Work::Faults(on, _)
            | Work::Guest(on, ..)
            | Work::GuestCommand(on, ..)
            | Work::Sanitize(on, _) => {
                format!("VM, kernel {}", on.kernel(context))
            }
            Work::Guests(kernels, _) => format!("VMs, kernels {kernels}"),
        }
    }

    fn run(&self, context: &mut Context) -> Result<()> {
        match self {
            Work::Cargo(arguments) | Work::BuildForGuest(arguments) => context.cargo(arguments, &[]),
            Work::CargoWith(variables, arguments) => {
                let variables: Vec<_> = variables.iter().map(|(name, value)| (*name, OsStr::new(*value))).collect();
                context.cargo(arguments, &variables)
            }
            Work::Host(check) => check(context),
            Work::Conformance(on, limit) => conformance::in_guest(context, on.kernel(context), *limit),
            Work::Faults(on, limit) => faults::in_guest(context, on.kernel(context), *limit),
            Work::Guests(_, programme) => programme(context),
            Work::Guest(on, limit, program, arguments) => {
                let mut command = vec![context.release(program).into_os_string()];
                command.extend(arguments.iter().map(OsString::from));
                guest::run(on.kernel(context), *limit, &command, Vec::new())
            }
            Work::GuestCommand(on, limit, command) => {
                let kernel = on.kernel(context);
                guest::run(kernel, *limit, &command(context, kernel), Vec::new())
            }
            Work::Sanitize(on, extent) => sanitize::step(context, on.kernel(context), *extent),
        }
    }
}

/// What became of a step.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Outcome {
    Passed(Duration),
    Failed(Duration),
    /// Asked to be left out.
    LeftOut,
    /// This machine does not reach what it needs: [`OutOfReach`].
    OutOfReach(&'static str),
    /// An earlier step failed.
    NotReached,
}

/// The error of a step that needs something from outside which this machine does not reach. Such a step is not run, and its
/// programme goes on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OutOfReach(pub(crate) &'static str);

impl fmt::Display for OutOfReach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is out of reach", self.0)
    }
}

impl std::error::Error for OutOfReach {}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Passed(time) => write!(f, "passed   {:7.1} s", time.as_secs_f32()),
            Outcome::Failed(time) => write!(f, "FAILED   {:7.1} s", time.as_secs_f32()),
            Outcome::LeftOut => f.write_str("NOT RUN (--no-vm)"),
            Outcome::OutOfReach(what) => write!(f, "NOT RUN ({what} is out of reach)"),
            Outcome::NotReached => f.write_str("NOT RUN"),
        }
    }
}

/// A step among all of them, numbered from one.
pub(crate) struct NumberedStep<'a> {
    pub(crate) number: usize,
    of: usize,
    pub(crate) step: &'a Step,
}

impl NumberedStep<'_> {
    /// What stands above the step's output.
    pub(crate) fn announce(&self) {
        println!("\n==> {}/{} {}", self.number, self.of, self.step.name);
    }

    /// What stands below it; the step's failure gets its name.
    pub(crate) fn conclude(&self, begin: Instant, result: Result<()>) -> (Outcome, Option<Error>) {
        let outcome = match &result {
            Ok(()) => Outcome::Passed(begin.elapsed()),
            Err(error) => match error.downcast_ref() {
                Some(OutOfReach(what)) => Outcome::OutOfReach(what),
                None => Outcome::Failed(begin.elapsed()),
            },
        };
        println!("<== {}: {outcome}", self.step.name);
        let failure = result.err().filter(|error| !error.is::<OutOfReach>());
        (outcome, failure.map(|error| error.context(format!("the step \"{}\" failed", self.step.name))))
    }
}

/// Runs the steps up to the first one that fails; those in the VM that follow each other, a few at a time.
pub(crate) fn run_all(mut context: Context, programme: Programme, vm: bool) -> Result<()> {
    let steps = programme.steps();
    let mut outcomes = vec![Outcome::NotReached; steps.len()];
    let mut failures = Vec::new();
    let places = steps.iter().zip(1..).map(|(step, number)| NumberedStep { number, of: steps.len(), step });
    let places: Vec<_> = places.collect();
    for group in places.chunk_by(|one, next| one.step.work.is_one_guest() && next.step.work.is_one_guest()) {
        let ended: Vec<_> = match group {
            [place, ..] if !vm && place.step.work.needs_vm() => {
                group.iter().map(|_| (Outcome::LeftOut, None)).collect()
            }
            [place] => {
                place.announce();
                let begin = Instant::now();
                let result = place.step.work.run(&mut context);
                vec![place.conclude(begin, result)]
            }
            _ => lanes::run(&context, programme, group),
        };
        for (place, (outcome, failure)) in group.iter().zip(ended) {
            outcomes[place.number - 1] = outcome;
            failures.extend(failure);
        }
        if !failures.is_empty() {
            break;
        }
    }
    let rows =
        places.iter().zip(outcomes).map(|(place, outcome)| (place.step.name, place.step.work.place(&context), outcome));
    print!("{}", table(&rows.collect::<Vec<_>>()));
    match failures.len() {
        0 => Ok(()),
        1 => Err(failures.remove(0)),
        several => bail!("{several} steps failed: {}", join(&failures)),
    }
}

/// Runs the step of that name, by itself, with what it needs on the host.
pub(crate) fn run_one(mut context: Context, programme: Programme, name: &str) -> Result<()> {
    let step = programme.steps().iter().find(|step| step.name == name);
    let step = step.with_context(|| format!("no step is called \"{name}\""))?;
    if !step.work.is_one_guest() {
        host::prepare(&mut context)?;
    }
    step.work.run(&mut context)
}

fn join(failures: &[Error]) -> String {
    failures.iter().map(|failure| format!("{failure:#}")).collect::<Vec<_>>().join("; ")
}

fn table(rows: &[(&str, String, Outcome)]) -> String {
    let name = rows.iter().map(|(name, ..)| name.len()).max().unwrap_or_default();
    let place = rows.iter().map(|(_, place, _)| place.len()).max().unwrap_or_default();
    let mut table = format!("\n{:name$} | {:place$} | result\n", "step", "where");
    for (step, at, outcome) in rows {
        table.push_str(&format!("{step:name$} | {at:place$} | {outcome}\n"));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_tells_what_was_not_run() {
        let rows = [
            ("a step", "host".to_owned(), Outcome::Passed(Duration::from_millis(1500))),
            ("b", "VM, kernel 6.12".to_owned(), Outcome::LeftOut),
        ];
        let table = table(&rows);
        assert!(table.contains("a step | host            | passed       1.5 s\n"), "{table}");
        assert!(table.contains("b      | VM, kernel 6.12 | NOT RUN (--no-vm)\n"), "{table}");
    }

    #[test]
    fn a_step_whose_needs_are_out_of_reach_is_not_run_and_no_failure() {
        let step = Step { name: "a", work: Work::Host(|_| Ok(())) };
        let place = NumberedStep { number: 1, of: 1, step: &step };
        let (outcome, failure) = place.conclude(Instant::now(), Err(OutOfReach("the database").into()));
        assert_eq!(outcome.to_string(), "NOT RUN (the database is out of reach)");
        assert!(failure.is_none());
        let (outcome, failure) = place.conclude(Instant::now(), Err(anyhow::anyhow!("wrong")));
        assert!(matches!(outcome, Outcome::Failed(_)));
        assert_eq!(failure.unwrap().to_string(), "the step \"a\" failed");
    }

    #[test]
    fn step_names_are_unique() {
        for steps in [Programme::Daily, Programme::Slow].map(Programme::steps) {
            let mut names: Vec<_> = steps.iter().map(|step| step.name).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), steps.len());
        }
    }
}
