//! The command line.

use std::path::PathBuf;

use clap::Parser;
use cmid_conformance::Speed;
use cmid_harness::{DeviceName, DriverName};

/// Runs the scenarios and says what did not come out as expected.
#[derive(Debug, Parser)]
#[command(version)]
pub(crate) struct Args {
    /// Which device.
    #[arg(long, value_enum, default_value_t = DeviceName::Sim)]
    pub(crate) device: DeviceName,
    /// Which driver; all of them if none is named.
    #[arg(long, value_enum)]
    pub(crate) driver: Option<DriverName>,
    /// The fast scenarios, one at a time, or the slow ones, all at once: each of these waits for minutes.
    #[arg(long, value_enum, default_value_t = Speed::Fast)]
    pub(crate) speed: Speed,
    /// Write the outcomes to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Name the scenarios and their rows, and run none.
    #[arg(long)]
    pub(crate) list: bool,
    /// Run this one scenario and nothing else, in this process: for those after which a process has to end.
    #[arg(long, hide = true, value_name = "SCENARIO")]
    pub(crate) alone: Option<String>,
    /// A library for LD_PRELOAD whose `ibv_rereg_mr` asks the kernel's driver, for the scenarios that re-register memory on a
    /// real kernel: each runs in a process of its own. Only where the kernel's driver can (Linux 6.12)
    #[arg(long, value_name = "FILE")]
    pub(crate) rereg_shim: Option<PathBuf>,
    /// That library is loaded into this process.
    #[arg(long, hide = true)]
    pub(crate) shimmed: bool,
    /// Not the scenarios whose names contain this; can be given several times.
    #[arg(long, value_name = "PART")]
    pub(crate) skip: Vec<String>,
    /// Only scenarios whose names contain this.
    pub(crate) filter: Option<String>,
}

impl Args {
    /// Where this runs, for the report.
    pub(crate) fn environment(&self) -> String {
        match self.device {
            DeviceName::Sim => "the simulator, in real time".into(),
            DeviceName::Verbs => {
                let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
                format!("Linux {}, soft-RoCE", release.trim())
            }
        }
    }
}
