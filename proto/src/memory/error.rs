//! Errors by origin: the caller (`MemoryRefused`), the environment (`MemoryFailure`), the device or its driver (`MemoryFault`).

use core::fmt;

use crate::errno::Errno;
use crate::memory::{Code, MemoryReason, MemoryRequest, MrState, PdState, Valid};
use crate::words::{Because, converts, debug_in_words};

/// The request is not legal now. Nothing has changed and no call was made.
#[derive(Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{request} {target}: {reason}")]
pub struct MemoryRefused {
    /// The refused request.
    pub request: MemoryRequest,
    /// The object of the request, and its state, which has not changed.
    pub target: MemoryTarget,
    /// The rule that the request breaks.
    pub reason: MemoryReason,
}

/// The object of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemoryTarget {
    /// A memory region in this state; `None` for one that does not exist yet.
    Mr(Option<MrState>),
    /// A protection domain in this state.
    Pd(PdState),
}

impl fmt::Display for MemoryTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MemoryTarget::Mr(None) => f.write_str("an MR"),
            MemoryTarget::Mr(Some(state)) => write!(f, "an MR while {state}"),
            MemoryTarget::Pd(state) => write!(f, "a PD while {state}"),
        }
    }
}

impl MemoryRefused {
    /// Creates the refusal of a registration: the MR does not exist yet.
    #[must_use]
    pub const fn register(reason: MemoryReason) -> Self {
        MemoryRefused { request: MemoryRequest::Register, target: MemoryTarget::Mr(None), reason }
    }

    /// Returns the errno that libibverbs returns for this error. Where libibverbs would crash or report a wrong result,
    /// returns the errno that fits.
    #[must_use]
    pub const fn errno(&self) -> Errno {
        self.reason.errno()
    }
}

impl MemoryReason {
    /// Returns the errno of [`MemoryRefused::errno`].
    pub(crate) const fn errno(self) -> Errno {
        match self {
            MemoryReason::Busy
            | MemoryReason::InFlight
            | MemoryReason::WindowBound
            | MemoryReason::InDoubt
            | MemoryReason::InUse(_) => Errno::EBUSY,
            MemoryReason::DeviceGone => Errno::EIO,
            MemoryReason::NoMemory(_) => Errno::ENOMEM,
            MemoryReason::OtherProcess => Errno::EACCES,
            MemoryReason::OnlyDeregister
            | MemoryReason::Gone
            | MemoryReason::NothingToChange
            | MemoryReason::Empty
            | MemoryReason::OtherDevice
            | MemoryReason::UnknownRights(_)
            | MemoryReason::NoBlock
            | MemoryReason::PeersWriteToPool
            | MemoryReason::SharedPool
            | MemoryReason::RemoteWithoutLocalWrite => Errno::EINVAL,
        }
    }
}

/// The request was legal, and a device call failed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{step}{errno}; {valid}")]
pub struct MemoryFailure {
    /// The call that failed.
    pub step: MemoryStep,
    /// The errno that the call set or returned.
    pub errno: Errno,
    /// The registration that is valid at the device. After the removal of the device it can only be deregistered; see
    /// the region's state.
    pub valid: Valid,
}

/// The call that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemoryStep {
    /// `ibv_rereg_mr`.
    Reregister(Code),
    /// The fallback: `ibv_reg_mr` of the new registration.
    RegisterAnew,
    /// The fallback, after the new registration succeeded: `ibv_dereg_mr` of the old one.
    DeregisterOld,
    /// `ibv_dereg_mr` of a requested deregistration.
    Deregister,
}

impl fmt::Display for MemoryStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MemoryStep::Reregister(code) => write!(f, "ibv_rereg_mr: {code}, "),
            MemoryStep::RegisterAnew => f.write_str("registering anew, ibv_reg_mr: "),
            MemoryStep::DeregisterOld => f.write_str("registered anew, ibv_dereg_mr of the old one: "),
            MemoryStep::Deregister => f.write_str("ibv_dereg_mr: "),
        }
    }
}

/// All errors of a request, for methods that also make the calls. Its text contains that of its part, so it has no
/// [source](core::error::Error::source).
#[derive(Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum MemoryError {
    /// The caller's mistake. Nothing has changed and no call was made.
    #[error("refused: {0}")]
    Refused(MemoryRefused),
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
    Failed(MemoryFailure),
    /// `ibv_dealloc_pd` failed; the PD stays allocated. EBUSY: an object that this library did not create uses it.
    #[error("ibv_dealloc_pd: {0}")]
    Dealloc(Errno),
    /// The driver reported an outcome of a call that is not under way.
    #[error("fault: {0}")]
    Fault(MemoryFault),
}

debug_in_words!(MemoryError, MemoryFailure, MemoryFault, MemoryReason, MemoryRefused);

converts! {
    MemoryRefused => MemoryError: MemoryError::Refused;
    MemoryFailure => MemoryError: MemoryError::Failed;
    MemoryFault => MemoryError: MemoryError::Fault;
    MemoryError => Errno: |error: MemoryError| error.errno();
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

impl MemoryError {
    /// Returns the error of `ibv_reg_mr` for memory of this length, in a process with this limit on locked memory in bytes.
    /// `None` means no limit.
    #[must_use]
    pub const fn register(errno: Errno, len: usize, lock_limit: Option<u64>) -> Self {
        let cause = match (errno, lock_limit) {
            (Errno::ENOMEM, Some(limit)) => Some(RegisterCause::LockLimit { len: len as u64, limit }),
            (Errno::EFAULT, _) => Some(RegisterCause::NotPinnable),
            _ => None,
        };
        MemoryError::Register { errno, cause }
    }

    /// Returns the errno that libibverbs returns for this error.
    #[must_use]
    pub const fn errno(&self) -> Errno {
        match self {
            MemoryError::Refused(refused) => refused.errno(),
            MemoryError::Failed(failure) => failure.errno,
            MemoryError::Register { errno, .. } | MemoryError::Dealloc(errno) => *errno,
            MemoryError::Fault(_) => Errno::EIO,
        }
    }
}

/// The driver reported an outcome of a call that is not under way. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[error("an outcome of {outcome} for {target}")]
pub struct MemoryFault {
    /// The call.
    pub outcome: MemoryRequest,
    /// The object of the call.
    pub target: MemoryTarget,
}
