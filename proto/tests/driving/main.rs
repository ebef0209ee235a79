//! The loop that drivers share, every request of it, and the device around the device that tells a poller of channels.

#![cfg(feature = "std")]
#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm, reason = "a test fails by panicking")]

mod device;
mod flood;
mod level;
mod observed;
mod requests;
mod turning;
mod unreadable;
mod watched;
mod words;
