//! The command line.

use std::path::PathBuf;

use clap::Parser;
use cmid_conformance::Speed;
use cmid_harness::{DeviceName, DriverName};

/// Runs the scenarios and prints what differs from the expected results.
#[derive(Debug, Parser)]
#[command(version)]
pub(crate) struct Args {
    /// The device.
    #[arg(long, value_enum, default_value_t = DeviceName::Sim)]
    pub(crate) device: DeviceName,
    /// The driver; all drivers by default.
    #[arg(long, value_enum)]
    pub(crate) driver: Option<DriverName>,
    /// The fast scenarios, one at a time, or the slow ones, all at once: each of these takes minutes.
    #[arg(long, value_enum, default_value_t = Speed::Fast)]
    pub(crate) speed: Speed,
    /// Write the outcomes to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Compare the outcomes with those of this speed and driver in this file; without the file there are none.
    #[arg(long, value_name = "FILE")]
    pub(crate) recorded: Option<PathBuf>,
    /// Run none: add the reports in the folder RUNS to the recorded outcomes in the folder INTO.
    #[arg(long, num_args = 2, value_names = ["RUNS", "INTO"])]
    pub(crate) record: Vec<PathBuf>,
    /// List the scenarios and their behaviours, and run none.
    #[arg(long)]
    pub(crate) list: bool,
    /// Run only this scenario, in this process: for scenarios after which the process has to end.
    #[arg(long, hide = true, value_name = "SCENARIO")]
    pub(crate) alone: Option<String>,
    /// A library for LD_PRELOAD with an `ibv_rereg_mr` that calls the kernel's driver. It is for the scenarios that
    /// re-register memory on a real kernel: each runs in a process of its own. Only where the kernel's driver can
    /// re-register (Linux 6.12)
    #[arg(long, value_name = "FILE")]
    pub(crate) rereg_shim: Option<PathBuf>,
    /// Set in the process into which that library is loaded.
    #[arg(long, hide = true)]
    pub(crate) shimmed: bool,
    /// Skip scenarios with this in their name; can be given several times.
    #[arg(long, value_name = "PART")]
    pub(crate) skip: Vec<String>,
    /// Run only scenarios with this in their name.
    pub(crate) filter: Option<String>,
}

impl Args {
    /// The environment's name in the report.
    pub(crate) fn environment(&self) -> String {
        match self.device {
            DeviceName::Sim => "the simulator, in real time".into(),
            DeviceName::Verbs => {
                let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
                let backend = std::env::var("CMID_BACKEND").unwrap_or_else(|_| "librdmacm".into());
                let transport = std::env::var("CMID_TRANSPORT").unwrap_or_default();
                let name = if transport == "siw" { "soft-iWARP" } else { "soft-RoCE" };
                format!("Linux {}, {name}, {backend}", release.trim())
            }
        }
    }
}
