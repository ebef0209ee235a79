//! What a re-registration is to change, and what comes of it.

use cmid_proto::memory::{self, Way};

use crate::data::{Buffer, Pd};

/// What [`Mr::reregister`](crate::Mr::reregister) is to change: memory, PD, rights.
pub type Change = memory::Change<Pd, Buffer>;

/// What came of [`Mr::reregister`](crate::Mr::reregister).
#[derive(Debug)]
#[must_use]
pub struct Reregistered {
    /// How it went, or why not. An error need not mean that the old registration is still valid:
    /// [`memory::Failure::valid`] says which one is.
    pub result: Result<Way, memory::Error>,
    /// The buffer that the device does not refer to: the old one if the new registration is valid, the new one if
    /// that was refused, or the old one is valid and the device has never heard of the new. `None` if the memory was
    /// not to change, and otherwise: then the [`Mr`](crate::Mr) keeps both until it is deregistered.
    pub buffer: Option<Buffer>,
}
