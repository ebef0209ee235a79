//! One conformance suite for every driver, on the simulator and on a real kernel.
//!
//! [`BEHAVIOURS`] is what librdmacm and the kernel were observed to do, row by row. A [`Scenario`] goes through the steps of a row,
//! or of a part of one, with two drivers, and compares event types, statuses, private data lengths, parameters, what calls
//! return and the state of QPs. A [`Driver`] is a driver on a device; a [`Env`] makes them, and knows the network that they
//! are on. There are two labs: [`SimLab`], and `VerbsLab` (feature `verbs`) for soft-RoCE in the project's VM.
//!
//! What the core refuses although the kernel would do it (with a reason: it breaks the connection, or holds up the thread
//! for minutes) is shown twice: that it is refused and the connection is none the worse for it, and, with calls on the bare
//! device past the core, what the kernel does.
//!
//! Memory does not depend on the driver. Scenarios about it register, re-register and deregister with the device's own types,
//! behind [`TestPd`] and [`TestMr`], and show by RDMA reads and writes of the peer what is valid. What a device can
//! re-register is the lab's ([`Env::with_rereg`]).
//!
//! # A driver of your own
//!
//! Implement [`Driver`] for it, and [`Make`] for the device; then hand it to a lab. Here is a driver that waits for
//! nothing and looks at all its channels again and again:
//!
//! ```
//! use std::os::fd::BorrowedFd;
//! use std::time::{Duration, Instant};
//!
//! use cmid_conformance::{Check, Make, Report, SimLab, Speed, Driver, run};
//! use cmid_proto::{ChannelKey, Drive, Errno, Limits, Poller, Next, Time, PolledDevice};
//! use cmid_sim::SimDevice;
//!
//! /// The channels that there are: those that were opened, and the private ones of synchronous mode.
//! #[derive(Default)]
//! struct Known(Vec<ChannelKey>);
//!
//! impl Poller for Known {
//!     fn add(&mut self, channel: ChannelKey, _: BorrowedFd<'_>) -> Result<(), Errno> {
//!         self.0.push(channel);
//!         Ok(())
//!     }
//!     fn remove(&mut self, channel: ChannelKey, _: BorrowedFd<'_>) {
//!         self.0.retain(|known| *known != channel);
//!     }
//! }
//!
//! struct Spinning {
//!     drive: Drive<PolledDevice<SimDevice, Known>>,
//!     begun: Instant,
//! }
//!
//! impl Driver for Spinning {
//!     type Device = PolledDevice<SimDevice, Known>;
//!
//!     fn drive(&mut self) -> &mut Drive<Self::Device> {
//!         self.drive.set_now(Time::ZERO.after(self.begun.elapsed()));
//!         &mut self.drive
//!     }
//!
//!     fn wait(&mut self, at_most: Duration) -> Result<(), Errno> {
//!         let end = Instant::now() + at_most;
//!         loop {
//!             let drive = self.drive();
//!             for channel in drive.device().poller().0.clone() {
//!                 drive.readable(channel);
//!             }
//!             match drive.run(64) {
//!                 Next::Deliver => return Ok(()),
//!                 Next::Again => {}
//!                 Next::Wait(_) if Instant::now() >= end => return Ok(()),
//!                 Next::Wait(_) => std::thread::sleep(Duration::from_millis(1)),
//!             }
//!         }
//!     }
//! }
//!
//! impl Make<SimDevice> for Spinning {
//!     fn make(device: SimDevice) -> Check<Self> {
//!         let drive = Drive::new(PolledDevice::new(device, Known::default()), Limits::default().numbered());
//!         Ok(Spinning { drive, begun: Instant::now() })
//!     }
//! }
//!
//! let env = SimLab::<Spinning>::new();
//! let mut report = Report::new("the simulator");
//! // Normal life; without a condition it is everything.
//! run(&env, "spinning", &mut report, |entry| {
//!     entry.speed == Speed::Fast && entry.behaviours.iter().any(|row| (1..=9).contains(row))
//! });
//! for (scenario, findings) in &report.scenarios {
//!     assert!(findings.passed(), "{scenario}: {:?}", findings.drivers);
//! }
//! # assert!(report.scenarios.len() >= 8);
//! ```
//!
//! A single one: [`scenarios()`] are functions, found by [`Entry::name`] or [`Entry::behaviours`], and [`Scenario::run`] says what was
//! not as expected.
//!
//! ```
//! use cmid_conformance::{OnEpoll, SimLab, scenarios};
//! use cmid_sim::SimDevice;
//!
//! let env = SimLab::<OnEpoll<SimDevice>>::new();
//! let row_11 = scenarios().into_iter().find(|scenario| scenario.entry.behaviours == [11]).expect("it exists");
//! row_11.run(&env)?;
//! # Ok::<(), cmid_conformance::Failure>(())
//! ```
//!
//! For a device of your own, or another network, implement [`Env`]; for your device also [`TestDevice`], which makes PDs and
//! QPs.
//!
//! # The program
//!
//! `conformance` runs the suite on the project's own drivers: `--device sim` anywhere, `--device verbs` in the VM (`cargo xtask
//! softroce`), `--speed slow` for the time-outs that take up to 17 minutes of a kernel's time, `--rereg-shim FILE` for what
//! re-registers memory on Linux 6.12, `--report FILE` to write the outcomes down. Those of the last recorded runs are in `tests/conformance/results/`, and in words in `docs/generated/rows.md`; the test
//! programme fails when a run comes out otherwise.
#![forbid(unsafe_code)]

