//! Errors by origin: the caller (`Refused`), the environment (`Failure`), the device or its driver (`Fault`).

use core::fmt;

use crate::errno::Errno;
use crate::memory::{Code, MrState, PdState, RefuseReason, RequestKind, Valid};
use crate::words::{Because, debug_in_words};

/// The request is not legal now. Nothing has changed and no call was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{request} {target}: {reason}")]
pub struct Refused {
    /// The refused request.
    pub request: RequestKind,
    /// The object of the request, and its state, which has not changed.
    pub target: Target,
    /// The rule that the request breaks.
    pub reason: RefuseReason,
}

/// The object of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// A memory region in this state; `None` for one that does not exist yet.
    Mr(Option<MrState>),
    /// A protection domain in this state.
    Pd(PdState),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Mr(None) => f.write_str("an MR"),
            Target::Mr(Some(state)) => write!(f, "an MR while {state}"),
            Target::Pd(state) => write!(f, "a PD while {state}"),
        }
    }
}

impl Refused {
    /// Returns the errno that libibverbs returns for this error. Where libibverbs would crash or report a wrong result,
    /// returns the errno that fits.
    #[must_use]
    pub const fn errno(&self) -> Errno {
        self.reason.errno()
    }
}

impl RefuseReason {
    /// Returns the errno of [`Refused::errno`].
    pub(crate) const fn errno(self) -> Errno {
        match self {
            RefuseReason::Busy
            | RefuseReason::InFlight
            | RefuseReason::WindowBound
            | RefuseReason::InDoubt
            | RefuseReason::InUse(_) => Errno::EBUSY,
            RefuseReason::DeviceGone => Errno::EIO,
            RefuseReason::OtherProcess => Errno::EACCES,
            RefuseReason::OnlyDeregister
            | RefuseReason::Gone
            | RefuseReason::NothingToChange
            | RefuseReason::UnknownFlags(_)
            | RefuseReason::NoBuffer
            | RefuseReason::Empty
            | RefuseReason::NoPd
            | RefuseReason::OtherDevice
            | RefuseReason::AccessWithoutFlag
            | RefuseReason::UnknownRights(_)
            | RefuseReason::RemoteWithoutLocalWrite => Errno::EINVAL,
        }
    }
}

/// The request was legal, and a device call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{step}{errno}; {valid}")]
pub struct Failure {
    /// The call that failed.
    pub step: Step,
    /// The errno that the call set or returned.
    pub errno: Errno,
    /// The registration that is valid at the device. After the removal of the device it can only be deregistered; see
    /// the region's state.
    pub valid: Valid,
}

/// The call that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// `ibv_rereg_mr`.
    Reregister(Code),
    /// The fallback: `ibv_reg_mr` of the new registration.
    RegisterAnew,
    /// The fallback, after the new registration succeeded: `ibv_dereg_mr` of the old one.
    DeregisterOld,
    /// `ibv_dereg_mr` of a requested deregistration.
    Deregister,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Reregister(code) => write!(f, "ibv_rereg_mr: {code}, "),
            Step::RegisterAnew => f.write_str("registering anew, ibv_reg_mr: "),
            Step::DeregisterOld => f.write_str("registered anew, ibv_dereg_mr of the old one: "),
            Step::Deregister => f.write_str("ibv_dereg_mr: "),
        }
    }
}

/// All errors of a request, for methods that also make the calls. Its text contains that of its part, so it has no
/// [source](core::error::Error::source).
#[derive(Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Error {
    /// The caller's mistake. Nothing has changed and no call was made.
    #[error("refused: {0}")]
    Refused(Refused),
    /// `ibv_reg_mr` failed: nothing is registered.
    #[error("ibv_reg_mr: {errno}{}", Because(*.cause))]
    Register {
        /// The errno of the call.
        errno: Errno,
        /// What causes this errno, if it is known.
        cause: Option<RegisterCause>,
    },
    /// A re-registration or deregistration failed.
    #[error("{0}")]
    Failed(Failure),
    /// `ibv_dealloc_pd` failed; the PD stays allocated. EBUSY: an object that this library did not create uses it.
    #[error("ibv_dealloc_pd: {0}")]
    Dealloc(Errno),
    /// The driver reported an outcome of a call that is not under way.
    #[error("fault: {0}")]
    Fault(Fault),
}

debug_in_words!(Error);

impl From<Refused> for Error {
    fn from(refused: Refused) -> Self {
        Error::Refused(refused)
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        Error::Failed(failure)
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        Error::Fault(fault)
    }
}

/// What causes an errno of `ibv_reg_mr`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterCause {
    /// The pages are above the limit on locked memory, which counts all pages that the process has locked or registered.
    /// The kernel does not look at it for a process with CAP_IPC_LOCK.
    #[error("{len} bytes, with a limit on locked memory (RLIMIT_MEMLOCK) of {limit} bytes")]
    LockLimit {
        /// The length of the memory.
        len: u64,
        /// The limit.
        limit: u64,
    },
    /// The kernel cannot pin the pages. They are not mapped, they are mapped read-only and the device is to write to them,
    /// or they belong to a file whose file system does not let a device write to its pages.
    #[error("its pages cannot be pinned: they are not mapped, or are read-only, or belong to a file")]
    NotPinnable,
    /// The buffer is read-only, and the rights let the device write to it.
    #[error("the buffer is read-only, and the rights let the device write to it")]
    ReadOnly,
}

debug_in_words!(RegisterCause);

impl Error {
    /// Returns the error of `ibv_reg_mr` for memory of this length, in a process with this limit on locked memory in bytes.
    /// `None` means no limit.
    #[must_use]
    pub const fn register(errno: Errno, len: usize, lock_limit: Option<u64>) -> Self {
        let cause = match (errno, lock_limit) {
            (Errno::ENOMEM, Some(limit)) => Some(RegisterCause::LockLimit { len: len as u64, limit }),
            (Errno::EFAULT, _) => Some(RegisterCause::NotPinnable),
            _ => None,
        };
        Error::Register { errno, cause }
    }

    /// Returns the errno that libibverbs returns for this error.
    #[must_use]
    pub const fn errno(&self) -> Errno {
        match self {
            Error::Refused(refused) => refused.errno(),
            Error::Failed(failure) => failure.errno,
            Error::Register { errno, .. } | Error::Dealloc(errno) => *errno,
            Error::Fault(_) => Errno::EIO,
        }
    }
}

/// The driver reported an outcome of a call that is not under way. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("an outcome of {outcome} for {target}")]
pub struct Fault {
    /// The call.
    pub outcome: RequestKind,
    /// The object of the call.
    pub target: Target,
}
