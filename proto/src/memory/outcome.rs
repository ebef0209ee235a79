//! What calls return, and which registration is valid afterwards.

use core::fmt;

use crate::errno::Errno;
use crate::memory::Keys;

/// What a call returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome<H> {
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
    /// errno, read right after the call; without meaning if the code is 0.
    pub errno: Errno,
    /// The keys that the MR has now.
    pub keys: Keys,
}

/// The return values of `ibv_rereg_mr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    /// 0.
    Done,
    /// `IBV_REREG_MR_ERR_INPUT`: the library rejected the arguments.
    Input,
    /// `IBV_REREG_MR_ERR_DONT_FORK_NEW`: the new memory could not be kept from children of a fork.
    DontForkNew,
    /// `IBV_REREG_MR_ERR_DO_FORK_OLD`: the change was made, but the old memory could not be given back to children of
    /// a fork.
    DoForkOld,
    /// `IBV_REREG_MR_ERR_CMD`: the provider, the kernel or the device failed.
    Cmd,
    /// `IBV_REREG_MR_ERR_CMD_AND_DO_FORK_NEW`: as `Cmd`, and the new memory stays kept from children of a fork.
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

/// What is known of the provider and the kernel's driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Provider {
    /// Nothing is known. The drivers of mlx4, hns and irdma first take the MR out of the hardware; if they fail after
    /// that, the MR is lost.
    #[default]
    Unknown,
    /// It checks everything before it changes anything: a failure leaves the old registration valid. Example: rxe.
    ChecksFirst,
}

/// Which registration can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Valid {
    /// The one from before the call.
    Old,
    /// The requested one.
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
/// By the manual the MR is unusable after every ERR_CMD. But that code covers all errors of the provider and the
/// kernel, including refusals before any change: by a provider without the operation (EOPNOTSUPP), or by the kernel
/// (EINVAL). After ERR_CMD_AND_DO_FORK_NEW errno may be that of the failed `madvise`, so it is not used.
#[must_use]
pub const fn valid_after(code: Code, errno: Errno, provider: Provider) -> Valid {
    match (code, provider) {
        (Code::Done | Code::DoForkOld, _) => Valid::New,
        (Code::Input | Code::DontForkNew, _) | (Code::Cmd | Code::CmdAndDoForkNew, Provider::ChecksFirst) => Valid::Old,
        (Code::Cmd, Provider::Unknown) if refuses(errno) => Valid::Old,
        (Code::Cmd | Code::CmdAndDoForkNew, Provider::Unknown) | (Code::Unknown(_), _) => Valid::Neither,
    }
}

/// Whether the device may know the new memory although the old registration is taken to be valid. It may if the call
/// reached a provider that has the operation. mlx4 returns EINVAL when the hardware has the new pages and rejects the
/// rest (`mlx4_SYNC_TPT`). [`Provider`] does not count here: memory that a device may write to must not be freed
/// because of an application's claim.
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
