//! The drive loop, each of its requests, and its poller and observer.

#![cfg(feature = "std")]
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::result_large_err,
    reason = "a test fails by panicking"
)]

mod device;
mod edge;
mod flood;
mod handshake;
mod layer;
mod level;
mod many;
mod observed;
mod requests;
mod results;
mod step_text;
mod turning;
mod unreadable;
mod watched;
mod woken;
mod words;
