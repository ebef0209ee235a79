//! What goes over the wire: the structures of NVM Express Base 2.0, of its NVM command set, and of the RDMA transport, by the
//! names they have there. Nothing here does I/O. All numbers are little-endian. What a peer has sent is checked.

mod bytes;
mod cm;
mod command;
mod cqe;
mod discovery;
mod identify;
mod sqe;
mod status;

pub use cm::{CmError, CmReject, CmReply, CmRequest};
pub use command::{
    Command, ConnectData, ConnectTo, Feature, LogPage, Property, Transfer, async_event, connect, flush, get_log_page,
    identify_controller, identify_namespace, identify_namespaces, keep_alive, property_get, property_set, read,
    set_features, write,
};
pub use cqe::{AsyncEvent, Cqe};
pub use discovery::{DiscoveryEntry, DiscoveryLog};
pub use identify::{IdController, IdNamespace, namespace_list};
pub use sqe::{Sgl, Sqe};
pub use status::Status;

/// What a peer has sent is not as the specification has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// It has another length.
    #[error("{what} has {len} bytes, and not {expected}")]
    Length {
        /// The structure.
        what: &'static str,
        /// Its length in bytes.
        len: usize,
        /// The length that the specification has, or the shortest one.
        expected: usize,
    },
    /// A field has a value that it cannot have.
    #[error("{field} of {what} is {value}")]
    Field {
        /// The structure.
        what: &'static str,
        /// The field, by its name in the specification.
        field: &'static str,
        /// Its value.
        value: u64,
    },
}
