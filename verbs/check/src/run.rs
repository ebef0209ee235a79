//! Runs the program as the command line requests.

use std::fs;
use std::io::{self, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

use anyhow::{Context as _, Result, bail};
use clap::Parser as _;
use cmid_proto::datapath::DataPath;
use cmid_sim::{Clock, Config, Fabric};

use crate::args::{Args, DeviceName};
use crate::client::{Client, Open};
use crate::measure::{Amount, measure};
use crate::outcome::Outcome;
use crate::report::{DeviceReport, Report};
use crate::side::{EMPTY_WRITES, SPAN};
use crate::{cm, data, host, server};

/// The exit status if a behaviour failed.
const FAILED: u8 = 1;
/// The exit status if nothing could be checked.
const UNUSABLE: u8 = 2;

/// Runs the program with the arguments of the process. The status is 0 if no behaviour failed, 1 if one did, 2 if
/// nothing could be checked; the last prints one line, and its report has the versions and the error.
#[must_use]
pub fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => FAILED.into(),
        Err(error) => {
            let _ = writeln!(io::stderr(), "cmid-check: {error:#}");
            UNUSABLE.into()
        }
    }
}

fn run(args: &Args) -> Result<bool> {
    let checked = match args.device {
        DeviceName::Sim => on_sim(args),
        DeviceName::Verbs => on_verbs(args),
    };
    let error = checked.as_ref().err().map(|error| format!("{error:#}"));
    let (unusable, devices) = checked.map_or_else(|error| (Some(error), Vec::new()), |devices| (None, devices));
    let (cmid, host) = (env!("CARGO_PKG_VERSION").to_owned(), host::describe());
    let mut report = Report { cmid, host, devices, hints: Vec::new(), error };
    if lacks_memory(&report) {
        report.hints.extend(host::memlock_hint(&report.host));
    }
    match EMPTY_WRITES.load(Ordering::Relaxed) {
        0 => {}
        count => report.hints.push(format!(
            "{count} requests had no reply until an empty RDMA write was posted: soft-iWARP may leave the first message of a \
             connection unread until more bytes come (docs/hazards.md, P49)."
        )),
    }
    if unusable.is_none() {
        write!(io::stdout(), "{report}").context("writing the report")?;
    }
    if let Some(path) = &args.json {
        let text = serde_json::to_string_pretty(&report)? + "\n";
        fs::write(path, text).with_context(|| path.display().to_string())?;
    }
    unusable.map_or_else(|| Ok(!report.has_failures()), Err)
}

/// Whether a registration failed for lack of memory.
fn lacks_memory(report: &Report) -> bool {
    let behaviours = report.devices.iter().flat_map(|device| &device.behaviours);
    let mut failures = behaviours.filter(|behaviour| behaviour.outcome == Outcome::Fail);
    failures.any(|behaviour| behaviour.reason.as_ref().is_some_and(|reason| reason.contains("ENOMEM")))
}

fn amount(args: &Args) -> Amount {
    Amount { pings: args.pings as usize, connections: args.connections as usize }
}

/// Runs all behaviours and measurements.
fn check<D: DataPath>(client: &Client<'_, D>, amount: Amount) -> DeviceReport {
    let mut behaviours = cm::check(client);
    behaviours.extend(data::check(client));
    let source = client.source.map_or_else(|| "any address".to_owned(), |source| source.ip().to_string());
    let addresses = [source, client.server.ip().to_string()];
    DeviceReport { addresses, behaviours, figures: measure(client, amount), ..DeviceReport::default() }
}

/// As [`check`], with a server in this process on an address of the same device.
fn check_here<D: DataPath>(
    server_open: &Open<'_, D>,
    open: &Open<'_, D>,
    source: Option<IpAddr>,
    address: IpAddr,
    args: &Args,
) -> Result<DeviceReport> {
    let stop = AtomicBool::new(false);
    let (sender, listens) = mpsc::channel();
    thread::scope(|scope| {
        let serving = thread::Builder::new().spawn_scoped(scope, || {
            let ready = |addr| {
                // The client has stopped waiting.
                let _ = sender.send(addr);
            };
            // The client reports what it sees.
            server::serve(server_open, SocketAddr::new(address, 0), &stop, ready, &|_| {})
        });
        let serving = serving.context("the thread of the server")?;
        let report = listens.recv_timeout(SPAN).map(|server| {
            let source = source.map(|source| SocketAddr::new(source, 0));
            check(&Client { open, source, server, verbose: args.verbose }, amount(args))
        });
        stop.store(true, Ordering::Relaxed);
        match (serving.join(), report) {
            (Ok(Ok(())), Ok(report)) => Ok(report),
            (Ok(Err(error)), _) => Err(error.context(format!("the server on {address}"))),
            (Ok(Ok(())), Err(_)) => bail!("the server on {address} did not listen"),
            (Err(_), _) => bail!("the server on {address} panicked"),
        }
    })
}

