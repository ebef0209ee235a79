//! Market data and order entry over RDMA, by busy polling.
//!
//! The parts without I/O: [`wire`] defines the messages, [`feed::Feed`] numbers and keeps ticks, [`receiver::Receiver`]
//! finds and fills gaps, [`strategy::Strategy`] decides on orders.
//!
//! The parts on cmid: [`port::Port`] is a QP with its CQ and memory, [`group::Group`] is a member of the multicast
//! group, [`link::Link`] and [`clients::Clients`] are the two sides of connections. [`publisher::Publisher`],
//! [`trader::Trader`] and [`exchange::Exchange`] are the three programs. A [`reactor::Reactor`] runs one of them by
//! busy polling.
#![forbid(unsafe_code)]

pub mod clients;
pub mod driver;
pub mod error;
pub mod exchange;
pub mod feed;
pub mod group;
pub mod link;
pub mod port;
pub mod publisher;
pub mod quotes;
pub mod reactor;
pub mod receiver;
#[cfg(test)]
mod receiver_tests;
pub mod strategy;
pub mod trader;
pub mod wire;

pub use error::Error;
