//! What calls return, and what that says about a registration.

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

/// What `ibv_rereg_mr` returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reply {
    /// Its value (`enum ibv_rereg_mr_err_code`).
    pub code: i32,
    /// errno, right after the call; without meaning if the code is 0.
    pub errno: Errno,
    /// The keys that the MR has now.
    pub keys: Keys,
}

/// The return values of `ibv_rereg_mr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    /// 0.
    Done,
    /// `IBV_REREG_MR_ERR_INPUT`: the library did not like the arguments.
    Input,
    /// `IBV_REREG_MR_ERR_DONT_FORK_NEW`: the new memory could not be kept from children of a fork.
    DontForkNew,
    /// `IBV_REREG_MR_ERR_DO_FORK_OLD`: it was done, but the old memory could not be given back to children of a fork.
    DoForkOld,
    /// `IBV_REREG_MR_ERR_CMD`: the provider, the kernel or the device failed.
    Cmd,
    /// `IBV_REREG_MR_ERR_CMD_AND_DO_FORK_NEW`: as before, and the new memory stays kept from children of a fork.
    CmdAndDoForkNew,
    /// A value that is not documented.
    Unknown(i32),
}

impl Code {
    /// The documented ones.
    pub const ALL: [Code; 6] =
        [Code::Done, Code::Input, Code::DontForkNew, Code::DoForkOld, Code::Cmd, Code::CmdAndDoForkNew];

    /// From the return value.
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

    /// The return value.
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
    /// Nothing. Drivers of mlx4, hns and irdma take the MR out of the hardware first; one that fails after that has lost
    /// it.
    #[default]
    Unknown,
    /// It checks everything before it changes anything: a failure leaves the old registration valid. rxe's does.
    ChecksFirst,
}

/// Which registration can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Valid {
    /// The one from before.
    Old,
    /// The one that was asked for.
    New,
    /// Neither can be relied on: deregistering is all that may be done. The device may refer to either.
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

/// Which registration a return value of `ibv_rereg_mr` leaves, with the errno that came with it (ibv_rereg_mr(3), RETURN
/// VALUE; `ib_uverbs_rereg_mr`).
///
/// The manual gives the MR up after every ERR_CMD. But that code stands for all that comes back from below, also for what
/// was refused before anything was touched: by a provider without the operation (EOPNOTSUPP), or by the kernel (EINVAL).
/// After ERR_CMD_AND_DO_FORK_NEW errno may be that of the failed advice, and tells nothing.
#[must_use]
pub const fn valid_after(code: Code, errno: Errno, provider: Provider) -> Valid {
    match (code, provider) {
        (Code::Done | Code::DoForkOld, _) => Valid::New,
        (Code::Input | Code::DontForkNew, _) | (Code::Cmd | Code::CmdAndDoForkNew, Provider::ChecksFirst) => Valid::Old,
        (Code::Cmd, Provider::Unknown) if refuses(errno) => Valid::Old,
        (Code::Cmd | Code::CmdAndDoForkNew, Provider::Unknown) | (Code::Unknown(_), _) => Valid::Neither,
    }
}

/// Whether the device can know the memory that was asked for, although the old registration is taken to be valid: if the
/// call got as far as a provider that has the operation. mlx4 answers EINVAL when the hardware has the new pages and does not take
/// the rest (`mlx4_SYNC_TPT`). What the program says of its provider does not count here: memory that a device
/// may write to must not be freed on somebody's word.
pub(crate) const fn may_know_new(code: Code, errno: Errno) -> bool {
    match code {
        Code::Input | Code::DontForkNew => false,
        Code::Cmd => !matches!(errno, Errno::EOPNOTSUPP),
        Code::Done | Code::DoForkOld | Code::CmdAndDoForkNew | Code::Unknown(_) => true,
    }
}

/// Whether a registration is as good as before after `ibv_dereg_mr` failed so: another command uses it (EBUSY), or a memory
/// window is bound to it (EINVAL; `rxe_dereg_mr`).
pub(crate) const fn survives(errno: Errno) -> bool {
    matches!(errno, Errno::EBUSY | Errno::EINVAL)
}

const fn refuses(errno: Errno) -> bool {
    matches!(errno, Errno::EOPNOTSUPP | Errno::EINVAL)
}
