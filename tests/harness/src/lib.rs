//! Shared code of the test suites. A suite depends on this crate and not on another suite.
//!
//! - [`Driver`]: a driver on a device, and a wait. [`OnMio`], [`OnEpoll`], [`OnBlocking`] and [`OnTokio`] are the drivers of the
//!   project; [`Make`] creates one on a device.
//! - [`TestDevice`]: a device with a data path: the simulated device, and with the feature `verbs` real devices.
//! - [`Env`]: drivers and their network. [`SimEnv`] is a simulated fabric, `VerbsEnv` (feature `verbs`) is the
//!   network of the project's VM, and [`TracedEnv`] records the drivers of another environment.
//! - [`Fixture`]: two drivers and the steps of a connection.
//! - [`Report`]: the outcomes of a run as JSON, and their differences from expected outcomes.
//! - [`Fragile`]: a device on which reads fail.
//!
//! [`Check`] is the result of a step, and [`failure`] has the comparisons. [`references`] checks the names of tests in
//! documents. [`shell`] runs programs such as ip(8), tc(8) and rdma(8).
#![forbid(unsafe_code)]

mod devices;
mod driver;
mod env;
mod envs;
pub mod failure;
pub mod fixture;
mod fragile;
mod memory;
pub mod references;
mod report;
pub mod shell;

pub use devices::{TestDevice, TestMr, TestPd, make_qp, test_caps};
pub use driver::{DeviceName, DriveOf, Driver, DriverName, Make, OnBlocking, OnEpoll, OnMio, OnTokio};
pub use env::{Disturbance, Env, Net};
#[cfg(feature = "verbs")]
pub use envs::{BACKEND, VerbsEnv, backend, open_verbs};
pub use envs::{Devices, OnTraced, SimEnv, TracedEnv, sim_host};
pub use failure::{Check, Failure};
pub use fixture::{Acked, End, Endpoint, Fixture, Side};
pub use fragile::Fragile;
pub use memory::{MemoryFault, Rereg};
pub use report::{Difference, Findings, Outcome, Report, Speed};

/// The examples of the README of the workspace and of documents compile and run.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/from-librdmacm.md")]
    struct FromLibrdmacm;
    #[doc = include_str!("../../../docs/from-sideway-or-ibverbs.md")]
    struct FromSidewayOrIbverbs;
    #[doc = include_str!("../../../docs/event-loop.md")]
    struct EventLoop;
    #[doc = include_str!("../../../docs/tokio.md")]
    struct Tokio;
    #[doc = include_str!("../../../docs/testing.md")]
    struct Testing;
    #[doc = include_str!("../../../docs/migration.md")]
    struct Migration;
    #[doc = include_str!("../../../docs/memory.md")]
    struct Memory;
    #[doc = include_str!("../../../docs/data-path.md")]
    struct DataPath;
    #[doc = include_str!("../../../docs/trace.md")]
    struct Trace;
    #[doc = include_str!("../../../docs/shutdown.md")]
    struct Shutdown;
}
