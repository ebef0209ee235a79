//! `cargo xtask cmtime`: cmid's cmtime against rdma-core's, in the VM: they serve each other, and their rates are
//! compared.

use std::ffi::OsString;
use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;
use cmid_softroce::{Kernel, Options};
use serde_json::Value;

use crate::backend::Backend;
use crate::cmtime_results::{self, Simulated};
use crate::context::{Context, output};
use crate::{guest, host};

/// The VM's device without a network.
const ADDRESS: &str = "10.99.0.1";
/// Enough that several are in progress at a time, few enough for the daily programme.
const EVERY_DAY: u64 = 20;
/// The numbers of connections in flight that are measured with cmid's alone.
const IN_FLIGHT: &[&str] = &["1", "4", "16", "64", "256"];
/// The recorded results, from which the report is rendered.
const RESULTS: &str = "benches/results/cmtime.json";
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
    #[arg(long, value_enum, default_value_t)]
    backend: Backend,
    /// The number of connections on the simulator
    #[arg(long, default_value_t = 1_000_000, value_name = "N")]
    simulated: u64,
    /// The kernel: 6.1 or 6.12
    #[arg(long, default_value_t)]
    kernel: Kernel,
    /// The time limit in seconds in the VM
    #[arg(long, default_value_t = 1800, value_name = "S")]
    timeout: u64,
}

impl Arguments {
    pub(crate) const fn kernel(&self) -> Kernel {
        self.kernel
    }
}

/// The command of the daily step: both roles, on both drivers.
pub(crate) fn command(context: &Context, _: Kernel) -> Vec<OsString> {
    let mut command = script(context, Backend::Librdmacm, EVERY_DAY);
    command.extend(["interop", "epoll", "mio"].map(OsString::from));
    command
}

fn script(context: &Context, backend: Backend, connections: u64) -> Vec<OsString> {
    let script = include_str!("cmtime.sh");
    let start = ["sh".into(), "-c".into(), script.into(), "sh".into(), context.release("cmtime").into()];
    let mut command = Vec::from(start);
    command.extend([backend.name().into(), connections.to_string().into(), ADDRESS.into()]);
    command
}

/// Measures, and writes the results to the file that the report is rendered from.
pub(crate) fn run(context: &mut Context, arguments: &Arguments) -> Result<()> {
    host::prepare(context)?;
    context.cargo(&["build", "--release", "-p", "cmtime", "--features", "verbs"], &[])?;
    let simulated = match arguments.backend {
        Backend::Librdmacm => Some([simulated(context, arguments, Some("100"))?, simulated(context, arguments, None)?]),
        Backend::Kernel => None,
    };
    let came_out = in_guest(context, arguments)?;
    let path = context.root.join(RESULTS);
    let mut recorded = fs::read_to_string(&path).map(|text| serde_json::from_str(&text)).unwrap_or(Ok(Value::Null))?;
    let section = match simulated {
        Some(simulated) => {
            let kernel = arguments.kernel.series();
            let mut section =
                cmtime_results::section(&came_out, arguments.connections, kernel, arguments.simulated, &simulated)?;
            cmtime_results::keep_kernel_rows(&mut section, &recorded)?;
            section
        }
        None => {
            cmtime_results::add_kernel_rows(&mut recorded, &came_out, arguments.connections)?;
            recorded
        }
    };
    fs::create_dir_all(path.parent().context("no folder")?)?;
    fs::write(&path, format!("{section:#}\n")).with_context(|| path.display().to_string())?;
    println!("{}", cmtime_results::summary(&section)?);
    println!("written to {RESULTS}");
    Ok(())
}

/// Runs both programs in the VM, and returns what they print.
fn in_guest(context: &Context, arguments: &Arguments) -> Result<String> {
    let directory = context.target().join("cmtime");
    fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
    let mut command = script(context, arguments.backend, arguments.connections);
    command.extend(["compare".into(), arguments.pairs.to_string().into(), directory.clone().into()]);
    if arguments.backend == Backend::Librdmacm {
        command.extend(IN_FLIGHT.iter().map(OsString::from));
    }
    let options = Options {
        kernel: arguments.kernel,
        timeout: Duration::from_secs(arguments.timeout),
        memory_mib: MEMORY,
        writable: vec![directory.clone()],
        ..Options::default()
    };
    guest::run_with(&options, &command)?;

    fs::read_to_string(directory.join("cmtime.txt")).context("what came out in the VM")
}

/// Makes connections on the simulator in virtual time, and measures real time.
fn simulated(context: &Context, arguments: &Arguments, in_flight: Option<&str>) -> Result<Simulated> {
    let mut command = std::process::Command::new(context.release("cmtime"));
    command.args(["--driver", "virtual", "--json", "-c", &arguments.simulated.to_string()]);
    if let Some(most) = in_flight {
        command.args(["--in-flight", most]);
    }
    serde_json::from_str(&output(&mut command)?).context("what cmtime says")
}
