//! Replicas on machines that an operator switches off and on. The operator is a program that reads commands from the
//! standard output of this program, and answers each with a line on its standard input.
//!
//! | command | action of the operator |
//! | --- | --- |
//! | `operator: power-off ID` | cuts the power of the machine of replica ID |
//! | `operator: power-on ID` | switches it on: the replica starts with its stored log |
//! | `operator: link-off ID` | cuts the link of the machine to the other replicas |
//! | `operator: link-on ID` | connects it again |

use std::io::BufRead as _;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, ensure};
use replog::protocol::ReplicaId;

use crate::torture::Site;

/// The addresses of the replicas for clients.
#[derive(Debug)]
pub(crate) struct Operated(pub(crate) Vec<SocketAddr>);

impl Site for Operated {
    fn clients(&self) -> Vec<SocketAddr> {
        self.0.clone()
    }

    /// Cuts the power or the link of a replica.
    fn disturb(&mut self, victim: ReplicaId, random: &mut fastrand::Rng, span: Duration) -> Result<()> {
        let [off, on] = if random.bool() { ["power-off", "power-on"] } else { ["link-off", "link-on"] };
        order(off, victim)?;
        std::thread::sleep(span);
        order(on, victim)
    }
}

fn order(what: &str, replica: ReplicaId) -> Result<()> {
    say!("operator: {what} {replica}")?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    ensure!(answer.trim_end() == "done", "the operator has not done `{what} {replica}`: {answer:?}");
    Ok(())
}