fn on_sim(args: &Args) -> Result<Vec<DeviceReport>> {
    if args.serve || args.peer.is_some() || args.address.is_some() {
        bail!("--serve, --peer and --address are for --device verbs");
    }
    let fabric = Fabric::new(Config { clock: Clock::Real, ..Config::default() });
    let [client, server]: [IpAddr; 2] = ["10.0.0.1".parse()?, "10.0.0.2".parse()?];
    let host = fabric.host(&[client, server]);
    let open = || Ok(host.device());
    let report = check_here(&open, &open, Some(client), server, args)?;
    Ok(vec![DeviceReport { name: "sim".to_owned(), ..report }])
}

#[cfg(feature = "verbs")]
fn on_verbs(args: &Args) -> Result<Vec<DeviceReport>> {
    use crate::devices::{self, Found};

    let open = || devices::open(args.backend);
    if args.serve {
        let address = args.address.context("--serve needs --address")?;
        let ready = |addr| drop(writeln!(io::stderr(), "cmid-check: serving on {addr}"));
        let report = |error: anyhow::Error| drop(writeln!(io::stderr(), "cmid-check: a connection: {error:#}"));
        server::serve(&open, SocketAddr::new(address, args.port), &AtomicBool::new(false), ready, &report)?;
        return Ok(Vec::new());
    }
    let found = match args.address {
        Some(address) => {
            let name = devices::device_of(args.backend, address)?;
            vec![Found { name: name.with_context(|| format!("{address} is not on an RDMA device"))?, address }]
        }
        None => devices::find(args.backend)?,
    };
    if found.is_empty() {
        bail!("no RDMA device of this machine has an IP address");
    }
    let mut reports = Vec::new();
    for device in &found {
        let report = match args.peer {
            Some(peer) => {
                let source = Some(SocketAddr::new(device.address, 0));
                let server = SocketAddr::new(peer, args.port);
                check(&Client { open: &open, source, server, verbose: args.verbose }, amount(args))
            }
            None => check_here(&open, &open, Some(device.address), device.address, args)?,
        };
        let here = args.peer.is_none() && !args.no_tools;
        let Amount { pings, connections } = amount(args);
        let tools = here.then(|| crate::tools::measure(&device.name, device.address, pings, connections));
        reports.push(DeviceReport {
            name: device.name.clone(),
            two_hosts: args.peer.is_some(),
            properties: devices::properties(args.backend, device)?,
            tools: tools.unwrap_or_default(),
            ..report
        });
    }
    Ok(reports)
}

#[cfg(not(feature = "verbs"))]
fn on_verbs(_: &Args) -> Result<Vec<DeviceReport>> {
    bail!("this cmid-check was built without the feature verbs: there is only --device sim")
}

#[cfg(test)]
mod tests {
    use super::*;
    use cmid_sim::Rereg;

    fn outcomes(rereg: Rereg) -> Vec<(String, Outcome)> {
        let fabric = Fabric::new(Config { clock: Clock::Real, rereg, ..Config::default() });
        let address = IpAddr::from([10, 0, 0, 1]);
        let host = fabric.host(&[address]);
        let open = || Ok(host.device());
        let args = Args::parse_from(["cmid-check", "--device", "sim", "--pings", "1", "--connections", "1"]);
        let report = check_here(&open, &open, Some(address), address, &args).expect("a report");
        report.behaviours.into_iter().map(|behaviour| (behaviour.name, behaviour.outcome)).collect()
    }

    #[test]
    fn a_provider_that_re_registers_passes() {
        for (name, outcome) in outcomes(Rereg::All) {
            assert_eq!(outcome, Outcome::Pass, "{name}");
        }
    }
}
