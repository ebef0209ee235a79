//! Failures of checks.

use std::fmt;

use cmid_proto::ErrorWith;
use cmid_proto::datapath::{BatchError, CreateError, DrainError, PostError, PostReason};

/// A difference between the expected and the observed behaviour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure(pub String);

/// The result of a scenario or of one step.
pub type Check<T = ()> = Result<T, Failure>;

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failure {}

macro_rules! by_text {
    ($($error:ty),+ $(,)?) => {
        $(
            impl From<$error> for Failure {
                fn from(error: $error) -> Self {
                    Failure(error.to_string())
                }
            }
        )+
    };
}

by_text!(
    cmid_proto::Error,
    cmid_proto::AckError,
    cmid_proto::Errno,
    CreateError,
    PostError,
    DrainError,
    BatchError,
    cmid_proto::memory::MemoryError,
    std::io::Error,
);

impl<T, E: Into<Failure>> From<ErrorWith<T, E>> for Failure {
    fn from(failed: ErrorWith<T, E>) -> Self {
        failed.error.into()
    }
}

/// Returns a failure with this text unless the condition holds.
pub fn ensure(condition: bool, text: impl FnOnce() -> String) -> Check {
    if condition { Ok(()) } else { Err(Failure(text())) }
}

/// Returns a failure unless both values are equal.
pub fn same<T: PartialEq + fmt::Debug>(what: &str, seen: T, expected: T) -> Check {
    ensure(seen == expected, || format!("{what}: {seen:?}, expected {expected:?}"))
}

/// Returns the outcome of a post with the reason alone.
pub fn why(posted: Result<(), PostError>) -> Result<(), PostReason> {
    posted.map_err(|error| error.reason())
}

/// Returns the outcome of a batch with the number of posted requests and the reason.
pub fn stopped(posted: Result<usize, BatchError>) -> Result<usize, (usize, PostReason)> {
    posted.map_err(|error| (error.posted, error.error.reason()))
}

/// Returns a failure unless the call failed with this errno.
pub fn fails<T: fmt::Debug>(what: &str, seen: Result<T, cmid_proto::Error>, expected: cmid_proto::Errno) -> Check {
    match seen {
        Err(error) if error.errno() == expected => Ok(()),
        Err(error) => Err(Failure(format!("{what}: {error} ({}), expected {expected}", error.errno()))),
        Ok(value) => Err(Failure(format!("{what}: succeeded with {value:?}, expected {expected}"))),
    }
}
