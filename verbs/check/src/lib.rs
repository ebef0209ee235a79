//! `cmid-check`: checks and measures RDMA devices with cmid, and writes a report.
//!
//! The program has two sides, on one machine or on two. The server serves each connection as its private data requests;
//! the client runs the behaviours and the measurements. The library is the [`Report`], for programs that read it.
#![forbid(unsafe_code)]

#[cfg(feature = "verbs")]
mod devices;
#[cfg(feature = "verbs")]
mod tools;

mod args;
mod client;
mod cm;
mod data;
mod host;
mod measure;
mod outcome;
mod report;
mod run;
mod server;
mod side;

mod wire;

pub use measure::Figures;
pub use outcome::{Behaviour, Outcome};
pub use report::{DeviceReport, Host, Report};
pub use run::main;
