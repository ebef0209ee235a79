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

/// The bytes behind a result that a library may fill with more fields than the bindings have. It is here for
/// `tests/layout.rs`.
pub(crate) const RESULT_ROOM: usize = 256;
