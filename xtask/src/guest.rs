//! Commands in the VM.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use cmid_softroce::{Kernel, Options, Transport};

use crate::context::THIS_PROGRAM;

/// Runs a command in a VM with these options. A status other than 0 is an error.
pub(crate) fn run_with(options: &Options, command: &[OsString]) -> Result<()> {
    let status = cmid_softroce::run(options, command)?;
    ensure!(status == 0, "in the VM: exit status {status}");
    Ok(())
}

/// The same for at most `limit` seconds, in a VM with the usual options. The command may write to these directories.
pub(crate) fn run(kernel: Kernel, limit: u64, command: &[OsString], writable: Vec<PathBuf>) -> Result<()> {
    run_with(&Options { kernel, timeout: Duration::from_secs(limit), writable, ..Options::default() }, command)
}

/// One of several commands that run at once, each in a VM of its own.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) name: String,
    pub(crate) kernel: Kernel,
    pub(crate) command: Vec<OsString>,
}

/// Runs all of them at once, each for at most `limit` seconds, and shows the output of each at its end. They may
/// write to `directory`.
pub(crate) fn run_at_once(jobs: Vec<Job>, limit: u64, directory: &Path) -> Result<()> {
    let begin = |job: Job| -> Result<(String, PathBuf, Child)> {
        let log = directory.join(format!("{}.log", job.name));
        let output = File::create(&log).with_context(|| log.display().to_string())?;
        let mut command = Command::new(THIS_PROGRAM);
        command.args(["softroce", "--kernel", job.kernel.series(), "--timeout", &limit.to_string(), "--rw"]);
        command.arg(directory).arg("--").args(job.command).stdout(output.try_clone()?).stderr(output);
        println!("{}: begins; what it says is in {}", job.name, log.display());
        Ok((job.name, log, command.spawn().context("this program")?))
    };
    let running = jobs.into_iter().map(begin).collect::<Result<Vec<_>>>()?;
    let mut failed = Vec::new();
    for (name, log, mut child) in running {
        let status = child.wait().with_context(|| name.clone())?;
        println!("--- {name}: {status}\n{}", std::fs::read_to_string(&log).unwrap_or_default().trim_end());
        if !status.success() {
            failed.push(name);
        }
    }
    ensure!(failed.is_empty(), "in the VM failed: {}", failed.join(", "));
    Ok(())
}

/// The arguments of `cargo xtask softroce`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The kernel: 6.1 or 6.12. For several machines a list: each takes the next, the first comes after the last
    #[arg(long, default_values_t = [Kernel::default()], value_delimiter = ',')]
    kernel: Vec<Kernel>,
    /// The transport of the RDMA devices: rxe (soft-RoCE) or siw (soft-iWARP, built from Debian's source of the kernel)
    #[arg(long, default_value_t)]
    transport: Transport,
    /// Boot several machines on one wire and run the command in each, with its number in CMID_MACHINE; machine N has
    /// the addresses 10.97.0.N and fd97::N
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    machines: u8,
    /// The command's time limit in seconds, without booting
    #[arg(long, default_value_t = 300, value_name = "S")]
    timeout: u64,
    /// The number of CPUs; more than one is not quite reliable under emulation
    #[arg(long, default_value_t = 1, value_name = "N")]
    smp: u32,
    /// The memory in MiB
    #[arg(long, default_value_t = 512, value_name = "MIB")]
    memory: u32,
    /// Let the guest's clock count its instructions: a fast CPU, independent of the host's load
    #[arg(long)]
    counted_clock: bool,
    /// A directory that the command may write to; writes elsewhere are discarded
    #[arg(long, value_name = "DIR")]
    rw: Vec<PathBuf>,
    /// The command
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// `cargo xtask softroce`: runs the command. Returns the exit status: the command's, or one that identifies the error.
pub(crate) fn softroce(arguments: &Arguments) -> u8 {
    let options = |kernel: &Kernel| Options {
        kernel: *kernel,
        transport: arguments.transport,
        timeout: Duration::from_secs(arguments.timeout),
        memory_mib: arguments.memory,
        cpus: arguments.smp,
        counted_clock: arguments.counted_clock,
        writable: arguments.rw.clone(),
        environment: Vec::new(),
    };
    let kernels = arguments.kernel.iter().cycle();
    let machines: Vec<_> = kernels.take(arguments.machines.into()).map(options).collect();
    let status = match machines.as_slice() {
        [one] => cmid_softroce::run(one, &arguments.command),
        several => cmid_softroce::run_machines(several, &arguments.command),
    };
    status.unwrap_or_else(|error| {
        eprintln!("softroce: {error}");
        error.exit_status()
    })
}
