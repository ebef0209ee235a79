//! The results of device calls, and the registration that is valid after each.

use core::fmt;

use crate::errno::Errno;
use crate::memory::Keys;

/// The result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemoryOutcome<H> {
    /// `ibv_reg_mr`: the device's handle of the registration, and its keys.
    Registered(Result<(H, Keys), Errno>),
    /// `ibv_rereg_mr`.
    Reregistered(Reply),
    /// `ibv_dereg_mr`.
    Deregistered(Result<(), Errno>),
}

/// The result of `ibv_rereg_mr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reply {
    /// The return value (`enum ibv_rereg_mr_err_code`).
    pub code: i32,
    /// The value of errno right after the call; without meaning if the code is 0.
    pub errno: Errno,
    /// The keys of the MR after the call.
    pub keys: Keys,
}

/// The return values of `ibv_rereg_mr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    /// 0.
    Done,
    /// `IBV_REREG_MR_ERR_INPUT`: the library rejected the arguments.
    Input,
    /// `IBV_REREG_MR_ERR_DONT_FORK_NEW`: `madvise(MADV_DONTFORK)` of the new memory failed.
    DontForkNew,
    /// `IBV_REREG_MR_ERR_DO_FORK_OLD`: the change was made, but `madvise(MADV_DOFORK)` of the old memory failed.
    DoForkOld,
    /// `IBV_REREG_MR_ERR_CMD`: the provider, the kernel or the device failed.
    Cmd,
    /// `IBV_REREG_MR_ERR_CMD_AND_DO_FORK_NEW`: as `Cmd`, and `madvise(MADV_DOFORK)` of the new memory failed.
    CmdAndDoForkNew,
    /// A value that is not documented.
    Unknown(i32),
}

impl Code {
    /// All documented values.
    pub const ALL: [Code; 6] =
        [Code::Done, Code::Input, Code::DontForkNew, Code::DoForkOld, Code::Cmd, Code::CmdAndDoForkNew];

    /// Converts the return value.
    #[must_use]
    pub const fn from_raw(value: i32) -> Code {
        match value {
            0 => Code::Done,
            -1 => Code::Input,
            -2 => Code::DontForkNew,
            -3 => Code::DoForkOld,
            -4 => Code::Cmd,
            -5 => Code::CmdAndDoForkNew,
            value => Code::Unknown(value),
        }
    }

    /// Returns the return value.
    #[must_use]
    pub const fn as_raw(self) -> i32 {
        match self {
            Code::Done => 0,
            Code::Input => -1,
            Code::DontForkNew => -2,
            Code::DoForkOld => -3,
            Code::Cmd => -4,
            Code::CmdAndDoForkNew => -5,
            Code::Unknown(value) => value,
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Code::Done => "done",
            Code::Input => "ERR_INPUT",
            Code::DontForkNew => "ERR_DONT_FORK_NEW",
            Code::DoForkOld => "ERR_DO_FORK_OLD",
            Code::Cmd => "ERR_CMD",
            Code::CmdAndDoForkNew => "ERR_CMD_AND_DO_FORK_NEW",
            Code::Unknown(value) => return write!(f, "the undocumented {value}"),
        })
    }
}

/// The order of checks and changes in the provider and the kernel's driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Provider {
    /// Unknown. The drivers of mlx4, hns and irdma first remove the MR from the hardware, and that of mlx5 revokes its key
    /// where it cannot change it in place; a later failure leaves no valid registration.
    #[default]
    Unknown,
    /// All checks precede all changes: a failure leaves the old registration valid. No provider is known to do so: the
    /// driver of rxe moves the PD before it looks at the rights (its library has no re-registration).
    ChecksFirst,
}

/// The registration that is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Valid {
    /// The registration from before the call.
    Old,
    /// The requested registration.
    New,
    /// Neither: the MR can only be deregistered. The device may refer to either.
    Neither,
}

impl fmt::Display for Valid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Valid::Old => "the old registration is valid",
            Valid::New => "the new registration is valid",
            Valid::Neither => "the MR can only be deregistered",
        })
    }
}

/// Returns which registration is valid after `ibv_rereg_mr`, from its return value and its errno (ibv_rereg_mr(3),
/// RETURN VALUE; `ib_uverbs_rereg_mr`).
///
/// According to the manual page the MR is unusable after every ERR_CMD. But ERR_CMD covers all errors of the provider
/// and the kernel, including refusals before any change: by a provider without the operation (EOPNOTSUPP), or by the
/// kernel (EINVAL). After ERR_CMD_AND_DO_FORK_NEW errno may be that of the failed `madvise`, so it is not used.
///
/// | return value | [`Provider::Unknown`] | [`Provider::ChecksFirst`] |
/// | --- | --- | --- |
/// | 0, ERR_DO_FORK_OLD | new | new |
/// | ERR_INPUT, ERR_DONT_FORK_NEW | old | old |
/// | ERR_CMD with EOPNOTSUPP or EINVAL | old | old |
/// | ERR_CMD with another errno, ERR_CMD_AND_DO_FORK_NEW | neither | old |
/// | another value | neither | neither |
#[must_use]
pub const fn valid_after(code: Code, errno: Errno, provider: Provider) -> Valid {
    match (code, provider) {
        (Code::Done | Code::DoForkOld, _) => Valid::New,
        (Code::Input | Code::DontForkNew, _) | (Code::Cmd | Code::CmdAndDoForkNew, Provider::ChecksFirst) => Valid::Old,
        (Code::Cmd, Provider::Unknown) if refuses(errno) => Valid::Old,
        (Code::Cmd | Code::CmdAndDoForkNew, Provider::Unknown) | (Code::Unknown(_), _) => Valid::Neither,
    }
}

/// Whether the device may have a record of the new memory, or of the new PD, although the old registration counts as
/// valid. It may if the call reached a provider that has the operation. Examples: mlx4 returns EINVAL if the hardware
/// has the new pages and rejects the rest (`mlx4_SYNC_TPT`); irdma stores the new PD before steps that fail with ENOMEM
/// (`irdma_rereg_user_mr`), and the end of the MR follows that pointer. [`Provider`] has no effect here: a wrong value
/// of the application must not free memory that a device may write to.
pub(crate) const fn may_know_new(code: Code, errno: Errno) -> bool {
    match code {
        Code::Input | Code::DontForkNew => false,
        Code::Cmd => !matches!(errno, Errno::EOPNOTSUPP),
        Code::Done | Code::DoForkOld | Code::CmdAndDoForkNew | Code::Unknown(_) => true,
    }
}

/// Whether a registration is still valid after `ibv_dereg_mr` failed with this errno: another command uses it
/// (EBUSY), or a memory window is bound to it (EINVAL; `rxe_dereg_mr`).
pub(crate) const fn survives(errno: Errno) -> bool {
    matches!(errno, Errno::EBUSY | Errno::EINVAL)
}

const fn refuses(errno: Errno) -> bool {
    matches!(errno, Errno::EOPNOTSUPP | Errno::EINVAL)
}
