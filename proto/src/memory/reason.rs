//! The reasons for refusals.

/// The rule that a refused request breaks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryReason {
    /// Another call of this MR or PD is under way.
    #[error("a call is under way")]
    Busy,
    /// A re-registration or deregistration failed, and the state of the registration is unknown.
    #[error("it can only be deregistered")]
    OnlyDeregister,
    /// The MR or PD has been deregistered or deallocated, or its creation failed.
    #[error("it is gone")]
    Gone,
    /// The device has been removed.
    #[error("its device is gone")]
    DeviceGone,
    /// The MR or PD was made before a fork(2), by the parent of this process. Commands of this process would end or
    /// change the parent's.
    #[error("it belongs to the parent process")]
    OtherProcess,
    /// Work requests that name the MR have completions that are not polled yet. The work requests would fail, and
    /// some devices write to the memory when the completion is polled.
    #[error("work requests that name it are in flight")]
    InFlight,
    /// A peer may access the MR through a window, whatever the rights of the MR. Some devices refuse to deregister the
    /// MR, and others do not.
    #[error(
        "a memory window is bound to it, or may be: invalidate the window and poll its completion, or deallocate it"
    )]
    WindowBound,
    /// A re-registration with new memory or a new PD has failed, and the device may have a record of them. The MR keeps
    /// them until it is deregistered, and can keep only one such buffer and one such PD.
    #[error("the MR keeps memory or a PD of a re-registration that failed: deregister the MR")]
    InDoubt,
    /// Memory regions, QPs or other objects belong to the PD: the kernel would return EBUSY.
    #[error("objects use it: {0}")]
    InUse(u32),
    /// `ibv_rereg_mr` without flags: the library accepts it, and the kernel returns EINVAL.
    #[error("no flag is set: there is nothing to change")]
    NothingToChange,
    /// The length is 0: `ibv_rereg_mr` returns `IBV_REREG_MR_ERR_INPUT`, and the kernel's driver returns EINVAL to
    /// `ibv_reg_mr`.
    #[error("memory of length 0 cannot be registered")]
    Empty,
    /// The process cannot have so many bytes of memory ([`zeros`](crate::datapath::zeros), and the blocks of a pool).
    #[error("{0} bytes cannot be allocated")]
    NoMemory(usize),
    /// A pool without a block: the memory is shorter than one, or the length of a block is 0 or too large for a range.
    #[error("the memory has no room for a block, or the length of a block is 0 or above 4294967294")]
    NoBlock,
    /// A pool whose blocks peers could write to while their owners have them.
    #[error("peers cannot get a right to write to a pool: its blocks have owners")]
    PeersWriteToPool,
    /// A pool of memory that is shared: other registrations could write to its blocks.
    #[error("the memory of a pool cannot be shared: its blocks have owners")]
    SharedPool,
    /// The library does not check this, and the kernel looks up the number of the PD on the device of the MR.
    #[error(
        "the PD is of another device, or of this one as opened another time: use one of this device or of a sibling"
    )]
    OtherDevice,
    /// Access rights that are not among those of [`Access`](crate::memory::Access), as bits. Some kernels refuse them,
    /// others ignore them.
    #[error("there are no access rights {0:#x}")]
    UnknownRights(u32),
    /// The kernel returns EINVAL.
    #[error("remote write and remote atomic need local write")]
    RemoteWithoutLocalWrite,
}
