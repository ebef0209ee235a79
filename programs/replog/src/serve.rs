//! `replog serve`: a replica as a process.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Result, ensure};
use mio::Registry;
use mio::net::TcpListener;
use replog::links::Polled;
use replog::replica::{Change, Options, Replica};
use replog::tcp::Tcp;
use rustix::process::{Signal, set_parent_process_death_signal};

use crate::args::{Serve, Transport};

pub(crate) fn run(serve: &Serve) -> Result<()> {
    if serve.with_parent {
        set_parent_process_death_signal(Some(Signal::KILL))?;
    }
    let members = serve.replica.len();
    ensure!(serve.id < members, "--id {} needs an address: give --replica {} times", serve.id, serve.id + 1);
    ensure!(members <= 64, "{members} replicas are too many: give at most 64");
    match serve.transport {
        Transport::Tcp => start(serve, |registry| Tcp::new(registry, serve.id, &serve.replica)),
        Transport::Rdma => on_device(serve),
    }
}

fn start<L: Polled>(serve: &Serve, connect: impl FnOnce(&Registry) -> Result<L>) -> Result<()> {
    let addr = serve.client;
    let clients = TcpListener::bind(addr).map_err(|error| replog::explain_bind(&error, addr))?;
    let election_timeout = Duration::from_millis(serve.election_timeout);
    let options = Options { id: serve.id, members: serve.replica.len(), election_timeout, folder: &serve.folder };
    let mut replica = Replica::open(options, clients, connect)?;
    // A replica goes on without its output: its reader may have ended.
    let _ = say!("replica {} serves clients at {addr}", serve.id);
    replica.run(&AtomicBool::new(false), |change| {
        let _ = match change {
            Change::Leads(term) => say!("leads term {term}"),
            Change::Follows(leader, term) => say!("follows {leader} in term {term}"),
        };
    })
}

#[cfg(feature = "verbs")]
fn on_device(serve: &Serve) -> Result<()> {
    let device = cmid_mio::verbs::Verbs::open()
        .map_err(|error| anyhow::anyhow!("no RDMA device: {error}; load rdma_ucm, and see `rdma link`"))?;
    start(serve, |registry| replog::rdma::Rdma::new(device, registry, serve.id, &serve.replica))
}

#[cfg(not(feature = "verbs"))]
fn on_device(_serve: &Serve) -> Result<()> {
    anyhow::bail!(
        "built without the feature `verbs`: build with `--features verbs`, or use `--transport tcp`, or see `replog demo`"
    )
}
