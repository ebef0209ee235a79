//! What a slot of a ring stores of a work request besides its keys, and how a ring says that it matters.

use cmid_proto::datapath::{SendFlags, WcOpcode};

/// A bit of `retired`, inverted while a completion may need a closer look: those of the queue come out of order, or a
/// request is withdrawn. It is the lowest bit of the queue's place among the rings (rings.rs). So whatever number a
/// completion has, also one of the application's own (raw.rs), it is not compared with the `retired` that it equals then.
pub(super) const LOOK: u64 = 1 << 32;

/// The request is not in flight any more, although an earlier one is.
pub(super) const DONE: u64 = 1 << 56;
/// The provider may have it or not; see `Cursor::withdraw`.
pub(super) const WITHDRAWN: u64 = 1 << 57;
/// Its completion is for the application only if it has failed.
pub(super) const UNSIGNALED: u64 = 1 << 58;

/// The upper 16 bits of a slot's keys: the opcode of the completion, and how the request ends.
#[derive(Clone, Copy)]
pub(crate) struct Kind(pub(super) u64);

impl Kind {
    pub(crate) const RECEIVE: Kind = Kind::of(WcOpcode::RECV);

    /// A signaled request.
    pub(crate) const fn of(opcode: WcOpcode) -> Self {
        Kind((opcode.0 as u64 & 0xff) << 48)
    }

    /// A request with these flags. Only an unordered queue needs to know them, where the provider has each request as a
    /// signaled one.
    pub(crate) const fn with(self, flags: SendFlags) -> Self {
        Kind(self.0 | if flags.contains(SendFlags::SIGNALED) { 0 } else { UNSIGNALED })
    }

    pub(super) fn opcode(self) -> WcOpcode {
        WcOpcode((self.0 >> 48) as u32 & 0xff)
    }

    /// Whether it ends with an answer of the peer.
    pub(crate) fn is_answered(self) -> bool {
        matches!(self.opcode(), WcOpcode::RDMA_READ | WcOpcode::COMP_SWAP | WcOpcode::FETCH_ADD)
    }

    pub(super) fn has(self, bits: u64) -> bool {
        self.0 & bits != 0
    }
}
