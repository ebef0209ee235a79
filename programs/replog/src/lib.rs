//! A replicated log for a storage engine: see README.md.
#![forbid(unsafe_code)]

pub mod client;
pub mod clients;
pub mod cluster;
pub mod links;
pub mod protocol;
pub mod rdma;
pub mod replica;
pub mod store;
pub mod tcp;
pub mod wire;
pub mod world;

use std::io::ErrorKind;
use std::net::SocketAddr;

/// Returns an error of one line: the reason why a TCP address cannot be used, and the remedy.
#[must_use]
pub fn explain_bind(error: &std::io::Error, addr: SocketAddr) -> anyhow::Error {
    let kind = error.kind();
    if kind == ErrorKind::AddrInUse {
        return anyhow::anyhow!("{addr} is in use: stop the other program, or select another port");
    }
    if kind == ErrorKind::AddrNotAvailable {
        return anyhow::anyhow!("{addr} is not an address of this machine: select one of `ip address`");
    }
    anyhow::anyhow!("cannot listen at {addr}: {error}")
}
