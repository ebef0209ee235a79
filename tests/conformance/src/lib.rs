//! One conformance suite for every driver, on the simulator and on a real kernel.
//!
//! [`BEHAVIOURS`] lists the observed behaviour of librdmacm and the kernel, one by one. A [`Scenario`] performs the
//! steps of a behaviour, or of a part of one, with two drivers. It compares event types, statuses, private data
//! lengths, parameters, return values of calls and the state of QPs. Drivers, devices and the network are those of
//! [`cmid_harness`]: a [`Driver`] is a driver on a device, an [`Env`] makes drivers. [`FailingEnv`] is the
//! environment of this suite alone: a device call fails in it.
//!
//! Some requests are refused by the core although the kernel accepts them, because they break the connection or block
//! the thread for minutes. These are shown twice: that the core refuses them and the connection is unharmed, and,
//! with calls on the bare device past the core, what the kernel does.
//!
//! Memory does not depend on the driver. Scenarios about it register, re-register and deregister with the device's
//! own types, behind [`TestPd`] and [`TestMr`]. RDMA reads and writes of the peer show which registration is valid.
//! The environment determines what a device can re-register ([`Env::with_rereg`]).
//!
//! # A driver of your own
//!
//! Implement [`Driver`] for it, and [`Make`] for the device; then pass it to an environment. This driver never blocks
//! and polls all its channels in a loop:
//!
//! ```
//! use std::time::{Duration, Instant};
//!
//! use cmid_conformance::{Report, Speed, run};
//! use cmid_harness::{Check, DriveOf, Driver, Make, SimEnv};
//! use cmid_proto::{ChannelKey, Drive, Errno, Limits, Next, Poller, Time};
//! use cmid_sim::SimDevice;
//!
//! /// The channels that there are: those that were opened, and the private ones of synchronous mode.
//! #[derive(Default)]
//! struct Known(Vec<ChannelKey>);
//!
//! impl<D> Poller<D> for Known {
//!     fn add(&mut self, channel: ChannelKey, _: &D) -> Result<(), Errno> {
//!         self.0.push(channel);
//!         Ok(())
//!     }
//!     fn remove(&mut self, channel: ChannelKey, _: &D) {
//!         self.0.retain(|known| *known != channel);
//!     }
//! }
//!
//! struct Spinning {
//!     drive: Drive<SimDevice, Known>,
//!     begun: Instant,
//! }
//!
//! impl Driver for Spinning {
//!     type Device = SimDevice;
//!     type Poller = Known;
//!     type Observer = ();
//!
//!     fn drive(&mut self) -> &mut DriveOf<Self> {
//!         self.drive.set_now(Time::ZERO.after(self.begun.elapsed()));
//!         &mut self.drive
//!     }
//!
//!     fn wait(&mut self, at_most: Option<Duration>) -> Result<(), Errno> {
//!         let end = at_most.map(|at_most| Instant::now() + at_most);
//!         loop {
//!             let drive = self.drive();
//!             for channel in drive.poller().0.clone() {
//!                 drive.readable(channel);
//!             }
//!             match drive.run(64) {
//!                 Next::Deliver => return Ok(()),
//!                 Next::Again => {}
//!                 Next::Wait(_) if end.is_some_and(|end| Instant::now() >= end) => return Ok(()),
//!                 Next::Wait(_) => std::thread::sleep(Duration::from_millis(1)),
//!             }
//!         }
//!     }
//! }
//!
//! impl Make<SimDevice> for Spinning {
//!     fn observed(device: SimDevice, limits: Limits, (): ()) -> Check<Self> {
//!         let drive = Drive::with(device, Known::default(), (), limits.numbered());
//!         Ok(Spinning { drive, begun: Instant::now() })
//!     }
//! }
//!
//! let env = SimEnv::<Spinning>::new();
//! let mut report = Report::new("the simulator");
//! // Normal life; without a condition it is everything.
//! run(&env, "spinning", &mut report, |entry| {
//!     entry.speed == Speed::Fast && entry.behaviours.iter().any(|behaviour| (1..=9).contains(behaviour))
//! });
//! for (scenario, findings) in &report.scenarios {
//!     assert!(findings.passed(), "{scenario}: {:?}", findings.drivers);
//! }
//! # assert!(report.scenarios.len() >= 8);
//! ```
//!
//! To run a single one: [`scenarios()`] are functions, found by [`Entry::name`] or [`Entry::behaviours`], and
//! [`Scenario::run`] returns the first difference.
//!
//! ```
//! use cmid_conformance::scenarios;
//! use cmid_harness::{OnEpoll, SimEnv};
//! use cmid_sim::SimDevice;
//!
//! let env = SimEnv::<OnEpoll<SimDevice>>::new();
//! let behaviour_11 = scenarios().into_iter().find(|scenario| scenario.entry.behaviours == [11]).expect("it exists");
//! behaviour_11.run(&env)?;
//! # Ok::<(), cmid_harness::Failure>(())
//! ```
//!
//! For a device of your own, or another network, implement [`Env`]; for your device also [`TestDevice`], which makes
//! PDs and QPs.
//!
//! # The program
//!
//! `conformance` runs the suite on the project's own drivers. `--device verbs` runs in the VM (`cargo xtask
//! softroce`), `--device sim` anywhere; a build with the feature `verbs` has the former, one without it the latter. `--speed slow` runs the time-outs that take up to 17 minutes of a kernel's time,
//! `--rereg-shim FILE` the scenarios that re-register memory on Linux 6.12. `--report FILE` writes the outcomes to a
//! file, `--recorded FILE` compares them with recorded ones and fails if they differ. Those of the last recorded runs are in
//! `tests/conformance/results/`, and rendered in `docs/generated/behaviours.md`.
//!
//! [`Env`]: cmid_harness::Env
//! [`Env::with_rereg`]: cmid_harness::Env::with_rereg
//! [`Make`]: cmid_harness::Make
//! [`Driver`]: cmid_harness::Driver
//! [`TestDevice`]: cmid_harness::TestDevice
//! [`TestMr`]: cmid_harness::TestMr
//! [`TestPd`]: cmid_harness::TestPd
#![forbid(unsafe_code)]

mod behaviours;
mod failing;
mod report;
mod run;
pub mod scenarios;

pub use behaviours::{BEHAVIOURS, Behaviour};
pub use cmid_harness::{DriverName, Speed};
pub use failing::{Failing, FailingEnv, OnFailing, Run, errnos};
pub use report::{Outcome, Report};
pub use run::run;
pub use scenarios::{Entry, Scenario, entries, entries_on, scenarios, scenarios_on};
