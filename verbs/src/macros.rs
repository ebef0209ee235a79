//! Constants that the bindings lack: in the headers they are macros, or in unnamed enums.
//!
//! `tests/layout.rs` includes this file and compares the values with those of the C compiler.

/// `RDMA_OPTION_ID`: the options of an id (rdma_set_option(3)).
pub(crate) const RDMA_OPTION_ID: i32 = 0;
/// `RDMA_OPTION_ID_TOS`: a `uint8_t`.
pub(crate) const RDMA_OPTION_ID_TOS: i32 = 0;
/// `RDMA_OPTION_ID_REUSEADDR`: an `int`.
pub(crate) const RDMA_OPTION_ID_REUSEADDR: i32 = 1;
/// `RDMA_OPTION_ID_AFONLY`: an `int`.
pub(crate) const RDMA_OPTION_ID_AFONLY: i32 = 2;
/// `RDMA_OPTION_ID_ACK_TIMEOUT`: a `uint8_t`.
pub(crate) const RDMA_OPTION_ID_ACK_TIMEOUT: i32 = 3;

/// `RAI_PASSIVE`: the result is an address to listen on (rdma_getaddrinfo(3)).
pub(crate) const RAI_PASSIVE: i32 = 1;
/// `RAI_NUMERICHOST`: the node is a numeric address, not a name.
pub(crate) const RAI_NUMERICHOST: i32 = 2;
/// `RAI_NOROUTE`: no route is looked up.
pub(crate) const RAI_NOROUTE: i32 = 4;
/// `RAI_FAMILY`: the node is an address or a name of the family `ai_family`.
pub(crate) const RAI_FAMILY: i32 = 8;

/// `EAI_SYSTEM`: the reason is in errno (getaddrinfo(3)).
pub(crate) const EAI_SYSTEM: i32 = -11;

/// The bytes behind a result that a library may fill with more fields than the bindings have. It is here for
/// `tests/layout.rs`.
pub(crate) const RESULT_ROOM: usize = 256;
