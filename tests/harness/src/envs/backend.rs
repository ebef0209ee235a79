//! The backend of the devices that the suites open.

use cmid_verbs::{Backend, OpenError, Verbs};

/// The variable that names it: `kernel`, which is the default, or `librdmacm`. Processes that a suite starts inherit it.
pub const BACKEND: &str = "CMID_BACKEND";

/// Returns the backend that [`BACKEND`] names.
///
/// # Panics
/// The variable has another value.
#[must_use]
pub fn backend() -> Backend {
    match std::env::var(BACKEND) {
        Err(_) => Backend::default(),
        Ok(name) => name.parse().unwrap_or_else(|error| panic!("{BACKEND}: {error}")),
    }
}

/// Opens a device over [`backend`].
///
/// # Errors
/// Those of [`Verbs::open_with`].
pub fn open_verbs() -> Result<Verbs, OpenError> {
    Verbs::open_with(backend())
}
