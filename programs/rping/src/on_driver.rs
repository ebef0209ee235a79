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
    let trace = trace.map(|files| Trace::new(files)).transpose()?;
    match driver {
        DriverName::Mio => on_mio::ping(device, trace, address, plan, log, listens),
        DriverName::Epoll => on_epoll::ping(device, trace, address, plan, log, listens),
        DriverName::Blocking => on_blocking::ping(device, trace, address, plan, log, listens),
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
