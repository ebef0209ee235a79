//! Bindings to librdmacm and libibverbs that need neither libclang nor the headers of rdma-core.
//!
//! `generated` is what `generate.sh` writes from the headers of rdma-core 44; `unions` is written by hand.
//! `tests/layout.rs` compares both with the headers that are installed. The programs link with `libibverbs.so.1` and
//! `librdmacm.so.1` themselves, so no development package is needed.

#![allow(
    dead_code,
    non_camel_case_types,
    non_snake_case,
    unreachable_pub,
    unused_imports,
    reason = "C's names, and all that its types use"
)]

#[rustfmt::skip]
mod generated;
mod unions;

pub(crate) use generated::*;
pub(crate) use unions::*;

// The functions of `generated` are in these libraries. Their full names need no `libibverbs.so`, which only
// development packages have.
#[link(name = "libibverbs.so.1", kind = "dylib", modifiers = "+verbatim")]
unsafe extern "C" {}

#[link(name = "librdmacm.so.1", kind = "dylib", modifiers = "+verbatim")]
unsafe extern "C" {}
