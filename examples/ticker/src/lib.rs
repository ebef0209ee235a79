//! Market data and order entry over RDMA, by busy polling.
//!
//! The parts without I/O: [`wire`] has the messages, [`feed::Feed`] numbers and keeps ticks, [`receiver::Receiver`]
//! finds gaps and fills them, [`strategy::Strategy`] makes orders of ticks.
//!
//! The parts on cmid: [`port::Port`] is a QP with its CQ and memory, [`group::Group`] a member of the multicast group,
//! [`link::Link`] and [`clients::Clients`] the two sides of connections. [`publisher::Publisher`], [`trader::Trader`]
//! and [`exchange::Exchange`] are the three programs, which a [`reactor::Reactor`] runs without ever sleeping.
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
