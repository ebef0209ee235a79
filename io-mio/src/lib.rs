//! cmid in a `mio::Poll` that the user owns.
//!
//! [`Mio`] registers its channels in the user's registry, under a range of tokens that the user chooses. The user's
//! own sources use other tokens. No call waits: the user polls.
//!
//! ```
//! use cmid_mio::{Config, Mio};
//! use cmid_proto::{Acks, CmEvent, Limits, PortSpace};
//! use std::time::Duration;
//! # let fabric = cmid_sim::Fabric::new(cmid_sim::Config { clock: cmid_sim::Clock::Real, ..Default::default() });
//! # let host = fabric.host(&["10.0.0.1".parse()?, "10.0.0.2".parse()?]);
//! # let device = host.device();
//!
//! let mut poll = mio::Poll::new()?;
//! let mut events = mio::Events::with_capacity(64);
//! let config = Config { limits: Limits::SINGLE, tokens: 1000..1004 };
//! let mut driver = Mio::new(device, poll.registry(), config)?;
//!
//! let channel = driver.drive().open_channel(Acks::OnDelivery)?;
//! let id = driver.drive().create_id(Some(channel), PortSpace::Tcp)?;
//! let deadline = driver.drive().within(Duration::from_secs(2));
//! driver.drive().resolve_addr(id, None, "10.0.0.2:7471".parse()?, deadline)?;
//! let event = loop {
//!     poll.poll(&mut events, driver.timeout(None))?;
//!     for event in &events {
//!         if !driver.handle(event) {
//!             // one of the user's own sources
//!         }
//!     }
//!     let _rest = driver.turn();
//!     if let Some(event) = driver.drive().next_event(channel) {
//!         break event;
//!     }
//! };
//! assert_eq!((event.id, event.cm()), (id, Some(CmEvent::AddrResolved)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod driver;
mod poller;

pub use cmid_io_common::Waker;
pub use cmid_proto as proto;
#[cfg(feature = "sim")]
pub use cmid_sim as sim;
#[cfg(feature = "trace")]
pub use cmid_trace as trace;
#[cfg(feature = "verbs")]
pub use cmid_verbs as verbs;
pub use driver::{Config, Mio};
pub use mio;
pub use poller::Tokens;

/// The examples of README.md compile and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
