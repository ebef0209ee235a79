//! One side of a ping on the driver that the arguments name.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use anyhow::Result;
use cmid_proto::datapath::DataPath;
use cmid_trace::{Files, Trace};

use crate::args::{Args, DriverName};
use crate::log::Log;
use crate::session::Plan;
use crate::{on_blocking, on_epoll, on_mio};

/// Runs one side on a driver, with a trace if `trace` is set. A server sends to `listens` once it listens.
pub(crate) fn ping<D: DataPath>(
    driver: DriverName,
    trace: Option<Arc<Files>>,
    device: D,
    address: SocketAddr,
    plan: Plan,
    log: Log,
    listens: &Sender<()>,
) -> Result<()> {
    match trace {
        Some(files) => ping_on(driver, Trace::new(device, files)?, address, plan, log, listens),
        None => ping_on(driver, device, address, plan, log, listens),
    }
}

fn ping_on<D: DataPath>(
    driver: DriverName,
    device: D,
    address: SocketAddr,
    plan: Plan,
    log: Log,
    listens: &Sender<()>,
) -> Result<()> {
    match driver {
        DriverName::Mio => on_mio::ping(device, address, plan, log, listens),
        DriverName::Epoll => on_epoll::ping(device, address, plan, log, listens),
        DriverName::Blocking => on_blocking::ping(device, address, plan, log, listens),
    }
}

pub(crate) fn plan(args: &Args) -> Plan {
    Plan {
        server: args.server,
        count: args.count,
        size: args.size as usize,
        verbose: args.verbose,
        validate: args.validate,
    }
}
