//! The expected results of a re-registration, written by hand from ibv_rereg_mr(3), the stages of libibverbs and the
//! checks of the kernel. This file calls nothing of the library under test.

use cmid_proto::Errno;
use cmid_proto::memory::{Access, Code, Keys, MemoryStep, MrState, Valid, Way};

use Left::{Neither, New, Old};

/// The registration that remains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    Old,
    New,
    Neither,
}

/// A result of `ibv_rereg_mr` with errno, and which registration it leaves: with an unknown provider, and with a provider
/// that checks before it changes anything.
pub(crate) type Reply = (i32, Errno, Left, Left);

/// After a success errno is left over from something else.
pub(crate) const ERRNOS: [Errno; 7] =
    [Errno::EOPNOTSUPP, Errno::EINVAL, Errno::ENOMEM, Errno::EBUSY, Errno::ENOENT, Errno::EACCES, Errno::EIO];

/// Each documented result, and two others, with each errno.
pub(crate) fn replies() -> impl Iterator<Item = Reply> {
    [0, -1, -2, -3, -4, -5, -6, 1].into_iter().flat_map(|code| ERRNOS.map(|errno| reply(code, errno)))
}

fn reply(code: i32, errno: Errno) -> Reply {
    let (unknown, checking) = match (code, errno) {
        (0 | -3, _) => (New, New),
        (-1 | -2, _) | (-4, Errno::EOPNOTSUPP | Errno::EINVAL) => (Old, Old),
        (-4 | -5, _) => (Neither, Old),
        _ => (Neither, Neither),
    };
    (code, errno, unknown, checking)
}

pub(crate) const FLAG_TRANSLATION: u32 = 1;
pub(crate) const FLAG_PD: u32 = 2;
pub(crate) const FLAG_ACCESS: u32 = 4;

/// The outcomes of the fallback's calls: `ibv_reg_mr`, `ibv_dereg_mr` of the old one, `ibv_dereg_mr` of the new one.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fallback {
    NotWanted,
    CannotRegister,
    Succeeds,
    OldLost(Errno),
    OldKept(Errno),
    OldKeptNewStuck(Errno, Errno),
}

pub(crate) const FALLBACKS: [Fallback; 9] = [
    Fallback::NotWanted,
    Fallback::Succeeds,
    Fallback::CannotRegister,
    Fallback::OldKept(Errno::EBUSY),
    Fallback::OldKept(Errno::EINVAL),
    Fallback::OldKeptNewStuck(Errno::EBUSY, Errno::EBUSY),
    Fallback::OldKeptNewStuck(Errno::EBUSY, Errno::EIO),
    Fallback::OldLost(Errno::EIO),
    Fallback::OldLost(Errno::ENOMEM),
];

/// When the device is removed. A removal before the request is no case, because the request is then refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Removal {
    Never,
    /// While the call with this number is under way; after the last call if there are fewer.
    During(usize),
    /// After the request has ended.
    After,
}

pub(crate) const REMOVALS: [Removal; 5] =
    [Removal::Never, Removal::During(0), Removal::During(1), Removal::During(2), Removal::After];

/// One case of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) flags: u32,
    pub(crate) reply: Reply,
    pub(crate) checks_first: bool,
    pub(crate) fallback: Fallback,
    pub(crate) removal: Removal,
}

pub(crate) const BEFORE: Keys = Keys { lkey: 11, rkey: 12 };
pub(crate) const CHANGED: Keys = Keys { lkey: 21, rkey: 22 };
pub(crate) const ANEW: Keys = Keys { lkey: 31, rkey: 32 };
pub(crate) const ACCESS: Access = Access::LOCAL_WRITE.union(Access::REMOTE_WRITE);
pub(crate) const FENCED: Access = Access::LOCAL_WRITE;

