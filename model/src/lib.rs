//! Model checking: every state of small worlds.
#![forbid(unsafe_code)]

pub mod connections;
pub mod memory;
mod search;
mod witness;

pub use search::{Report, Searched, search};
