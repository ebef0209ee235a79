//! What comes of requests.

use crate::errno::Errno;
use crate::memory::{Failure, Keys, Way};

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub enum Ended<B> {
    /// It is registered, with these keys.
    Registered(Keys),
    /// It could not be registered; the buffer is the caller's again.
    NotRegistered(Errno, B),
    /// The re-registration has ended, one way or the other.
    Reregistered(Settled<B>),
    /// It is deregistered, and the device refers to its buffers no more.
    Deregistered(Returned<B>),
    /// It could not be deregistered. It can be tried again.
    NotDeregistered(Failure),
}

/// What came of a re-registration.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub struct Settled<B> {
    /// How it went, or why not. [`Failure::valid`] says what can be used; after `ERR_DO_FORK_OLD` that is the new
    /// registration.
    pub result: Result<Way, Failure>,
    /// The buffer that the device does not refer to: the old one if the new registration is valid, the new one if the old is
    /// and the device has never heard of the new. `None` if there was only one, if neither registration is valid, and if the
    /// provider failed at other memory otherwise than with EOPNOTSUPP: then the region keeps both until it is
    /// deregistered.
    pub buffer: Option<B>,
}

/// The buffers of a region that is gone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Returned<B> {
    /// Its buffer.
    pub buffer: B,
    /// The one that it was to have had, if a re-registration failed after which the device may have known it.
    pub other: Option<B>,
}
