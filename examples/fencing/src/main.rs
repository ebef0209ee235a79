//! Fencing, as in consensus systems over RDMA: a replica revokes the write access of a deposed leader.
//!
//! A replica has a region of memory, a *lane* of its log, for each candidate for leadership, which replicates by RDMA
//! write, without the replica's processor. A deposed leader may continue to write until it receives a message. The replica
//! therefore re-registers the lane without remote write: the device refuses the writes of that candidate only. If that fails,
//! the candidate is *not fenced*. Replica and candidates are this program; on a real device the writes pass through it.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "its output is what it is for")]

mod candidate;
mod replica;

use std::net::SocketAddr;
use std::thread;

use anyhow::{Result, anyhow, ensure};
use clap::Parser;
use cmid_blocking::Listener;
use cmid_proto::Transport;
use cmid_proto::datapath::{DataPath, MemoryRegion};
use cmid_proto::memory::Way;

use crate::candidate::Candidate;
use crate::replica::Member;

/// A replica fences a deposed leader by re-registering its memory without remote write.
#[derive(Clone, Debug, Parser)]
struct Args {
    /// The simulated fabric, or the RDMA devices of this machine.
    #[arg(long, default_value = "sim", value_parser = ["sim", "verbs"])]
    device: String,
    /// The backend of connection management with `--device verbs`: the kernel's own interface (kernel), or librdmacm.
    #[cfg(feature = "verbs")]
    #[arg(long, default_value_t)]
    backend: cmid_verbs::Backend,
    /// How the replica must re-register: by ibv_rereg_mr, or by a new registration and the deregistration of the old one,
    /// for providers without it. Otherwise the program fails. On the simulator, it selects what the device can.
    #[arg(long, default_value = "in-place", value_parser = ["in-place", "anew"])]
    way: String,
    /// The address of the replica; the default is that of the VM's soft-RoCE device.
    #[arg(short, long, default_value = "10.99.0.2:7475")]
    address: SocketAddr,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let address = args.address;
    let way = if args.way == "anew" { Way::Anew } else { Way::InPlace };
    if args.device == "sim" {
        let host = host(address, way, Transport::InfiniBand);
        return run(|| Ok(host.device()), address, way);
    }
    #[cfg(feature = "verbs")]
    return run(|| Ok(cmid_verbs::Verbs::open_with(args.backend)?), address, way);
    #[cfg(not(feature = "verbs"))]
    anyhow::bail!("built without the feature `verbs`: there is only --device sim");
}

/// A simulated host with one device.
fn host(address: SocketAddr, way: Way, transport: Transport) -> cmid_sim::Host {
    let rereg = if way == Way::InPlace { cmid_sim::Rereg::PdAccess } else { cmid_sim::Rereg::None };
    let config = cmid_sim::Config { clock: cmid_sim::Clock::Real, rereg, ..Default::default() };
    cmid_sim::Fabric::new(config).host_with(&[address.ip()], transport)
}

/// Runs the steps. The replica and each candidate have their own device.
fn run<D: DataPath>(device: impl Fn() -> Result<D>, address: SocketAddr, way: Way) -> Result<()> {
    let mut listener = Listener::bind(device()?, address)?;
    // Here a candidate is told the address of its lane by the program; else it is sent, as private data of the accept for example.
    let (mut a, mut member_a) = join('A', device()?, &mut listener, address)?;
    let (mut b, mut member_b) = join('B', device()?, &mut listener, address)?;
    let (mut free_of_a, mut free_of_b) = (member_a.lane.remote(0), member_b.lane.remote(0));

    // A is the leader; B may still write to its own lane.
    ensure!(a.replicate("x = 1; ", &mut free_of_a)?, "the leader A cannot write");
    ensure!(b.replicate("y = 1; ", &mut free_of_b)?, "B cannot write to its lane");
    ensure!(a.replicate("x = 2; ", &mut free_of_a)?, "the leader A cannot write");

    member_a.depose(way)?;

    // A has received no message that it is deposed.
    ensure!(!a.replicate("x = 3; ", &mut free_of_a)?, "A was deposed, and has written");
    ensure!(b.replicate("y = 2; ", &mut free_of_b)?, "the leader B cannot write");
    member_a.check(&["x = 1; ", "x = 2; "])?;
    member_b.check(&["y = 1; ", "y = 2; "])?;

    together(|| a.leave(), || member_a.release())?;
    together(|| b.leave(), || member_b.release())?;
    println!("A is fenced, B leads");
    Ok(())
}

/// Connects a candidate.
fn join<D: DataPath>(
    name: char,
    device: D,
    listener: &mut Listener<D>,
    address: SocketAddr,
) -> Result<(Candidate<D>, Member<D>)> {
    together(move || Candidate::connect(name, device, address), || Member::admit(listener, name))
}

/// Runs both sides of a step: each waits for the other.
fn together<A: Send, B>(
    candidate: impl FnOnce() -> Result<A> + Send,
    replica: impl FnOnce() -> Result<B>,
) -> Result<(A, B)> {
    thread::scope(|scope| {
        let thread = scope.spawn(candidate);
        let replica = replica()?;
        Ok((thread.join().map_err(|_| anyhow!("a candidate panicked"))??, replica))
    })
}

#[cfg(test)]
mod tests;
