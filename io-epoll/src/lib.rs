//! cmid on epoll.
//!
//! ```text
//!  application --request--> Epoll: Drive ( Core: tables, no I/O ) --call--> Device: Verbs, or a simulated one
//!       |      <--event---    |                                   <-event--     ^
//!       |                     | its channels and its deadline, in one epoll     |
//!       +--wait, or poll(2) of one descriptor, then turn                        |
//!       +-------- posts and polls: the data path does not pass through Epoll ---+
//! ```
//!
//! [`Epoll`] has its own epoll instance. Limits and deadlines have a resolution of one nanosecond. Busy polling is
//! optional. It has one descriptor, which any other loop can poll: readable when a [turn](Epoll::turn) has work. Only
//! [`Epoll::wait`] and [`Epoll::wait_with`] block, in `epoll_wait` or `ppoll`.
//!
//! ```
//! use cmid_epoll::{Config, Epoll};
//! use cmid_proto::{Acks, CmEvent, PortSpace};
//! use std::time::Duration;
//! # let fabric = cmid_sim::Fabric::new(cmid_sim::Config { clock: cmid_sim::Clock::Real, ..Default::default() });
//! # let host = fabric.host(&["10.0.0.1".parse()?, "10.0.0.2".parse()?]);
//! # let device = host.device();
//!
//! let mut epoll = Epoll::new(device, Config::default())?;
//! let channel = epoll.drive().open_channel(Acks::OnDelivery)?;
//! let id = epoll.drive().create_id(Some(channel), PortSpace::Tcp)?;
//! let deadline = epoll.drive().within(Duration::from_secs(2));
//! epoll.drive().resolve_addr(id, None, "10.0.0.2:7471".parse()?, deadline)?;
//! let event = loop {
//!     epoll.wait(Some(Duration::from_secs(2)))?;
//!     if let Some(event) = epoll.drive().next_event(channel) {
//!         break event;
//!     }
//! };
//! assert_eq!((event.id, event.cm()), (id, Some(CmEvent::AddrResolved)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod driver;
mod poller;
mod timer_fd;

pub use cmid_io_common::Waker;
pub use cmid_proto as proto;
#[cfg(feature = "sim")]
pub use cmid_sim as sim;
#[cfg(feature = "trace")]
pub use cmid_trace as trace;
#[cfg(feature = "verbs")]
pub use cmid_verbs as verbs;
pub use driver::{Config, Epoll};
pub use poller::Channels;

/// The examples of README.md compile and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
