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

/// A client or a server.
#[derive(Debug)]
pub(crate) struct Side {
    /// The server's.
    pub(crate) address: SocketAddr,
    pub(crate) plan: Plan,
    pub(crate) log: Log,
    /// A server sends to it once it listens. The receiver may be gone, which is not an error.
    pub(crate) listens: Sender<()>,
}

/// Runs one side on a driver, with a trace if `trace` is set.
pub(crate) fn ping<D: DataPath>(driver: DriverName, trace: Option<Arc<Files>>, device: D, side: Side) -> Result<()> {
    let trace = trace.map(|files| Trace::new(files)).transpose()?;
    match driver {
        DriverName::Mio => on_mio::ping(device, trace, side),
        DriverName::Epoll => on_epoll::ping(device, trace, side),
        DriverName::Blocking => on_blocking::ping(device, trace, side),
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
