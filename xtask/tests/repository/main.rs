//! Rules for the files of the repository.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test; its output is for documents")]

mod errors;
mod files;
mod guards;
mod layout;
mod rust_version;
