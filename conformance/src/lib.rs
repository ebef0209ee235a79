//! One conformance suite for every driver, on the simulator and on a real kernel.
//!
//! A [`Subject`] is a driver on a device, a [`Lab`] makes them and knows the addresses of the network that they are on.
//! [`scenarios()`] are functions over both: the same steps and the same expectations everywhere. Whoever writes a driver of
//! their own implements the two traits and calls [`run`](Scenario::run) for each scenario.
//!
//! Rows are those of the project's table of observed behaviour; a scenario whose name begins with `row_` does what that row
//! says and compares event types, statuses, private data lengths, parameters and errno with it.
//!
//! ```
//! use cmid_conformance::{OnEpoll, SimLab, scenarios};
//! use cmid_sim::SimDevice;
//!
//! let lab = SimLab::<OnEpoll<SimDevice>>::new();
//! let scenario = scenarios().into_iter().find(|scenario| scenario.name == "row_11_no_listener").expect("it exists");
//! scenario.run(&lab)?;
//! # Ok::<(), cmid_conformance::Failure>(())
//! ```
#![forbid(unsafe_code)]

mod bench;
mod drivers;
mod failure;
mod labs;
mod qp;
mod report;
mod rows;
mod run;
pub mod scenarios;

use std::net::IpAddr;
use std::time::Duration;

use cmid_proto::{Device, Drive, Errno, Error, IdKey};

pub use bench::{Bench, Side, Who};
pub use drivers::{DriverName, Make, OnBlocking, OnEpoll, OnMio};
pub use failure::{Check, Failure};
pub use labs::SimLab;
#[cfg(feature = "verbs")]
pub use labs::VerbsLab;
pub use qp::{QpState, TestDevice, TestQp};
pub use report::{Difference, Report};
pub use rows::{ROWS, Row};
pub use run::{Outcome, run};
pub use scenarios::{Entry, Scenario, Speed, entries, scenarios};

/// A driver on a device, with nothing on it.
pub trait Subject {
    /// The device as the driver's [`Drive`] sees it.
    type Device: Device;

    /// The requests and events, at the present time.
    fn drive(&mut self) -> &mut Drive<Self::Device>;

    /// Does what there is to do and waits until there is something to look at, for at most `at_most`.
    ///
    /// # Errors
    /// What waiting failed with.
    fn wait(&mut self, at_most: Duration) -> Result<(), Errno>;

    /// Makes a QP and puts it on an id; what is returned is kept as long as the QP is needed.
    ///
    /// # Errors
    /// What the device says.
    fn attach_qp(&mut self, id: IdKey) -> Result<Box<dyn TestQp>, Error>;

    /// Takes the QP off the id.
    ///
    /// # Errors
    /// What the device says.
    fn detach_qp(&mut self, id: IdKey) -> Result<(), Error>;
}

/// Where scenarios run.
pub trait Lab: Sync {
    /// The drivers under test.
    type Subject: Subject;

    /// A fresh driver.
    ///
    /// # Errors
    /// What making it failed with.
    fn subject(&self) -> Result<Self::Subject, Failure>;

    /// The network.
    fn net(&self) -> Net;

    /// A port and a QP number that nobody has used: the kernel takes equal QP numbers for stale connections.
    fn fresh(&self) -> (u16, u32);

    /// How long to look for events where none is expected, and how long to let one happen unread.
    fn quiet(&self) -> Duration;

    /// How long a time wait lasts, at most.
    fn time_wait(&self) -> Duration;

    /// Bytes of heap in use, to find leaks; 0 if they cannot be counted.
    fn heap(&self) -> u64;

    /// Whether [`disturb`](Lab::disturb) can do this. Scenarios that need what a lab cannot do are not run on it.
    fn can(&self, what: Disturbance) -> bool {
        let _ = what;
        false
    }

    /// Does to the host what no driver can do.
    ///
    /// # Errors
    /// What doing so failed with.
    fn disturb(&self, what: Disturbance) -> Check {
        Err(Failure(format!("this lab cannot do this: {what:?}")))
    }
}

/// What happens to a host while drivers run on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disturbance {
    /// The host at [`Net::silent`] has a link address, so that its address can be resolved.
    SilentHost,
    /// It gets another one.
    NeighbourMoves,
    /// The device behind [`Net::client`] and [`Net::server`] goes away.
    DeviceGoes,
    /// It comes back.
    DeviceComes,
    /// The link below [`Net::bonded`] fails over to another one; before the first time the addresses may not be there.
    FailOver,
}

/// The addresses of a lab's network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Net {
    /// Where clients are.
    pub client: IpAddr,
    /// Where servers are.
    pub server: IpAddr,
    /// A local address without an RDMA device.
    pub no_rdma: IpAddr,
    /// An address that nobody has, in the network of the two.
    pub nobody: IpAddr,
    /// An address to which there is no route.
    pub no_route: IpAddr,
    /// An address that can be resolved and at which no connection manager answers. Only on labs that can do
    /// [`Disturbance::SilentHost`], and after that.
    pub silent: IpAddr,
    /// Two addresses of one RDMA device on a bond. Only on labs that can do [`Disturbance::FailOver`], and after that.
    pub bonded: [IpAddr; 2],
}
