//! Rules for the files of the repository.

mod errors;
mod guards;
mod layout;
mod rust_version;
