//! The parameters and the result of a re-registration, for the buffers of this crate.

use cmid_proto::{datapath, memory};

use crate::data::{Buffer, Pd};

/// What a re-registration changes: memory, PD, rights.
pub type Change = memory::Change<Pd, Buffer>;

/// The result of a re-registration.
pub type Reregistered = datapath::Reregistered<Buffer>;
