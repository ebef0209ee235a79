//! Who was wrong: the caller (`Refused`), the world (`Failure`), or the device and its driver (`Fault`).

use core::fmt;

use crate::errno::Errno;
use crate::memory::{Code, MrState, PdState, RefuseReason, RequestKind, Valid};

/// The caller asked for something that makes no sense now. Nothing has changed and the device was not asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{request} {target}: {reason}")]
pub struct Refused {
    /// What was asked.
    pub request: RequestKind,
    /// Of what, and its state, which has not changed.
    pub target: Target,
    /// Why not.
    pub reason: RefuseReason,
}

/// What a request was about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// A memory region in this state; `None` for one that is not there yet.
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
    /// The errno that the real library answers, or would if it did not crash or lie.
    #[must_use]
    pub const fn errno(&self) -> Errno {
        match self.reason {
            RefuseReason::Busy | RefuseReason::InFlight | RefuseReason::InDoubt | RefuseReason::InUse(_) => {
                Errno::EBUSY
            }
            RefuseReason::DeviceGone => Errno::EIO,
            RefuseReason::OnlyDeregister
            | RefuseReason::Gone
            | RefuseReason::NothingToChange
            | RefuseReason::UnknownFlags(_)
            | RefuseReason::NoBuffer
            | RefuseReason::Empty
            | RefuseReason::NoPd
            | RefuseReason::OtherDevice
            | RefuseReason::AccessWithoutFlag
            | RefuseReason::RemoteWithoutLocalWrite => Errno::EINVAL,
        }
    }
}

/// The request made sense, and the device could not do it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{step}{errno}; {valid}")]
pub struct Failure {
    /// What failed.
    pub step: Step,
    /// What it left in errno, or returned.
    pub errno: Errno,
    /// Which registration the device was left with. If the device has been removed, that one too can only be deregistered:
    /// the state says so.
    pub valid: Valid,
}

/// The call that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// `ibv_rereg_mr`.
    Reregister(Code),
    /// The fallback: `ibv_reg_mr` with what was to be.
    RegisterAnew,
    /// The fallback, when the new registration stood: `ibv_dereg_mr` of the old one.
    DeregisterOld,
    /// `ibv_dereg_mr`, as asked.
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

/// All that can come between a request and its success, for methods that make the calls too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Error {
    /// The caller was wrong. Nothing has changed and the device was not asked.
    #[error("refused: {0}")]
    Refused(#[from] Refused),
    /// `ibv_reg_mr` failed: nothing is registered.
    #[error("ibv_reg_mr: {0}")]
    Register(Errno),
    /// A re-registration or deregistration failed.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// `ibv_dealloc_pd` failed; the PD lives on. EBUSY: something uses it that this library does not know of.
    #[error("ibv_dealloc_pd: {0}")]
    Dealloc(Errno),
    /// The driver reported something impossible.
    #[error("fault: {0}")]
    Fault(#[from] Fault),
}

impl Error {
    /// The errno that the real library answers in this case.
    #[must_use]
    pub const fn errno(&self) -> Errno {
        match self {
            Error::Refused(refused) => refused.errno(),
            Error::Failed(failure) => failure.errno,
            Error::Register(errno) | Error::Dealloc(errno) => *errno,
            Error::Fault(_) => Errno::EIO,
        }
    }
}

/// The driver reported an outcome of a call that is not under way. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("an outcome of {outcome} for {target}")]
pub struct Fault {
    /// Of which call.
    pub outcome: RequestKind,
    /// For what.
    pub target: Target,
}
