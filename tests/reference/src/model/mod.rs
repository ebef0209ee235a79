//! The reference: what a device that keeps its contract does, and what an application must then see of it. Written from
//! the semantics of librdmacm and the kernel, not from the core's tables.
//!
//! `kernel`, `happening`, `calls`, `fetch`: the device. `ledger`: undelivered events. `requests`: what was asked for and
//! when it must have ended. `agreement`: what state an id must be in. `asked`: what a call must say. `host`, `app`: a core driven by the contract, and
//! checked against all of these. `world`: hosts on one kernel, and how everything comes to rest.
//! `mr`: the device under memory regions.

#![allow(clippy::wildcard_enum_match_arm, reason = "a model names what it knows; the rest does nothing in it")]

mod agreement;
mod app;
mod asked;
mod calls;
mod fetch;
mod happening;
mod host;
mod kernel;
mod ledger;
pub(crate) mod mr;
pub(crate) mod onward;
mod requests;
mod room;
pub(crate) mod world;
