//! Records and replays the inputs of a core; counts and logs the steps of a driver.
//!
//! Each is an [`Observer`](cmid_proto::Observer) of a drive. A drive without an observer has no code for this.
//!
//! | observer | what it does with each step |
//! | --- | --- |
//! | [`Trace`] | records it to a file, for [`replay`] |
//! | [`Counting`] | counts events, requests, refusals, failures and deadlines |
//! | `Tracing` (feature `tracing`) | emits an event of the crate `tracing` |
//!
//! # Traces
//!
//! The core is pure: the same steps produce the same results and the same state. [`Trace`] records a
//! driver. Each request, ack, outcome, event with its private data, readable channel, passing of time
//! and delivery is one line of a file, together with the core's result. [`replay`] passes the lines to a new core and
//! compares the results. `docs/trace.md` documents the format.
//!
//! ```
//! use cmid_proto::{Acks, Drive, Limits, PortSpace, State};
//! use cmid_trace::{Memory, Recording, Trace, replay};
//! use std::sync::Arc;
//!
//! let fabric = cmid_sim::Fabric::new(cmid_sim::Config::default());
//! let memory = Memory::default(); // or Files::at("server.trace")
//! let trace = Trace::new(Arc::new(memory.clone()))?;
//!
//! // Or `observed` of a driver of io-mio, io-epoll, io-blocking.
//! let device = fabric.host(&["10.0.0.1".parse()?]).device();
//! let mut drive = Drive::with(device, (), trace, Limits::SINGLE);
//! let channel = drive.open_channel(Acks::OnDelivery)?;
//! let id = drive.create_id(Some(channel), PortSpace::Tcp)?;
//! drive.bind(id, "10.0.0.1:7471".parse()?)?;
//! let live = drive.core().clone();
//! drop(drive);
//!
//! let recordings = [Recording::read(&memory.texts()[0][..])?];
//! let cores = replay(&recordings, |_, transition| println!("{transition}")).map_err(|(_, wrong)| wrong)?;
//! assert_eq!(cores[0].state(id), Some(State::Bound));
//! assert!(cores[0] == live);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod bytes;
mod chart;
mod counts;
mod line;
mod parts;
mod read;
mod record;
mod replay;
mod sink;
#[cfg(feature = "tracing")]
mod tracing;
mod transition;
mod words;

pub use chart::{Chart, ChartFormat};
pub use cmid_proto as proto;
pub use counts::{Counting, Counts};
pub use read::{Recording, Wrong};
pub use record::Trace;
pub use replay::replay;
pub use sink::{Files, Memory, Stream, TraceSink};
#[cfg(feature = "tracing")]
pub use tracing::Tracing;
pub use transition::{Arrow, Transition};

/// The examples of README.md compile and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
