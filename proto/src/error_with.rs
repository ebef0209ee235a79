//! The error of a call that takes a value, with the value.

use core::error::Error as StdError;
use core::fmt;

use crate::datapath::{CreateError, PostError};
use crate::errno::Errno;
use crate::error::Error;
use crate::memory::MemoryError;

/// The error of a call that takes a value, such as a buffer, and gives it back when it fails.
///
/// `?` converts it into what the error converts into, without the value. Its text, `Debug` form and source are those of
/// the error.
///
/// ```
/// use cmid_proto::ErrorWith;
/// use cmid_proto::datapath::MemoryRegion;
///
/// /// Deregisters an MR; returns one that is in use, for the next attempt.
/// fn deregister<M: MemoryRegion>(mr: M) -> Option<M> {
///     mr.deregister().err().map(|ErrorWith { given: mr, .. }| mr)
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ErrorWith<T, E> {
    /// The value that the call was given.
    pub given: T,
    /// The error.
    pub error: E,
}

impl<T, E> ErrorWith<T, E> {
    /// Creates the error of a call that was given this value.
    pub fn new(given: T, error: impl Into<E>) -> Self {
        ErrorWith { given, error: error.into() }
    }
}

impl<T, E: fmt::Debug> fmt::Debug for ErrorWith<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<T, E: fmt::Display> fmt::Display for ErrorWith<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<T, E: StdError> StdError for ErrorWith<T, E> {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.error.source()
    }
}

macro_rules! without_the_value {
    ($($error:ty),+ $(,)?) => {
        $(
            impl<T, E: Into<$error>> From<ErrorWith<T, E>> for $error {
                fn from(failed: ErrorWith<T, E>) -> Self {
                    failed.error.into()
                }
            }
        )+
    };
}

without_the_value!(CreateError, Errno, Error, MemoryError, PostError);

#[cfg(feature = "std")]
without_the_value!(std::io::Error);
