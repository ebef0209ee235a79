//! A step of a programme is data: its name, its time, and its work.

use std::fmt;
use std::time::Duration;

use anyhow::Result;
use cmid_softroce::{Kernel, Options, Transport};

use crate::backend::Backend;
use crate::command::{self, Line};
use crate::context::Context;
use crate::guest;

/// A step of a programme.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) name: &'static str,
    /// The seconds that it takes, roughly, on two quiet cores where nothing is built.
    pub(crate) seconds: u64,
    pub(crate) work: Work,
}

/// The work of a step.
#[derive(Debug)]
pub(crate) enum Work {
    /// cargo with these words, beside another step. Words `NAME=VALUE` at the front are variables.
    Cargo(&'static str),
    /// A function on the host, beside another step.
    Beside(fn(&mut Context) -> Result<()>),
    /// A function on the host, alone.
    Alone(fn(&mut Context) -> Result<()>),
    /// Commands in VMs.
    Vm(Vm),
    /// A function with several VMs of this kernel, alone.
    Vms(Kernel, fn(&mut Context) -> Result<()>),
}

/// Commands in VMs, one after the other, each in a VM of its own.
#[derive(Debug)]
pub(crate) struct Vm {
    pub(crate) on: On,
    pub(crate) backend: Backend,
    pub(crate) transport: Transport,
    /// The time limit of each command, in seconds.
    pub(crate) limit: u64,
    /// In MiB.
    pub(crate) memory: u32,
    pub(crate) cpus: u32,
    /// [`Options::counted_clock`].
    pub(crate) counted_clock: bool,
    /// What is done on the host before.
    pub(crate) before: Option<fn(&Context) -> Result<()>>,
    /// In the form of [`command`].
    pub(crate) commands: &'static [&'static str],
}

/// The kernel of a VM.
#[derive(Debug, Clone, Copy)]
pub(crate) enum On {
    /// The selected kernel.
    Selected,
    /// This kernel, independent of the selection.
    Kernel(Kernel),
    /// A machine of each, on one wire, that run the same command.
    Machines(&'static [Kernel]),
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

impl Vm {
    /// These commands on soft-RoCE.
    pub(crate) const fn new(on: On, backend: Backend, limit: u64, commands: &'static [&'static str]) -> Self {
        let transport = Transport::Rxe;
        Vm { on, backend, transport, limit, memory: 512, cpus: 1, counted_clock: false, before: None, commands }
    }

    /// The machines of a command.
    fn machines(&self, selected: Kernel, line: &Line) -> Vec<Options> {
        let machine = |kernel| Options {
            kernel,
            transport: self.transport,
            timeout: Duration::from_secs(self.limit),
            memory_mib: self.memory,
            cpus: self.cpus,
            counted_clock: self.counted_clock,
            writable: line.folders(),
            ..Options::default()
        };
        self.kernels(selected).into_iter().map(machine).collect()
    }

    fn kernels(&self, selected: Kernel) -> Vec<Kernel> {
        match self.on {
            On::Selected => vec![selected],
            On::Kernel(kernel) => vec![kernel],
            On::Machines(kernels) => kernels.to_vec(),
        }
    }

    /// The commands for this selection, and the machines that each runs in.
    pub(crate) fn lines(&self, context: &Context) -> Result<Vec<(Line, Vec<Options>)>> {
        let kernels = self.kernels(context.kernel);
        let line = |text: &&str| {
            let line = command::line(context, kernels[0], self.backend, self.transport, text)?;
            let machines = self.machines(context.kernel, &line);
            Ok((line, machines))
        };
        self.commands.iter().map(line).collect()
    }

    /// Runs the commands. Each must end with status 0, and leave the reports that its line names.
    pub(crate) fn run(&self, context: &Context) -> Result<()> {
        self.before.map_or(Ok(()), |before| before(context))?;
        for (line, machines) in self.lines(context)? {
            line.begin()?;
            guest::run(&machines, &line.words)?;
            line.end()?;
        }
        Ok(())
    }
}

impl Work {
    /// Whether it is useless without the VM.
    pub(crate) fn needs_vm(&self) -> bool {
        matches!(self, Work::Vm(_) | Work::Vms(..))
    }

