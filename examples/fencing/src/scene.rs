//! The steps of the program, in order.

use std::net::SocketAddr;

use anyhow::{Result, ensure};
use cmid_proto::datapath::{DataPath, WcStatus};
use cmid_proto::memory::Way;

use crate::candidate::{Candidate, joined};
use crate::replica::Replica;

/// Runs the steps. The replica and each candidate have their own device.
///
/// # Errors
/// The first unexpected result.
pub(crate) fn run<D: DataPath + 'static>(device: impl Fn() -> Result<D>, address: SocketAddr, way: Way) -> Result<()> {
    let mut replica = Replica::listen(device()?, address)?;
    let a = Candidate::start('A', device()?, address)?;
    replica.admit()?;
    let b = Candidate::start('B', device()?, address)?;
    replica.admit()?;

    // A is the leader; B may still write to its own lane.
    ensure!(a.replicate("x = 1; ")? == WcStatus::SUCCESS, "the leader A cannot write");
    ensure!(b.replicate("y = 1; ")? == WcStatus::SUCCESS, "B cannot write to its lane");
    ensure!(a.replicate("x = 2; ")? == WcStatus::SUCCESS, "the leader A cannot write");

    replica.depose('A', way)?;

    // A has received no message that it is deposed.
    let refused = a.replicate("x = 3; ")?;
    ensure!(refused == WcStatus::REM_ACCESS_ERR, "A was deposed, and its write ended with {refused}");
    ensure!(b.replicate("y = 2; ")? == WcStatus::SUCCESS, "the leader B cannot write");
    replica.check('A', &["x = 1; ", "x = 2; "])?;
    replica.check('B', &["y = 1; ", "y = 2; "])?;

    for (name, candidate) in [('A', a), ('B', b)] {
        let thread = candidate.leave();
        replica.release(name)?;
        joined(thread)?;
    }
    println!("A is fenced, B leads");
    Ok(())
}
