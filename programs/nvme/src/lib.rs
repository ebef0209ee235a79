//! An NVMe over RDMA initiator: reads and writes blocks of a target such as Linux's nvmet-rdma. See README.md.
//!
//! [`wire`], [`queue`] and [`controller`] are pure: they do no I/O and read no clock. [`initiator`] drives them with cmid in a
//! `mio::Poll` that the application owns.
#![forbid(unsafe_code)]

pub mod controller;
pub mod initiator;
pub mod queue;
pub mod wire;