    /// The kind of steps that run at the same time, if they follow one another. `None` for a step that runs alone.
    ///
    /// A build waits for another one only if both are in the same folder of `target/`.
    pub(crate) fn lane(&self) -> Option<Lane> {
        match self {
            Work::Cargo(_) | Work::Beside(_) => Some(Lane::Host),
            Work::Vm(Vm { on: On::Machines(_), .. }) | Work::Alone(_) | Work::Vms(..) => None,
            Work::Vm(_) => Some(Lane::Vm),
        }
    }

    /// Where it runs, as text.
    pub(crate) fn place(&self, selected: Kernel) -> String {
        match self {
            Work::Cargo(_) | Work::Beside(_) | Work::Alone(_) => "host".to_owned(),
            Work::Vm(vm) => {
                let kernels: Vec<_> = vm.kernels(selected).into_iter().map(Kernel::series).collect();
                format!("VM, {} {}, {}", vm.transport, kernels.join(" and "), vm.backend.name())
            }
            Work::Vms(kernel, _) => format!("VMs, rxe {kernel}"),
        }
    }

    /// What it runs, as the programme states it.
    pub(crate) fn commands(&self) -> String {
        match self {
            Work::Cargo(words) => format!("cargo {words}"),
            Work::Vm(vm) => vm.commands.join("; "),
            Work::Beside(_) | Work::Alone(_) | Work::Vms(..) => "a function of xtask".to_owned(),
        }
    }

    /// Does the work.
    pub(crate) fn run(&self, context: &mut Context) -> Result<()> {
        match self {
            Work::Cargo(text) => {
                let is_variable = |word: &&&str| word.contains('=') && !word.starts_with('-');
                let words: Vec<_> = text.split_whitespace().collect();
                let (variables, words) = words.split_at(words.iter().take_while(is_variable).count());
                let variables = variables.iter().filter_map(|word| word.split_once('='));
                let variables: Vec<_> = variables.map(|(name, value)| (name, value.as_ref())).collect();
                context.cargo(words, &variables)
            }
            Work::Beside(own) | Work::Alone(own) | Work::Vms(_, own) => own(context),
            Work::Vm(vm) => vm.run(context),
        }
    }
}

/// The outcome of a step.
#[derive(Debug)]
pub(crate) enum Outcome {
    Passed(Duration),
    Failed(Duration),
    /// Left out on request, by this option.
    LeftOut(&'static str),
    /// [`OutOfReach`], with its text.
    OutOfReach(String),
    /// An earlier step failed.
    NotReached,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Passed(time) => write!(f, "passed   {:7.1} s", time.as_secs_f32()),
            Outcome::Failed(time) => write!(f, "FAILED   {:7.1} s", time.as_secs_f32()),
            Outcome::LeftOut(option) => write!(f, "NOT RUN ({option})"),
            Outcome::OutOfReach(what) => write!(f, "NOT RUN ({what})"),
            Outcome::NotReached => f.write_str("NOT RUN"),
        }
    }
}

/// The error of a step that needs an external resource which this machine does not reach. Such a step is skipped, and
/// its programme continues.
#[derive(Debug)]
pub(crate) struct OutOfReach(pub(crate) &'static str);

impl OutOfReach {
    /// The exit status of a step's process.
    pub(crate) const STATUS: u8 = 77;
}

impl fmt::Display for OutOfReach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is out of reach", self.0)
    }
}

impl std::error::Error for OutOfReach {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_cpu_runs_one_step_at_a_time_and_two_run_more_vms_than_builds() {
        let at_once = |cpus| [Lane::Host, Lane::Vm].map(|lane| lane.at_once(cpus));
        assert_eq!([1, 2, 3, 16].map(at_once), [[1, 1], [2, 3], [2, 3], [2, 3]]);
    }
}
