//! The steps of the data path of a program.

use serde::{Deserialize, Serialize};

/// The length of the MR of a side, in bytes.
pub const MEMORY: u8 = 64;

/// The kinds of requests of the send queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names are SendOp's")]
pub enum Operation {
    Send,
    SendImm,
    SendInvalidate,
    Write,
    WriteImm,
    Read,
    CompareSwap,
    FetchAdd,
}

/// The key of a request of the send queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Key {
    /// That of the peer's MR.
    Mr,
    /// That of the peer's window, with the address of the window's range.
    Window,
    /// A wrong one.
    Wrong,
}

/// A request of the send queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Request {
    /// What it does.
    pub operation: Operation,
    /// The first byte of its local memory.
    pub at: u8,
    /// The length of its local memory.
    pub len: u8,
    /// The first byte at the peer.
    pub to: u8,
    /// Its key. It is stale if the peer has deregistered that MR, or invalidated or deallocated that window.
    pub key: Key,
    /// Whether it is signaled.
    pub signaled: bool,
    /// Whether it waits for earlier reads and atomic operations.
    pub fenced: bool,
    /// Whether its receive notifies of solicited completions.
    pub solicited: bool,
    /// Whether its memory is in two parts, the second half first.
    pub split: bool,
}

/// A step on the data path of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum DataStep {
    /// Creates the QP and its CQs, and registers its memory.
    Attach {
        /// Whether it has an SRQ.
        shares_receives: bool,
        /// The maximum length of inline data.
        inline: u8,
    },
    /// Registers the memory again after [`DataStep::Deregister`].
    Register,
    /// Deregisters the memory, which is refused while a work request is in flight.
    Deregister,
    /// Posts a receive.
    Receive {
        /// The first byte.
        at: u8,
        /// The length.
        len: u8,
        /// Whether its memory is in two parts, the second half first.
        split: bool,
    },
    /// Posts a request to the send queue.
    Post(Request),
    /// Posts a receive of a block.
    ReceiveBlock,
    /// Posts a request of a block to the send queue. `at` has no meaning.
    PostBlock(Request),
    /// Changes the depth of the CQ of sends.
    Resize {
        /// The new depth.
        depth: u8,
    },
    /// Registers and deregisters memory that the other registration of this side shares, or did.
    Share,
    /// Posts several equal receives in one call.
    ReceiveAll {
        /// The first byte.
        at: u8,
        /// The length.
        len: u8,
        /// The number.
        count: u8,
    },
    /// Posts several equal requests to the send queue in one call.
    PostAll {
        /// Each of them.
        request: Request,
        /// The number.
        count: u8,
    },
    /// Re-registers the memory.
    Reregister {
        /// Whether the peer may read it from then on.
        read: bool,
        /// Whether the peer may write to it from then on.
        write: bool,
    },
    /// Allocates a memory window.
    AllocWindow,
    /// Deallocates it. It may be bound.
    DeallocWindow,
    /// Posts the bind of the window to a part of the memory.
    Bind {
        /// The first byte.
        at: u8,
        /// The length.
        len: u8,
        /// Whether the peer may write to it.
        write: bool,
    },
    /// Posts the bind of the window to a block, which the window has from then on.
    BindBlock {
        /// Whether the peer may write to it.
        write: bool,
    },
    /// Takes back a block that was bound.
    TakeBlock,
    /// Posts the invalidation of the window.
    Invalidate,
    /// Takes the QP off its id. Its handle stays.
    Detach,
    /// Arms both CQs.
    Arm {
        /// For solicited completions only.
        solicited: bool,
    },
    /// Takes the notifications of both CQs.
    TakeNotifications,
    /// Polls both CQs empty.
    Poll,
    /// Records the state of the QP and the contents of the memory.
    Look,
}

impl DataStep {
    /// Whether it posts a send that invalidates a key of the peer.
    #[must_use]
    pub const fn sends_invalidation(self) -> bool {
        let (DataStep::Post(request) | DataStep::PostBlock(request) | DataStep::PostAll { request, .. }) = self else {
            return false;
        };
        matches!(request.operation, Operation::SendInvalidate)
    }
}
