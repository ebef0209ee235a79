//! The backend of the devices that the suites open.

use cmid_verbs::{Backend, OpenError, PostCalls, Verbs};

/// The environment variable with the name of the backend: `kernel`, which is the default, or `librdmacm`. Processes
/// that a suite starts inherit it.
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

/// The environment variable with the kind of calls that post: `extended`, which is the default, or `classic`.
const POST_CALLS: &str = "CMID_POST_CALLS";

/// Returns the kind of calls that [`POST_CALLS`] names.
fn post_calls() -> PostCalls {
    match std::env::var(POST_CALLS).as_deref() {
        Err(_) | Ok("extended") => PostCalls::Extended,
        Ok("classic") => PostCalls::Classic,
        Ok(name) => panic!("{POST_CALLS} is extended or classic, not {name:?}"),
    }
}

/// Opens a device over [`backend`]. Its QPs post by the calls that `CMID_POST_CALLS` names: `extended`, which is the
/// default, or `classic`.
///
/// # Errors
/// The errors of [`Verbs::open_with`].
///
/// # Panics
/// A variable has another value.
pub fn open_verbs() -> Result<Verbs, OpenError> {
    let mut device = Verbs::open_with(backend())?;
    device.set_post_calls(post_calls());
    Ok(device)
}
