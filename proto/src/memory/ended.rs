//! The results of requests.

use crate::errno::Errno;
use crate::memory::{Keys, MemoryFailure, Way};

/// The result of a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub enum Ended<B> {
    /// The memory is registered, with these keys.
    Registered(Keys),
    /// The registration failed; the buffer is returned.
    NotRegistered(Errno, B),
    /// The re-registration has ended, with success or failure.
    Reregistered(Settled<B>),
    /// The MR is deregistered, and the device no longer refers to its buffers.
    Deregistered(Returned<B>),
    /// The deregistration failed. It can be repeated.
    NotDeregistered(MemoryFailure),
}

/// The result of a re-registration.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub struct Settled<B> {
    /// The way of the re-registration, or its failure. [`MemoryFailure::valid`] is the registration that can be used; after
    /// `IBV_REREG_MR_ERR_DO_FORK_OLD` it is the new one.
    pub result: Result<Way, MemoryFailure>,
    /// The buffer that the device does not refer to: the old one if the new registration is valid; the new one if the
    /// old registration is valid and the device has no record of the new buffer. `None` if there was only one buffer,
    /// if neither registration is valid, if the provider failed to change the memory with an errno other than
    /// EOPNOTSUPP, and if a packet of a peer may still be copied to the old one
    /// ([`Region::in_doubt`](crate::memory::Region::in_doubt)). In the last three cases the region keeps both buffers until it is deregistered.
    pub buffer: Option<B>,
}

/// The buffers of a region that is gone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Returned<B> {
    /// The region's buffer.
    pub buffer: B,
    /// The other buffer that the device may have accessed ([`Region::in_doubt`](crate::memory::Region::in_doubt)).
    pub other: Option<B>,
}
