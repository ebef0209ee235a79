//! The faults that calls about memory can be made to have.

use std::collections::VecDeque;

use cmid_proto::Errno;

/// What a driver leaves behind that fails after it has begun to change a registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Left {
    /// The old registration: nothing was touched, or it was put back.
    Old,
    /// The new one, though the kernel's books say the old PD.
    New,
    /// None: the hardware let go of the old registration and never got the new one (mlx4, hns, irdma).
    Neither,
    /// None, and the kernel takes the MR for one of the new PD, which it has not counted: deregistering it takes from
    /// the new PD's count what the old one has (irdma).
    NeitherAndPdSwitched,
}

/// How an `ibv_rereg_mr` fails. A fault waits for the first call that gets to its stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReregFault {
    /// `IBV_REREG_MR_ERR_DONT_FORK_NEW`: the new memory cannot be kept from children of a fork. Needs
    /// [`Config::fork`](crate::Config::fork) and another translation.
    DontForkNew(Errno),
    /// `IBV_REREG_MR_ERR_DO_FORK_OLD`: it is done, but the old memory cannot be given back to children of a fork. Needs
    /// what [`ReregFault::DontForkNew`] needs.
    DoForkOld(Errno),
    /// `IBV_REREG_MR_ERR_CMD`: the driver fails, and leaves this. Needs a provider that can re-register
    /// ([`Config::rereg`](crate::Config::rereg)) and arguments that pass the kernel's checks.
    Cmd {
        /// What is in errno then.
        errno: Errno,
        /// What the device has then.
        left: Left,
    },
    /// `IBV_REREG_MR_ERR_CMD_AND_DO_FORK_NEW`: the driver fails, and the new memory stays kept from children of a fork.
    /// Needs what the others need.
    CmdAndDoForkNew {
        /// What is in errno then, which is the failed advice's.
        errno: Errno,
        /// What the device has then.
        left: Left,
    },
    /// The driver fails, and the library returns a value that is not documented. Needs what [`ReregFault::Cmd`] needs.
    Undocumented {
        /// The value.
        code: i32,
        /// What is in errno then.
        errno: Errno,
        /// What the device has then.
        left: Left,
    },
}

/// The faults that wait for their calls.
#[derive(Debug, Default)]
pub(crate) struct MemoryFaults {
    pub(crate) register: VecDeque<Errno>,
    pub(crate) deregister: VecDeque<Errno>,
    pub(crate) reregister: VecDeque<ReregFault>,
}

impl MemoryFaults {
    /// Takes the next fault of a re-registration if `wanted` recognises it.
    pub(crate) fn take_reregister<T>(&mut self, wanted: impl FnOnce(ReregFault) -> Option<T>) -> Option<T> {
        let found = wanted(*self.reregister.front()?)?;
        self.reregister.pop_front();
        Some(found)
    }
}
