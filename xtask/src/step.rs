//! Steps, their order, their times, and the summary.

use crate::{conformance, context::Context, faults, guest};
use anyhow::{Context as _, Result};
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
}

/// The kernel that a step runs on.
#[derive(Debug, Clone, Copy)]
pub(crate) enum On {
    /// The one that was asked for.
    Asked,
    /// This one, whatever was asked for.
    Kernel(Kernel),
}

impl On {
    fn kernel(self, context: &Context) -> Kernel {
        match self {
            On::Asked => context.kernel,
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
            | Work::GuestCommand(..) => true,
        }
    }

    fn place(&self, context: &Context) -> String {
        match self {
            Work::Cargo(_) | Work::CargoWith(..) | Work::Host(_) | Work::BuildForGuest(_) => "host".to_owned(),
            Work::Conformance(on, _) | Work::Faults(on, _) | Work::Guest(on, ..) | Work::GuestCommand(on, ..) => {
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
        }
    }
}

/// What became of a step.
#[derive(Debug, Clone, Copy)]
enum Outcome {
    Passed(Duration),
    Failed(Duration),
    /// Asked to be left out.
    LeftOut,
    /// An earlier step failed.
    NotReached,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Passed(time) => write!(f, "passed   {:7.1} s", time.as_secs_f32()),
            Outcome::Failed(time) => write!(f, "FAILED   {:7.1} s", time.as_secs_f32()),
            Outcome::LeftOut => f.write_str("NOT RUN (--no-vm)"),
            Outcome::NotReached => f.write_str("NOT RUN"),
        }
    }
}

/// Runs the steps up to the first one that fails.
pub(crate) fn run_all(mut context: Context, steps: &[Step], vm: bool) -> Result<()> {
    let mut rows = Vec::new();
    let mut failure = None;
    for (index, step) in steps.iter().enumerate() {
        let outcome = if failure.is_some() {
            Outcome::NotReached
        } else if step.work.needs_vm() && !vm {
            Outcome::LeftOut
        } else {
            println!("\n==> {}/{} {}", index + 1, steps.len(), step.name);
            let begin = Instant::now();
            let result = step.work.run(&mut context).with_context(|| format!("the step \"{}\" failed", step.name));
            let outcome = match result {
                Ok(()) => Outcome::Passed(begin.elapsed()),
                Err(error) => {
                    failure = Some(error);
                    Outcome::Failed(begin.elapsed())
                }
            };
            println!("<== {}: {outcome}", step.name);
            outcome
        };
        rows.push((step.name, step.work.place(&context), outcome));
    }
    print!("{}", table(&rows));
    failure.map_or(Ok(()), Err)
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
    use crate::programme;

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
    fn step_names_are_unique() {
        for steps in [programme::STEPS, programme::SLOW] {
            let mut names: Vec<_> = steps.iter().map(|step| step.name).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), steps.len());
        }
    }
}
