//! The errors of posts: the call, the queue, and the reason.

use core::fmt;

use super::{Access, MESSAGE_MAX, QpState};
use crate::columns::columns;
use crate::errno::Errno;
use crate::transport::Transport;
use crate::words::{converts, debug_in_words};

/// A work request was not posted. `Result<(), PostError>` has 16 bytes.
///
/// Nothing is queued, and no memory is pinned, unless the reason is [`PostReason::Device`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{} on {} {}: {reason}", self.call(), self.call().queue(), self.num())]
pub struct PostError {
    /// The call in the upper 8 bits, and the number in the others: numbers of QPs have 24 bits.
    queue: u32,
    reason: PostReason,
}

static_assertions::const_assert!(size_of::<Result<(), PostError>>() <= 16);

impl PostError {
    /// Creates the error of a call on the QP or SRQ of this number.
    #[must_use]
    pub const fn new(call: PostCall, num: u32, reason: PostReason) -> Self {
        PostError { queue: (call as u32) << 24 | num & 0xff_ffff, reason }
    }

    /// Returns the call.
    #[must_use]
    pub const fn call(&self) -> PostCall {
        PostCall::ALL[(self.queue >> 24) as usize]
    }

    /// Returns the number of the QP or SRQ; of an SRQ's number the lower 24 bits.
    #[must_use]
    pub const fn num(&self) -> u32 {
        self.queue & 0xff_ffff
    }

    /// Returns the reason.
    #[must_use]
    pub const fn reason(&self) -> PostReason {
        self.reason
    }

    /// Returns the errno that libibverbs returns for it, or the one that fits.
    #[must_use]
    pub const fn errno(&self) -> Errno {
        self.reason.errno()
    }
}

columns! {
    /// A call that posts a work request.
    #[repr(u8)]
    pub enum PostCall {
        /// [`QueuePair::post_send`](super::QueuePair::post_send) or `post_sends`.
        Send = "post_send",
        /// [`QueuePair::post_recv`](super::QueuePair::post_recv) or `post_recvs`.
        Recv = "post_recv",
        /// [`QueuePair::post_bind`](super::QueuePair::post_bind).
        Bind = "post_bind",
        /// [`QueuePair::post_invalidate`](super::QueuePair::post_invalidate).
        Invalidate = "post_invalidate",
        /// [`SharedReceiveQueue::post_recv`](super::SharedReceiveQueue::post_recv) or `post_recvs`.
        SrqRecv = "post_recv",
    }
}

impl PostCall {
    /// Returns the kind of the queue.
    const fn queue(self) -> &'static str {
        match self {
            PostCall::Send | PostCall::Recv | PostCall::Bind | PostCall::Invalidate => "QP",
            PostCall::SrqRecv => "SRQ",
        }
    }
}

/// The reason why a work request was not posted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum PostReason {
    /// The QP does not send yet. Soft-RoCE and soft-iWARP would queue the request, report an error, and execute it
    /// later.
    #[error("the QP is in {0}, and sends from RTS on")]
    TooEarly(QpState),
    /// A range ends beyond its MR.
    #[error("a range ends beyond its MR of {len} bytes")]
    OutOfRange {
        /// The length of the MR.
        len: Length,
    },
    /// A range ends before it begins.
    #[error("a range ends before it begins")]
    ReversedRange,
    /// The ranges have more bytes than a work request may have.
    #[error("ranges of {len} bytes, more than the maximum of {MESSAGE_MAX}")]
    RangesTooLong {
        /// The length of one of them, or their sum.
        len: Length,
    },
    /// The device would write to memory without [`Access::LOCAL_WRITE`].
    #[error("the MR is read-only: it is registered without LOCAL_WRITE")]
    ReadOnly,
    /// The MR has no valid registration.
    #[error("the MR is not registered")]
    NotRegistered,
    /// An object of another PD than that of the queue, perhaps of another device. Work in flight would not pin it.
    #[error("{0} is of another PD, or of another device")]
    OtherPd(OfPd),
    /// More non-empty ranges than the queue permits.
    #[error("{ranges} ranges, more than the queue's maximum of {max}")]
    TooManyRanges {
        /// The number of ranges that are not empty.
        ranges: u32,
        /// [`Caps::max_send_sge`](super::Caps::max_send_sge), or that of receives.
        max: u32,
    },
    /// The queue has no room: the completions of as many requests as it holds have not been polled.
    #[error("the queue is full: it holds {max} requests, each until its completion is polled")]
    QueueFull {
        /// The capacity that was requested.
        max: u32,
    },
    /// Immediate data, an atomic operation or an empty read on iWARP.
    #[error("{0} has no such operation")]
    NotOfTransport(Transport),
    /// A datagram, on a connected QP.
    #[error("a connected QP sends no datagrams")]
    IsConnected,
    /// Something else than a datagram, on a datagram QP.
    #[error("a datagram QP sends only datagrams")]
    IsDatagram,
    /// The peer answers no reads and atomic operations. Soft-RoCE would wait for ever.
    #[error("the peer answers no reads and atomic operations: its responder_resources are 0")]
    NoReads,
    /// The device has refused an earlier request of the send queue ([`PostReason::Device`]), and it is not known to be over:
    /// soft-iWARP's library would queue this one behind it, return success, and never ring the doorbell. Destroy the QP.
    #[error("the device has refused an earlier request, and may execute none behind it: destroy the QP")]
    Stuck,
    /// An atomic operation into more or fewer than 8 bytes, or on an address that is not a multiple of 8.
    #[error("an atomic operation needs 8 bytes, and an address of the peer that is a multiple of 8")]
    BadAtomic,
    /// An atomic operation, and the device has none ([`DeviceAttrs::atomics`](super::DeviceAttrs::atomics)).
    #[error("the device has no atomic operations")]
    NoAtomics,
    /// The QP takes its receives from a shared receive queue.
    #[error("the QP takes its receives from an SRQ: post them there")]
    HasSrq,
    /// A batch without work requests.
    #[error("the batch is empty")]
    EmptyBatch,
    /// The MR lacks a right that a bind needs.
    #[error("the bind needs an MR with {}", Rights(*.0))]
    LacksRight(Access),
    /// The bind gives other rights than the three of a peer.
    #[error("a window has no other rights than those of a peer, and {} are given", Rights(*.0))]
    NotOfWindow(Access),
    /// The window is not bound by this QP, as far as is known.
    #[error("the window is not bound by this QP, or is invalidated")]
    NotBound,
    /// As many binds of the window may still count as are recorded ([`Bindings::BINDS_MAX`](crate::memory::Bindings::BINDS_MAX)),
    /// because they have failed or it was not invalidated; or as many invalidations of a failed QP. Deallocate the window, or
    /// destroy the QP.
    #[error(
        "too many binds of the window, or invalidations of the QP, have failed: deallocate the window, or destroy the QP"
    )]
    TooManyBinds,
    /// A datagram that does not fit into one packet. Devices would complete it with success, and send nothing (IBA C10-93.1.1).
    #[error("a datagram of {len} bytes, more than the MTU of {mtu}")]
    DatagramTooLong {
        /// The length.
        len: u32,
        /// The active MTU of the port.
        mtu: u32,
    },
    /// A request that writes to a block which other requests send (`Arc<Block>`).
    #[error("the request would write to a block that other requests may send")]
    SharedBlock,
    /// As many requests as the queue holds have blocks, in flight or complete: poll, and reclaim those that are complete.
    #[error(
        "the queue is full: it holds {max} requests with blocks, each until its completion is polled and reclaimed"
    )]
    NotReclaimed {
        /// The capacity that was requested.
        max: u32,
    },
    /// The queue was destroyed with its device (the simulator).
    #[error("the queue is gone")]
    Gone,
    /// The state of the QP could not be queried, so it is not known whether the QP sends already.
    #[error("the state of the QP cannot be queried: {0}")]
    StateUnknown(Errno),
    /// The errno of the device or its library, which may have queued the request, and may execute it later. It occupies
    /// the queue and pins its memory like an unsignaled request.
    #[error("the device returned {0}, and may execute the request nevertheless")]
    Device(Errno),
}

