//! rdma-core's rping on cmid: `rping -s -a ADDRESS`, `rping -c -a ADDRESS -C 100 -S 4096 -V`.
//!
//! The client sends the address of its source buffer; the server reads the buffer and sends a reply. Then the client
//! sends the address of its sink buffer; the server writes the data to it and sends a reply. It interoperates with
//! rdma-core's rping.
#![forbid(unsafe_code)]

#[macro_use]
mod say;
mod agent;
mod args;
mod demo;
mod log;
mod message;
mod on_blocking;
mod on_driver;
mod on_epoll;
mod on_mio;
mod session;

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow};
use clap::Parser;
use cmid_trace::Files;

use crate::args::{Args, DeviceName, Scene};
#[cfg(feature = "verbs")]
use crate::log::Log;
#[cfg(feature = "verbs")]
use crate::on_driver::{Side, ping, plan};

fn main() -> ExitCode {
    let args = Args::parse();
    let trace = args.trace.as_deref().map(|path| Arc::new(Files::at(path)));
    let result = match (&args.scene, args.device) {
        (Some(Scene::Demo), _) => demo::run(),
        (None, DeviceName::Sim) => demo::ping_on_sim(&args, trace.clone()),
        (None, DeviceName::Verbs) => on_verbs(&args, trace.clone()),
    };
    // A lost trace is an error even if the pings succeed, because the user requested it.
    let traced = trace.map_or(Ok(()), |files| files.check()).context("the trace is not complete");
    let said = say::LOST.get().map_or(Ok(()), |error| Err(anyhow!("standard output: {error}")));
    let errors: Vec<_> = [result, traced, said].into_iter().filter_map(Result::err).collect();
    errors.iter().for_each(|error| drop(writeln!(io::stderr(), "rping: {error:#}")));
    if errors.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(feature = "verbs")]
fn on_verbs(args: &Args, trace: Option<Arc<Files>>) -> Result<()> {
    let device = cmid_verbs::Verbs::open_with(args.backend).context("opening the RDMA device")?;
    let (listens, _) = std::sync::mpsc::channel();
    let side = Side { address: (args.address, args.port).into(), plan: plan(args), log: Log::SILENT, listens };
    ping(args.driver, trace, device, side)
}

#[cfg(not(feature = "verbs"))]
fn on_verbs(_: &Args, _: Option<Arc<Files>>) -> Result<()> {
    anyhow::bail!("this rping was built without the feature `verbs`: there is only --device sim")
}
