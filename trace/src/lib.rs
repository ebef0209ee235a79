//! Records the inputs of a core, and replays them.
//!
//! The core is pure: the same steps produce the same answers and the same state. [`Trace`] wraps a device and records
//! the driver that uses it. Each request, ack, outcome, event with its private data, readable channel, passing of
//! time and delivery is one line of a file, together with the core's answer. [`replay`] feeds the lines to a new core
//! and compares the answers. `docs/trace.md` documents the format.
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