impl PostReason {
    /// Returns the errno that libibverbs returns for it, or the one that fits.
    #[must_use]
    pub const fn errno(self) -> Errno {
        match self {
            PostReason::TooEarly(_)
            | PostReason::OutOfRange { .. }
            | PostReason::ReversedRange
            | PostReason::RangesTooLong { .. }
            | PostReason::ReadOnly
            | PostReason::NotRegistered
            | PostReason::OtherPd(_)
            | PostReason::TooManyRanges { .. }
            | PostReason::IsConnected
            | PostReason::IsDatagram
            | PostReason::NoReads
            | PostReason::BadAtomic
            | PostReason::HasSrq
            | PostReason::EmptyBatch
            | PostReason::LacksRight(_)
            | PostReason::NotOfWindow(_)
            | PostReason::NotBound
            | PostReason::SharedBlock
            | PostReason::DatagramTooLong { .. }
            | PostReason::Gone => Errno::EINVAL,
            PostReason::QueueFull { .. } | PostReason::NotReclaimed { .. } | PostReason::TooManyBinds => Errno::ENOMEM,
            PostReason::NotOfTransport(_) | PostReason::NoAtomics => Errno::EOPNOTSUPP,
            PostReason::Stuck => Errno::EIO,
            PostReason::StateUnknown(errno) | PostReason::Device(errno) => errno,
        }
    }
}

columns! {
    /// An object of a PD that a work request names.
    pub enum OfPd {
        /// A memory region.
        Mr = "the MR",
        /// An address handle.
        Ah = "the address handle",
        /// A memory window.
        Mw = "the window",
    }
}

/// A length in bytes. Its alignment of 4 keeps a [`PostError`] at 16 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(Rust, packed(4))]
pub struct Length(u64);

impl Length {
    /// Creates a length.
    #[must_use]
    pub const fn new(bytes: usize) -> Self {
        Length(bytes as u64)
    }

    /// Returns the number of bytes.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

/// Access rights in words, with the bits that have no name.
struct Rights(Access);

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        bitflags::parser::to_writer(&self.0, f)
    }
}

/// A batch of work requests was not posted, or only in part.
#[derive(Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{posted} work requests are posted, the next one is not: {error}")]
pub struct BatchError {
    /// The number of requests that are posted, from the first one on. They will complete.
    pub posted: usize,
    /// The error of the first request that is not posted; after a refusal, of the one that is refused.
    pub error: PostError,
}

impl BatchError {
    /// Returns the errno of its error.
    #[must_use]
    pub const fn errno(&self) -> Errno {
        self.error.errno()
    }
}

debug_in_words!(PostError, PostReason, BatchError, Length);

converts! {
    PostError => Errno: |error: PostError| error.errno();
    BatchError => Errno: |error: BatchError| error.errno();
}
