//! Model checking: all states of small worlds.
#![forbid(unsafe_code)]

pub mod connections;
