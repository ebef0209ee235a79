//! A step of a programme: its work, its place, and its outcome.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::time::Duration;

use anyhow::{Error, Result};
use cmid_softroce::Kernel;

use crate::backend::Backend;
use crate::context::Context;
use crate::{guest, scripts};

/// A step of a programme.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) name: &'static str,
    pub(crate) work: Work,
}

/// The work of a step. Arguments are separated by blanks.
#[derive(Debug)]
pub(crate) enum Work {
    /// Runs cargo with these arguments.
    Cargo(&'static str),
    /// The same with variables set.
    CargoWith(&'static [(&'static str, &'static str)], &'static str),
    /// Runs a function on the host, and nothing beside it.
    Host(fn(&mut Context) -> Result<()>),
    /// Runs a function on the host, beside another step.
    Beside(fn(&mut Context) -> Result<()>),
    /// Builds with cargo the programs that a later step runs in the VM.
    BuildForGuest(&'static str),
    /// Runs a program of the release build in the VM, with its arguments, for at most this many seconds.
    Guest(On, Backend, u64, &'static str),
    /// Runs a command in the VM, which the function makes, for at most this many seconds.
    GuestCommand(On, Backend, u64, fn(&Context, Kernel, Backend) -> Vec<OsString>),
    /// Runs one command in one VM, for at most this many seconds, and evaluates its report.
    Report(On, Backend, u64, fn(&Context, Kernel, Backend, u64) -> Result<()>),
    /// Makes a build of its own and runs it in the VM.
    BuildAndRun(On, Backend, fn(&Context, Kernel, Backend) -> Result<()>),
    /// Runs a function with several VMs, on these kernels.
    Guests(&'static str, fn(&mut Context) -> Result<()>),
}

/// A kind of steps that run at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    Host,
    Vm,
}

impl Lane {
    /// The number of concurrent steps on a machine with so many CPUs. A build has phases with one compiler, and tests
    /// have phases that wait. A VM has one CPU, which is emulated by one thread, and mostly waits for the kernel's
    /// timers: conformance takes 250 seconds, in which it computes for 36.
    pub(crate) fn at_once(self, cpus: usize) -> usize {
        match self {
            Lane::Host => cpus.min(2),
            Lane::Vm => (cpus + cpus / 2).min(3),
        }
    }
}

/// The kernel that a step runs on.
#[derive(Debug, Clone, Copy)]
pub(crate) enum On {
    /// The selected kernel.
    Selected,
    /// This kernel, independent of the selection.
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
    /// Whether it is useless without the VM.
    pub(crate) fn needs_vm(&self) -> bool {
        !matches!(self, Work::Cargo(_) | Work::CargoWith(..) | Work::Host(_) | Work::Beside(_))
    }

    /// Whether it is one command in one VM.
    pub(crate) fn is_one_guest(&self) -> bool {
        matches!(self, Work::Guest(..) | Work::GuestCommand(..) | Work::Report(..))
    }

    /// The kind of steps that run at the same time, if they follow one another. `None` for a step that runs alone.
    ///
    /// A build waits for another one only if both are in the same folder of `target/`.
    pub(crate) fn lane(&self) -> Option<Lane> {
        match self {
            Work::Cargo(_) | Work::CargoWith(..) | Work::Beside(_) | Work::BuildForGuest(_) => Some(Lane::Host),
            Work::Guest(..) | Work::GuestCommand(..) | Work::Report(..) | Work::BuildAndRun(..) => Some(Lane::Vm),
            Work::Host(_) | Work::Guests(..) => None,
        }
    }

    /// Where it runs, as text.
    pub(crate) fn place(&self, context: &Context) -> String {
        match self {
            Work::Cargo(_) | Work::CargoWith(..) | Work::Host(_) | Work::Beside(_) | Work::BuildForGuest(_) => {
                "host".to_owned()
            }
            Work::Guest(on, ..) | Work::GuestCommand(on, ..) | Work::Report(on, ..) | Work::BuildAndRun(on, ..) => {
                format!("VM, kernel {}", on.kernel(context))
            }
            Work::Guests(kernels, _) => format!("VMs, kernels {kernels}"),
        }
    }

    /// Does the work.
    pub(crate) fn run(&self, context: &mut Context) -> Result<()> {
        match self {
            Work::Cargo(arguments) | Work::BuildForGuest(arguments) => context.cargo(&words(arguments), &[]),
            Work::CargoWith(variables, arguments) => {
                let variables: Vec<_> = variables.iter().map(|(name, value)| (*name, OsStr::new(*value))).collect();
                context.cargo(&words(arguments), &variables)
            }
            Work::Host(own) | Work::Beside(own) | Work::Guests(_, own) => own(context),
            Work::Guest(on, backend, limit, command) => {
                let command = scripts::program(context, *backend, &words(command));
                guest::run(on.kernel(context), *limit, &command, Vec::new())
            }
            Work::GuestCommand(on, backend, limit, command) => {
                let kernel = on.kernel(context);
                guest::run(kernel, *limit, &command(context, kernel, *backend), Vec::new())
            }
            Work::Report(on, backend, limit, own) => own(context, on.kernel(context), *backend, *limit),
            Work::BuildAndRun(on, backend, own) => own(context, on.kernel(context), *backend),
        }
    }
}

fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

/// The outcome of a step.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Outcome {
    Passed(Duration),
    Failed(Duration),
    /// Left out on request.
    LeftOut,
    /// This machine does not reach a server or resource that the step needs: [`OutOfReach`].
    OutOfReach(&'static str),
    /// An earlier step failed.
    NotReached,
}

impl Outcome {
    /// The outcome for the result of a step that took this long.
    pub(crate) fn of(result: &Result<()>, time: Duration) -> Self {
        match result {
            Ok(()) => Outcome::Passed(time),
            Err(error) => match error.downcast_ref() {
                Some(OutOfReach(what)) => Outcome::OutOfReach(what),
                None => Outcome::Failed(time),
            },
        }
    }
}

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

/// The error of a step that needs an external resource which this machine does not reach. Such a step is skipped, and
/// its programme continues.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OutOfReach(pub(crate) &'static str);

impl fmt::Display for OutOfReach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is out of reach", self.0)
    }
}

impl std::error::Error for OutOfReach {}

/// The outcome of a step, and its error.
pub(crate) type Ended = (Outcome, Option<Error>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_cpu_runs_one_step_at_a_time_and_two_run_more_vms_than_builds() {
        let at_once = |cpus| [Lane::Host, Lane::Vm].map(|lane| lane.at_once(cpus));
        assert_eq!([1, 2, 3, 16].map(at_once), [[1, 1], [2, 3], [2, 3], [2, 3]]);
    }
}
