//! `cargo xtask softroce`: runs a command in the VM.

use clap::Args;
use cmid_softroce::{Kernel, Options};
use std::{ffi::OsString, path::PathBuf, time::Duration};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The kernel: 6.1 or 6.12
    #[arg(long, default_value_t)]
    kernel: Kernel,
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

/// Runs the command. Returns the exit status: the command's, or one that identifies the error.
pub(crate) fn run(arguments: &Arguments) -> u8 {
    let options = Options {
        kernel: arguments.kernel,
        timeout: Duration::from_secs(arguments.timeout),
        memory_mib: arguments.memory,
        cpus: arguments.smp,
        counted_clock: arguments.counted_clock,
        writable: arguments.rw.clone(),
        environment: Vec::new(),
    };
    cmid_softroce::run(&options, &arguments.command).unwrap_or_else(|error| {
        eprintln!("softroce: {error}");
        error.exit_status()
    })
}
