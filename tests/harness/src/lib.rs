//! What the test suites share. A suite depends on this crate and not on another suite.
//!
//! - [`Subject`]: a driver on a device, and a wait. [`OnMio`], [`OnEpoll`] and [`OnBlocking`] are the project's own drivers;
//!   [`Make`] puts one on a device.
//! - [`TestDevice`]: a device with PDs, MRs, memory windows and QPs, as far as tests use them. The simulated device is one, and
//!   with the feature `verbs` librdmacm.
//! - [`Lab`]: drivers and the network they are on. [`SimLab`] is a simulated fabric, `VerbsLab` (feature `verbs`) is the network
//!   of the project's VM, and [`TracedLab`] records what the drivers of another lab do.
//! - [`Bench`]: two drivers and the steps of a connection.
//! - [`Report`]: the outcomes of a run as JSON, and how they differ from expected ones.
//! - [`Fragile`]: a device on which reads fail.
//!
//! [`Check`] is the result of a step, and [`failure`] has the comparisons. [`shell`] runs ip(8), tc(8) and rdma(8).
#![forbid(unsafe_code)]

pub mod bench;
mod devices;
mod driver;
pub mod failure;
mod fragile;
mod lab;
mod labs;
mod memory;
mod qp;
mod report;
pub mod shell;

pub use bench::{Acked, Bench, End, Side, Who};
pub use devices::{TestDevice, WithCq};
pub use driver::{DeviceName, DriverName, Make, OnBlocking, OnEpoll, OnMio, Subject, Under};
pub use failure::{Check, Failure};
pub use fragile::Fragile;
pub use lab::{Disturbance, Lab, Net};
#[cfg(feature = "verbs")]
pub use labs::VerbsLab;
pub use labs::{Devices, OnTraced, SimLab, TracedLab, sim_host};
pub use memory::{MemoryFault, Rereg, Reregistered, TestMr, TestPd};
pub use qp::{Done, QpState, Remote, Status, TestMw, TestQp};
pub use report::{Difference, Findings, Outcome, Report, Speed};
