//! The reference model: the behaviour of a device that keeps its contract, and what an application must observe. It
//! derives from the semantics of librdmacm and the kernel, not from the core's tables.
//!
//! `kernel`, `happening`, `calls`, `fetch`: the device. `device`: a host's part of it, and the calls of a host. `ledger`: undelivered events. `requests`: open requests and
//! their deadlines. `agreement`: the expected state of an id. `asked`: the expected contents of a call. `host`,
//! `app`: a core driven according to the contract, and checked against all of these. `world`: hosts on one kernel,
//! and the end of a run. `mr`: the device under memory regions.

#![allow(clippy::wildcard_enum_match_arm, reason = "a model names what it knows; the rest does nothing in it")]

mod agreement;
mod app;
mod asked;
mod calls;
pub(crate) mod device;
mod fetch;
pub(crate) mod happening;
mod host;
pub(crate) mod kernel;
mod ledger;
pub(crate) mod mr;
pub(crate) mod onward;
mod requests;
mod room;
pub(crate) mod world;
