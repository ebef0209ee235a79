//! cmid with the face of `std::net`.
//!
//! [`Listener::bind`], [`Listener::accept`], [`Connection::connect`]: each call waits, with a deadline, in poll(2) and
//! nowhere else, and a [`Canceller`] ends the wait from another thread. A connection has a driver and a device of its own
//! and may be used from any one thread.
//!
//! ```
//! use cmid_blocking::{Connection, Listener, Options};
//! use std::{thread, time::Duration};
//! # use cmid_sim::{Caps, SimDevice};
//! # fn qp(device: &mut SimDevice, id: cmid_proto::IdKey) -> Result<cmid_sim::Qp, cmid_proto::Errno> {
//! #     let (pd, cq) = (device.alloc_pd(id)?, device.create_cq(id, 16)?);
//! #     device.create_qp(id, &pd, &cq, &cq, Caps::default())
//! # }
//! # let fabric = cmid_sim::Fabric::new(cmid_sim::Config { clock: cmid_sim::Clock::Real, ..Default::default() });
//! # let host = fabric.host(&["10.0.0.1".parse()?, "10.0.0.2".parse()?]);
//! # let device = || host.device();
//!
//! let mut listener = Listener::bind(device(), "10.0.0.2:7471".parse()?)?;
//! let server = thread::spawn(move || {
//!     let incoming = listener.accept(Duration::from_secs(5))?;
//!     let (mut connection, _qp) = incoming.accept(&Options::default(), qp)?;
//!     connection.wait_closed(Duration::from_secs(5))?;
//!     connection.disconnect(Duration::from_secs(5))
//! });
//! let (mut connection, _qp) = Connection::connect(device(), "10.0.0.2:7471".parse()?, &Options::default(), qp)?;
//! connection.disconnect(Duration::from_secs(5))?;
//! server.join().expect("the server does not panic")?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod cancel;
mod clock;
mod connection;
mod driver;
mod error;
mod listener;
mod poller;

pub use cancel::Canceller;
#[cfg(feature = "verbs")]
pub use cmid_verbs as verbs;
pub use connection::{Connection, Options, Ready};
pub use driver::Blocking;
pub use error::Error;
pub use listener::{Incoming, Listener};
pub use poller::Channels;
