//! Commands in the VM.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;
use cmid_softroce::{Error, Kernel, Options, Transport};

/// Runs a command in a machine, or in each of several on one wire. A status other than 0 is an error.
pub(crate) fn run(machines: &[Options], command: &[OsString]) -> Result<()> {
    let status = status(machines, command)?;
    ensure!(status == 0, "in the VM: exit status {status}");
    Ok(())
}

fn status(machines: &[Options], command: &[OsString]) -> Result<u8, Error> {
    match machines {
        [one] => cmid_softroce::run(one, command),
        several => cmid_softroce::run_machines(several, command),
    }
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
    status(&machines, &arguments.command).unwrap_or_else(|error| {
        eprintln!("softroce: {error}");
        error.exit_status()
    })
}
