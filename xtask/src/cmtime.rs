//! `cargo xtask cmtime`: cmid's cmtime against rdma-core's, in the VM: they serve each other, and their rates are
//! compared.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;
use cmid_softroce::{Kernel, Options};

use crate::backend::Backend;
use crate::context::{Context, output};
use crate::{bench, guest, host, scripts};

const PROGRAM: &str = "cmtime";
/// The VM's device without a network.
const ADDRESS: &str = "10.99.0.1";
/// Enough that several are in progress at a time, few enough for the daily programme.
const EVERY_DAY: u64 = 20;
/// The numbers of connections in flight that are measured with cmid's alone.
const IN_FLIGHT: &[&str] = &["1", "4", "16", "64", "256"];
/// The runs on the simulator: the files of their output, and their arguments.
const SIMULATED: [(&str, &[&str]); 2] = [("100-at-once.json", &["--in-flight", "100"]), ("by-phase.json", &[])];
/// In MiB. The kernel has 2,000 QPs.
const MEMORY: u32 = 1024;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The number of connections in each run
    #[arg(long, default_value_t = 1000, value_name = "N")]
    connections: u64,
    /// The number of pairs of runs
    #[arg(long, default_value_t = 7, value_name = "K")]
    pairs: u64,
    /// The backend of cmid-verbs. The results of the kernel backend are added to the recorded ones of librdmacm
    #[arg(long, value_enum, default_value = "librdmacm")]
    backend: Backend,
    /// The number of connections on the simulator
    #[arg(long, default_value_t = 1_000_000, value_name = "N")]
    simulated: u64,
    /// The kernel: 6.1 or 6.12
    #[arg(long, default_value_t)]
    pub(crate) kernel: Kernel,
    /// The time limit in seconds in the VM
    #[arg(long, default_value_t = 1800, value_name = "S")]
    timeout: u64,
}

/// The command of the daily step: both roles, on both drivers.
pub(crate) fn command(context: &Context, _: Kernel, backend: Backend) -> Vec<OsString> {
    let mut command = script(context.release(PROGRAM), backend, EVERY_DAY);
    command.extend(["interop", "epoll", "mio"].map(OsString::from));
    command
}

fn script(program: PathBuf, backend: Backend, connections: u64) -> Vec<OsString> {
    let mut command = scripts::script(scripts::CMTIME, backend, &[]);
    command.extend(["sh".into(), program.into(), backend.name().into()]);
    command.extend([connections.to_string().into(), ADDRESS.into()]);
    command
}

/// Measures, and records the results for docs/generated/performance.md.
pub(crate) fn run(context: &mut Context, arguments: &Arguments) -> Result<()> {
    host::prepare(context)?;
    context.cargo(&["build", "--profile", "lto", "-p", PROGRAM, "--features", "verbs"], &[])?;
    let folder = context.target().join("cmtime");
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let on_kernel = arguments.backend == Backend::Kernel;
    if !on_kernel {
        for (name, more) in SIMULATED {
            let mut command = Command::new(context.optimized(PROGRAM));
            command.args(["--driver", "virtual", "--json", "-c", &arguments.simulated.to_string()]).args(more);
            fs::write(folder.join(name), output(&mut command)?).context(name)?;
        }
    }
    in_guest(context, arguments, &folder)?;
    let mut record = vec!["cmtime", folder.to_str().context("the folder's path is not text")?];
    record.push(arguments.kernel.series());
    record.extend(on_kernel.then_some("--kernel-backend"));
    bench::program(context, &record)
}

/// Runs both programs in the VM. Their output goes to this folder.
fn in_guest(context: &Context, arguments: &Arguments, folder: &Path) -> Result<()> {
    let mut command = script(context.optimized(PROGRAM), arguments.backend, arguments.connections);
    command.extend(["compare".into(), arguments.pairs.to_string().into(), folder.into()]);
    if arguments.backend == Backend::Librdmacm {
        command.extend(IN_FLIGHT.iter().map(OsString::from));
    }
    let options = Options {
        kernel: arguments.kernel,
        timeout: Duration::from_secs(arguments.timeout),
        memory_mib: MEMORY,
        writable: vec![folder.to_owned()],
        ..Options::default()
    };
    guest::run_with(&options, &command)
}
