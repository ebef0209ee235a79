//! cmid with an interface like `std::net`.
//!
//! ```text
//!  thread --connect, accept, disconnect--> Connection, Listener
//!    |                                        Blocking: Drive ( Core: tables, no I/O ) --call--> Device:
//!    |  <------ the end of the request ------    waits in poll(2)                      <-event--   Verbs,
//!    +--post, poll: the data path -------------------------------------------------------------->  or a simulated one
//! ```
//!
//! [`Listener::bind`], [`Listener::accept`], [`Connection::connect`]: each call waits in poll(2), with a deadline, and
//! makes no other blocking call. A [`Canceller`] ends the wait from another thread. Each connection has its own driver
//! and device; one thread at a time uses it.
//!
//! ```
//! use cmid_blocking::proto::datapath::QpParts;
//! use cmid_blocking::{Connection, Listener, Options};
//! use std::{thread, time::Duration};
//! # let fabric = cmid_sim::Fabric::new(cmid_sim::Config { clock: cmid_sim::Clock::Real, ..Default::default() });
//! # let host = fabric.host(&["10.0.0.1".parse()?, "10.0.0.2".parse()?]);
//! # let device = || host.device();
//!
//! let mut listener = Listener::bind(device(), "10.0.0.2:7471".parse()?)?;
//! let server = thread::spawn(move || {
//!     let incoming = listener.accept(Duration::from_secs(5))?;
//!     let (mut connection, _qp) = incoming.accept(&Options::default(), QpParts::attach)?;
//!     connection.wait_closed(Duration::from_secs(5))?;
//!     connection.disconnect(Duration::from_secs(5))
//! });
//! let peer = "10.0.0.2:7471".parse()?;
//! let (mut connection, _qp) = Connection::connect(device(), peer, &Options::default(), QpParts::attach)?;
//! connection.disconnect(Duration::from_secs(5))?;
//! server.join().expect("the server does not panic")?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # In place of rdma_create_ep
//!
//! rdma_create_ep(3) creates an endpoint of addresses that were looked up. [`ToSocketAddrs`](std::net::ToSocketAddrs)
//! makes the lookup: create a [`Listener`] on an address of it, or a [`Connection`] to one.
//! [`Blocking::create_endpoint`] creates only the endpoint.
//!
//! A [`Connection`] is of [`PortSpace::Tcp`](cmid_proto::PortSpace::Tcp). For other port spaces, and for datagrams,
//! use [`Blocking`] with endpoints, which are ids in synchronous mode.
#![forbid(unsafe_code)]

mod cancel;
mod completions;
mod connection;
mod drain;
mod driver;
mod endpoint;
mod error;
mod listener;
mod poller;
mod wait;

pub use cancel::Canceller;
pub use cmid_io_common::ListenOptions;
pub use cmid_proto as proto;
pub use cmid_proto::handshake::Options;
#[cfg(feature = "sim")]
pub use cmid_sim as sim;
#[cfg(feature = "trace")]
pub use cmid_trace as trace;
#[cfg(feature = "verbs")]
pub use cmid_verbs as verbs;
pub use connection::Connection;
pub use driver::Blocking;
pub use endpoint::Endpoint;
pub use error::Error;
pub use listener::{Incoming, Listener};
pub use poller::Channels;
pub use wait::Ready;

/// The examples of README.md compile and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
