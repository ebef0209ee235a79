//! The rules that a refused request breaks.

/// Why a request is refused: the rule that it breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum RefuseReason {
    /// Another call of this MR or PD is under way.
    #[error("a call is under way")]
    Busy,
    /// A re-registration or deregistration failed and may have left anything.
    #[error("it can only be deregistered")]
    OnlyDeregister,
    /// It has been deregistered or deallocated, or never came to be.
    #[error("it is gone")]
    Gone,
    /// The device has been removed.
    #[error("its device is gone")]
    DeviceGone,
    /// The completions of work requests that name it have not been polled. The work requests would fail, and some devices
    /// write to the memory when the completion is polled.
    #[error("work requests that name it are in flight")]
    InFlight,
    /// A re-registration with other memory has failed, and the device may know that memory. It is kept until the MR is
    /// deregistered, and there is room for one.
    #[error("memory of a re-registration that failed is kept until it is deregistered")]
    InDoubt,
    /// Memory regions, QPs or other things belong to the PD: the kernel would answer EBUSY.
    #[error("{0} things belong to it")]
    InUse(u32),
    /// `ibv_rereg_mr` without flags: the library lets it pass, and the kernel answers EINVAL.
    #[error("nothing is to be changed: no flag is set")]
    NothingToChange,
    /// The library answers `IBV_REREG_MR_ERR_INPUT`.
    #[error("flags {0:#x} are not among IBV_REREG_MR_CHANGE_TRANSLATION, _PD and _ACCESS")]
    UnknownFlags(u32),
    /// The library answers `IBV_REREG_MR_ERR_INPUT`.
    #[error("IBV_REREG_MR_CHANGE_TRANSLATION needs memory")]
    NoBuffer,
    /// Of length 0: the library answers `IBV_REREG_MR_ERR_INPUT`, a registration's driver EINVAL.
    #[error("memory of length 0 cannot be registered")]
    Empty,
    /// A provider would follow the null pointer.
    #[error("IBV_REREG_MR_CHANGE_PD needs a PD")]
    NoPd,
    /// The library does not look, and the kernel takes the number of the PD for one of the MR's device.
    #[error("the PD is of another device")]
    OtherDevice,
    /// The library answers `IBV_REREG_MR_ERR_INPUT`.
    #[error("access rights need IBV_REREG_MR_CHANGE_ACCESS")]
    AccessWithoutFlag,
    /// The kernel answers EINVAL.
    #[error("remote write and remote atomic need local write")]
    RemoteWithoutLocalWrite,
}