mod behaviours;
mod devices;
mod drivers;
mod envs;
mod failure;
mod fixture;
mod memory;
mod qp;
pub mod references;
mod report;
mod run;
pub mod scenarios;

use std::net::{IpAddr, SocketAddr};
use std::process::Child;
use std::time::Duration;

use cmid_proto::{Drive, Errno, Fault};

pub use behaviours::{BEHAVIOURS, Behaviour};
pub use devices::{TestDevice, WithCq};
pub use drivers::{DriverName, Make, OnBlocking, OnEpoll, OnMio};
#[cfg(feature = "verbs")]
pub use envs::VerbsLab;
pub use envs::{Devices, Failing, FailingLab, OnFailing, OnTraced, Run, SimLab, TracedLab, errnos};
pub use failure::{Check, Failure};
pub use fixture::{Acked, End, Endpoint, Fixture, Side};
pub use memory::{MemoryFault, Rereg, Reregistered, TestMr, TestPd};
pub use qp::{Done, QpState, Remote, Status, TestMw, TestQp};
pub use report::{Difference, Report};
pub use run::{Outcome, run};
pub use scenarios::{Entry, Scenario, Speed, entries, scenarios};

/// A driver on a device, with nothing on it.
pub trait Driver {
    /// The device as the driver's [`Drive`] sees it.
    type Device: TestDevice;

    /// The requests and events.
    fn drive(&mut self) -> &mut Drive<Self::Device>;

    /// Does what there is to do and waits until there is something to look at, for at most `at_most`.
    ///
    /// # Errors
    /// What waiting failed with.
    fn wait(&mut self, at_most: Duration) -> Result<(), Errno>;

    /// A scenario has taken this fault off the drive.
    fn noticed(&mut self, fault: Fault) {
        let _ = fault;
    }
}

/// Where scenarios run.
pub trait Env: Sync {
    /// The drivers under test.
    type Driver: Driver;

    /// A fresh driver.
    ///
    /// # Errors
    /// What making it failed with.
    fn driver(&self) -> Result<Self::Driver, Failure>;

    /// A fresh driver on another device than that of [`Env::net`], and an address that this device has.
    ///
    /// # Errors
    /// What making it failed with, or that there is none.
    fn other_device(&self) -> Check<(Self::Driver, IpAddr)> {
        Err(Failure("this lab has one device".into()))
    }

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

    /// What devices have noticed that no program can do.
    ///
    /// # Errors
    /// They have noticed something.
    fn sound(&self) -> Check {
        Ok(())
    }

    /// Whether [`disturb`](Lab::disturb) can do this. Scenarios that need what a lab cannot do are not run on it.
    fn can(&self, what: Disturbance) -> bool {
        let _ = what;
        false
    }

    /// Starts a program of somebody else's that connects to this address, sends, and waits for an answer: to be killed.
    /// Only on labs that can do [`Disturbance::ProcessDies`].
    ///
    /// # Errors
    /// What starting it failed with.
    fn client_process(&self, there: SocketAddr) -> Check<Child> {
        Err(Failure(format!("this lab has no program that connects to {there}")))
    }

    /// Does to the host what no driver can do.
    ///
    /// # Errors
    /// What doing so failed with.
    fn disturb(&self, what: Disturbance) -> Check {
        Err(Failure(format!("this lab cannot do this: {what:?}")))
    }

    /// The same lab with devices that re-register memory so; `None` if it has none such. Scenarios for which that matters
    /// run on what this returns, or not at all.
    fn with_rereg(&self, rereg: Rereg) -> Option<Self>
    where
        Self: Sized,
    {
        let _ = rereg;
        None
    }

    /// The next call about memory on [`Net::server`]'s device goes wrong. Only on labs that can do
    /// [`Disturbance::MemoryFails`].
    ///
    /// # Errors
    /// If the lab cannot.
    fn fail_next(&self, fault: MemoryFault) -> Check {
        Err(Failure(format!("this lab cannot do this: {fault:?}")))
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
    /// A process is killed: done by killing what [`Env::client_process`] started.
    ProcessDies,
    /// The link below [`Net::bonded`] fails over to another one; before the first time the addresses may not be there.
    FailOver,
    /// Calls about memory go wrong: done by [`Env::fail_next`].
    MemoryFails,
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
