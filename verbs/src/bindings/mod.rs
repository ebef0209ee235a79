//! The bindings of this crate to libibverbs and librdmacm: types and constants of their headers, and functions that are
//! looked up while the program runs. A build needs neither headers nor libraries, and a program starts without them.
//!
//! Each type, constant and function is written once, in a macro that also lists it for `tests/layout.rs`: there the C
//! compiler compares sizes, offsets, numbers and signatures with the installed headers.

#![allow(
    dead_code,
    non_camel_case_types,
    unreachable_pub,
    clippy::too_many_arguments,
    reason = "C's names and functions; constants for assertions, and lists for tests/layout.rs"
)]

#[macro_use]
mod library;
mod functions;
mod types;

pub use functions::*;
pub use types::*;

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("these bindings were compared with the headers on x86_64 and aarch64 only: use the feature rdma-sys");
