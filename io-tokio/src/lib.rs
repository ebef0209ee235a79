//! cmid on tokio: RDMA connections as `tokio::net` has them for TCP.
//!
//! [`Listener::bind`] and [`Listener::accept`], [`Connection::connect`], [`Connection::next_completions`],
//! [`Connection::disconnect`]. A connection is a stream of completions too. Above them [`Channel`] is messages, and
//! [`ByteStream`] bytes. README.md has a whole program.
//!
//! ```text
//!  task --await--> Channel ( messages ), ByteStream ( bytes )
//!    |                |
//!    +--await--> Connection, Listener: Drive ( Core: tables, no I/O ) --call--> Device: Verbs,
//!    |                | their descriptors, in the runtime             <-event--   or a simulated one
//!    +--post: the data path ---------------------------------------------------->
//! ```
//!
//! # Tasks and runtimes
//!
//! There is no task of this crate but those in which a [`ByteListener`] accepts. Each listener and each connection has a
//! drive of its own, in the value itself, and its futures make its turns. So nothing happens on a connection that no task
//! awaits, except in the kernel: it keeps the events. Both kinds of runtimes do. A runtime needs its drivers of I/O and time: `enable_all` of its builder.
//! Otherwise the first wait is an error that says so; where panics do not unwind, tokio's panic ends the process.
//!
//! A value moves freely between the threads of its runtime, and to another runtime with
//! [`Connection::leave_runtime`]. It has its own event channel, so no call of the kernel is necessary.
//!
//! The cost of a channel of its own: a listener has 2 descriptors, a connection 4, two of which are for its CQ; the
//! device has its own. One of each two is the duplicate that the runtime has registered. To serve many more connections than
//! descriptors, use [`Tokio`], where ids share channels.
//!
//! # Cancel safety
//!
//! Each method says what it means to drop its future. All facts are in the drive, and none in a future, so the next call
//! of any method continues from there. Dropping a value never waits for the peer.
//!
//! | dropped | effect |
//! | --- | --- |
//! | future of [`Connection::connect`] or [`Incoming::accept`] | ends the handshake; releases everything |
//! | future of [`Listener::accept`] | none; the next call returns the request |
//! | future of [`Connection::next_completions`], [`Connection::closed`], [`Connection::drain`] | none |
//! | future of [`Connection::disconnect`] | the request stays; the next call waits for its end |
//! | future of [`Channel::connect`], [`Channel::accept`] | as those of a connection |
//! | future of [`Channel::recv`], [`Channel::send`] | none; a message is sent whole or not at all |
//! | future of [`Channel::finish`], [`Channel::close`] | this side has finished; the next call waits on |
//! | [`Connection`], [`Channel`] | ends the connection |
//! | future of [`ByteListener::accept`] | none; the next call returns the stream |
//! | [`Message`] | its memory is received into again |
//! | [`Incoming`], [`Listener`] | rejects the peers that are not answered |
//!
//! ```no_run
//! # use cmid_sim as sim;
//! # use cmid_tokio::Connection;
//! use cmid_tokio::proto::datapath::Completion;
//! use std::{io, time::Duration};
//! use tokio::{select, sync::oneshot};
//!
//! async fn serve(mut connection: Connection<sim::SimDevice>, mut stop: oneshot::Receiver<()>) -> io::Result<()> {
//!     let mut completions = [Completion::default(); 16];
//!     loop {
//!         select! {
//!             polled = connection.next_completions(&mut completions) => match polled? {
//!                 0 => return Ok(()), // the peer has disconnected
//!                 polled => println!("{polled} work requests have completed"),
//!             },
//!             _ = &mut stop => return connection.disconnect(Duration::from_secs(5)).await,
//!         }
//!     }
//! }
//! ```
//!
//! # Time limits
//!
//! Limits are on tokio's clock, with a resolution of a millisecond. In tests it can be paused
//! (`tokio::time::pause`), with a simulated fabric that follows it (`advance_with_clock`, with the feature `sim`). `SimRuntime`
//! is a whole program on a host of a world, where hosts crash and messages are lost.
//!
#![cfg_attr(feature = "sim", doc = "```")]
#![cfg_attr(not(feature = "sim"), doc = "```ignore")]
//! # use cmid_tokio::Listener;
//! use cmid_tokio::sim::{Config, Fabric};
//! use std::time::Duration;
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?.block_on(async {
//! let fabric = Fabric::new(Config::default()); // Clock::Virtual
//! tokio::spawn(cmid_tokio::advance_with_clock(fabric.clone()));
//! let host = fabric.host(&["10.0.0.1".parse()?]);
//! let mut listener = Listener::bind(host.device(), "10.0.0.1:7471".parse()?)?;
//! // A minute of tokio's clock.
//! assert!(tokio::time::timeout(Duration::from_secs(60), listener.accept()).await.is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod channel;
mod clock;
mod connection;
mod driver;
mod listener;
mod port;
#[cfg(feature = "sim")]
mod sim_runtime;
#[cfg(feature = "sim")]
mod sim_time;
mod watch;

#[cfg(feature = "hyper-util")]
pub use channel::Connector;
pub use channel::{ByteListener, ByteStream, Channel, Message};
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
pub use driver::{Channels, Tokio};
pub use listener::{Incoming, Listener};
#[cfg(feature = "sim")]
pub use sim_runtime::SimRuntime;
#[cfg(feature = "sim")]
pub use sim_time::advance_with_clock;

/// The examples of README.md compile and run.
#[cfg(all(doctest, feature = "axum", feature = "sim", feature = "tonic"))]
#[doc = include_str!("../README.md")]
struct Readme;