/// The conditions that hold when the request has ended. PDs are "A" (before) and "B" (requested), memory is "old" and
/// "new".
#[derive(Debug, PartialEq)]
pub(crate) struct Expected {
    pub(crate) state: MrState,
    pub(crate) result: Result<Way, (MemoryStep, Errno, Valid)>,
    pub(crate) returned: Option<&'static str>,
    pub(crate) kept: &'static str,
    /// The other memory that the deregistration returns.
    pub(crate) other: Option<&'static str>,
    pub(crate) uses: [u32; 2],
    /// Keys, PD and rights of a usable region.
    pub(crate) usable: Option<(Keys, &'static str, Access)>,
    pub(crate) way: Way,
    /// The device's handles in the order of their deregistration: 1 is the first one, 2 the fallback's.
    pub(crate) handles: &'static [u8],
}

impl Case {
    fn has(self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Whether the fallback begins: only after ERR_CMD with EOPNOTSUPP, if it is enabled, and if the device is not
    /// removed.
    pub(crate) fn falls_back(self) -> bool {
        let wanted = !matches!(self.fallback, Fallback::NotWanted);
        let there = !matches!(self.removal, Removal::During(0));
        wanted && there && (self.reply.0, self.reply.1) == (-4, Errno::EOPNOTSUPP)
    }

    pub(crate) fn expected(self) -> Expected {
        let (code, errno, unknown, checking) = self.reply;
        let left = if self.checks_first { checking } else { unknown };
        let step = MemoryStep::Reregister(Code::from_raw(code));
        if !self.falls_back() {
            let result = if code == 0 { Ok(Way::InPlace) } else { Err((step, errno, valid(left))) };
            // The provider was called, so the device may have the new memory, and the new PD.
            let doubt = left == Old && !(code == -1 || code == -2 || errno == Errno::EOPNOTSUPP && code == -4);
            let expected = self.after(left, result, CHANGED, 1);
            if !doubt {
                return expected;
            }
            let other = self.has(FLAG_TRANSLATION).then_some("new");
            return Expected { returned: None, other, uses: [1, u32::from(self.has(FLAG_PD))], ..expected };
        }
        let old = MemoryStep::DeregisterOld;
        match self.fallback {
            Fallback::NotWanted => unreachable!("it falls back"),
            Fallback::CannotRegister => {
                self.after(Old, Err((MemoryStep::RegisterAnew, Errno::ENOMEM, Valid::Old)), ANEW, 1)
            }
            Fallback::Succeeds => self.after(New, Ok(Way::Anew), ANEW, 1),
            Fallback::OldKept(errno) => self.after(Old, Err((old, errno, Valid::Old)), ANEW, 1),
            Fallback::OldLost(errno) | Fallback::OldKeptNewStuck(errno, _) => {
                self.after(Neither, Err((old, errno, Valid::Neither)), ANEW, 2)
            }
        }
    }

    /// `registrations` is the number that the device has.
    fn after(
        self,
        left: Left,
        result: Result<Way, (MemoryStep, Errno, Valid)>,
        keys: Keys,
        registrations: u32,
    ) -> Expected {
        let (moves, repd, reaccess) = (self.has(FLAG_TRANSLATION), self.has(FLAG_PD), self.has(FLAG_ACCESS));
        let removed = self.removal != Removal::Never;
        let usable = match left {
            _ if removed => None,
            Neither => None,
            Old => Some((BEFORE, "A", ACCESS)),
            New => Some((keys, if repd { "B" } else { "A" }, if reaccess { FENCED } else { ACCESS })),
        };
        let in_place = left == New && result != Ok(Way::Anew);
        let handles: &[u8] = match (registrations, result) {
            (2, _) => &[2, 1],
            (_, Ok(Way::Anew)) => &[2],
            _ => &[1],
        };
        Expected {
            state: if usable.is_some() { MrState::Registered } else { MrState::Unusable },
            result,
            returned: match left {
                Old => moves.then_some("new"),
                New => moves.then_some("old"),
                Neither => None,
            },
            kept: if left == New && moves { "new" } else { "old" },
            other: (left == Neither && moves).then_some("new"),
            uses: match left {
                Old => [1, 0],
                New if repd => [0, 1],
                New => [1, 0],
                // One registration that may belong to either PD, or two that belong to one or both.
                Neither if repd => [1, 1],
                Neither => [registrations, 0],
            },
            usable,
            way: if in_place { Way::InPlace } else { Way::Anew },
            handles,
        }
    }
}

fn valid(left: Left) -> Valid {
    match left {
        Old => Valid::Old,
        New => Valid::New,
        Neither => Valid::Neither,
    }
}
