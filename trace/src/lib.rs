//! Records what goes into a core, and replays it.
//!
//! The core is pure: the same steps lead to the same answers and to the same state. [`Trace`] is a device around a device. A
//! driver that is given it is recorded: each request, ack, outcome, event with its private data, readable channel, passing of time and
//! delivery is a line of a file, and so is what the core answered. [`replay`] gives the lines to a core of its own and
//! compares. The format is documented in `docs/trace.md`.
//!
//! ```
//! use cmid_proto::{Acks, Device, Drive, Limits, PortSpace, State};
//! use cmid_trace::{Memory, Recording, Trace, replay};
//! use std::sync::Arc;
//!
//! let fabric = cmid_sim::Fabric::new(cmid_sim::Config::default());
//! let memory = Memory::default(); // or Files::at(path)
//! let device = Trace::new(fabric.host(&["10.0.0.1".parse()?]).device(), Arc::new(memory.clone()))?;
//!
//! let mut drive = Drive::new(device, Limits::SINGLE); // or a driver of io-mio, io-epoll, io-blocking
//! let channel = drive.open_channel(Acks::OnDelivery)?;
//! let id = drive.create_id(Some(channel), PortSpace::Tcp)?;
//! drive.bind(id, "10.0.0.1:7471".parse()?)?;
//! let live = drive.core().clone();
//! drop(drive);
//!
//! let recordings = [Recording::read(&memory.texts()[0][..])?];
//! let replays = replay(&recordings, |_, transition| println!("{transition}")).map_err(|(_, wrong)| wrong)?;
//! assert_eq!(replays[0].core().state(id), Some(State::Bound));
//! assert!(*replays[0].core() == live);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod chart;
mod line;
mod read;
mod record;
mod replay;
mod request;
mod sink;
mod snapshot;
mod transition;
mod values;

pub use chart::{Chart, ChartFormat};
pub use read::{Recording, Wrong};
pub use record::{Ticketed, Trace};
pub use replay::{Between, Played, Replay, replay};
pub use sink::{Files, Memory, Stream, TraceSink};
pub use transition::{Arrow, Transition};
