//! The connection managers of librdmacm and the kernel, and their messages. Modules are named after the simulated
//! parts.

pub(crate) mod address;
mod bind;
pub(crate) mod channel;
pub(crate) mod conn;
mod connect;
pub(crate) mod due;
pub(crate) mod fetch;
pub(crate) mod gid;
pub(crate) mod host;
pub(crate) mod ib_cm;
mod ib_send;
pub(crate) mod id;
pub(crate) mod iw_cm;
pub(crate) mod iw_conn;
mod lifetime;
mod link;
mod listener;
pub(crate) mod multicast;
mod neighbour;
pub(crate) mod options;
pub(crate) mod ports;
mod removal;
mod resolve;
pub(crate) mod sidr;
pub(crate) mod signal;
pub(crate) mod wire;
