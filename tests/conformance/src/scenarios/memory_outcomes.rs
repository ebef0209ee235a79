//! Failing re-registrations and deregistrations, and which registration is valid then: behaviours 94 to 98, 107, 124
//! and 126.

use cmid_harness::failure::same;
use cmid_harness::fixture::{MrOf, PdOf, Side};
use cmid_harness::{Check, Env, Failure, Fixture, MemoryFault, TestMr};
use cmid_proto::datapath::{MemoryRegion, ProtectionDomain, Remote, WcStatus};
use cmid_proto::memory::{
    Change, Code, MemoryError, MemoryReason, MemoryStep, MrState, PdState, Policy, Provider, Valid, Way,
};
use cmid_proto::{Errno, ErrorWith};

use super::memory::{
    LEN, READABLE, bytes, contents, deregister, failed, fields, refused, register, unused, used, users_are,
};

/// A region of the server in the first PD, and the result of a re-registration with this fault to the second PD and
/// to other memory.
struct Tried<L: Env> {
    old: PdOf<L>,
    new: PdOf<L>,
    mr: MrOf<L>,
    before: super::memory::Fields,
    there: Remote,
    ended: (Result<Way, MemoryError>, Option<Vec<u8>>),
}

impl<L: Env> Tried<L> {
    fn with(b: &mut Fixture<'_, L>, fault: MemoryFault, provider: Provider) -> Check<Self> {
        let (old, new) = (b.pd(Side::Server)?, b.pd(Side::Server)?);
        let mut mr = register(&old, bytes(1), READABLE)?;
        let (before, there) = (fields(&mr), mr.remote(0));
        b.env.fail_next(fault)?;
        let wanted = Change::default().to_buffer(bytes(2)).to_pd(new.clone());
        let ended = mr.reregister_vec(wanted, Policy { provider, ..Policy::default() });
        Ok(Tried { old, new, mr, before, there, ended })
    }

    /// Checks that the old registration is fully usable. The new buffer is returned, unless the device may use it: then
    /// it is returned, and the use of the new PD ends, when nothing is registered any more. Another one is refused
    /// until then.
    fn old_is_valid(self, b: &mut Fixture<'_, L>, what: &str, code: Code, errno: Errno) -> Check {
        let Tried { old, new, mut mr, before, there, ended } = self;
        failed(what, ended.0, MemoryStep::Reregister(code), errno, Valid::Old)?;
        let kept = code == Code::Cmd;
        same(what, ended.1, (!kept).then(|| bytes(2)))?;
        if kept {
            let (again, back) = mr.reregister_vec(Change::default().to_buffer(bytes(3)), Policy::default());
            refused(what, again, MemoryReason::InDoubt)?;
            same(what, back, Some(bytes(3)))?;
        }
        same(what, fields(&mr), before)?;
        same(what, (old.users(), new.users()), (1, u32::from(kept)))?;
        same(what, b.peer_reads(&old, there, LEN)?, Ok(bytes(1)))?;
        let returned = mr.deregister_vec()?;
        same(what, (returned.buffer, returned.other), (bytes(1), kept.then(|| bytes(2))))
    }

    /// Checks that neither registration is usable: all is kept until the only legal operation has been done, once.
    fn neither_is_valid(self, b: &mut Fixture<'_, L>, what: &str, code: Code) -> Check {
        let Tried { old, new, mut mr, there, ended, .. } = self;
        match ended {
            (Err(MemoryError::Failed(failed)), None)
                if (failed.step, failed.valid) == (MemoryStep::Reregister(code), Valid::Neither) => {}
            other => return Err(Failure(format!("{what}: {other:?}, expected {code} and that neither is valid"))),
        }
        same(what, (mr.state(), mr.access(), mr.pd().is_some()), (MrState::Unusable, None, false))?;
        for pd in [&old, &new] {
            refused(what, pd.dealloc(), MemoryReason::InUse(1))?;
        }
        let (again, back) = mr.reregister_vec(Change::default().to_access(READABLE), Policy::default());
        refused(what, again, MemoryReason::OnlyDeregister)?;
        same(what, back, None)?;
        let status = b.peer_reads(&old, there, LEN)?;
        same(what, status, Err(WcStatus::REM_ACCESS_ERR))?;
        let returned = mr.deregister_vec()?;
        same(what, (returned.buffer, returned.other), (bytes(1), Some(bytes(2))))
    }
}

pub(super) fn behaviour_94_new_memory_that_cannot_be_kept_from_children<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    b.listen()?;
    let tried = Tried::with(b, MemoryFault::DontForkNew, Provider::Unknown)?;
    tried.old_is_valid(b, "DONT_FORK_NEW", Code::DontForkNew, Errno::ENOMEM)
}

/// An error, although the new registration is valid: the fields are the new ones, and the old buffer is returned.
pub(super) fn behaviour_98_old_memory_that_cannot_be_given_back_to_children<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let Tried { old, new, mr, there, ended, .. } = Tried::with(b, MemoryFault::DoForkOld, Provider::Unknown)?;
    failed("DO_FORK_OLD", ended.0, MemoryStep::Reregister(Code::DoForkOld), Errno::ENOMEM, Valid::New)?;
    same("the old memory", ended.1, Some(bytes(1)))?;
    same("the MR", (mr.state(), mr.addr() != there.addr), (MrState::Registered, true))?;
    same("what it holds", contents(&mr)?, bytes(2))?;
    users_are("users", (&old, &new), (0, 1))?;
    unused(&old)?;
    same("a peer's read", b.peer_reads(&new, mr.remote(0), LEN)?, Ok(bytes(2)))?;
    same("what comes back", deregister(mr)?, bytes(2))
}

/// ERR_CMD covers every error of the kernel. EINVAL, a refusal by the kernel, leaves the old registration valid. So
/// does any other errno if the provider is known to check first.
pub(super) fn behaviour_95_refused_before_anything_was_touched<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    b.listen()?;
    let tried = Tried::with(b, MemoryFault::Untouched(Errno::EINVAL), Provider::Unknown)?;
    tried.old_is_valid(b, "EINVAL", Code::Cmd, Errno::EINVAL)?;
    for errno in [Errno::ENOMEM, Errno::ENOENT, Errno::EBUSY] {
        let tried = Tried::with(b, MemoryFault::Untouched(errno), Provider::ChecksFirst)?;
        tried.old_is_valid(b, "checks first", Code::Cmd, errno)?;
    }
    Ok(())
}

pub(super) fn behaviour_95_a_driver_that_has_lost_the_registration<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    b.listen()?;
    for errno in [Errno::ENOMEM, Errno::EIO] {
        let tried = Tried::with(b, MemoryFault::Lost(errno), Provider::Unknown)?;
        tried.neither_is_valid(b, "ERR_CMD", Code::Cmd)?;
    }
    Ok(())
}

/// The kernel counts the rest of the MR for the new PD, and decrements that count. The old PD stays in use for ever,
/// and its deallocation fails with EBUSY.
pub(super) fn behaviour_124_a_driver_that_has_switched_the_pd<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let fault = MemoryFault::LostAndPdSwitched(Errno::ENOMEM);
    let Tried { old, new, mr, ended, .. } = Tried::with(b, fault, Provider::Unknown)?;
    same("errno", ended.0.map_err(|error| error.errno()), Err(Errno::ENOMEM))?;
    let returned = mr.deregister_vec()?;
    same("both buffers", (returned.buffer, returned.other), (bytes(1), Some(bytes(2))))?;
    same("users", (old.users(), new.users()), (0, 0))?;
    same("the old PD", old.dealloc(), Err(MemoryError::Dealloc(Errno::EBUSY)))?;
    b.pds.clear();
    same("lives on", old.state(), PdState::Live)
}

pub(super) fn behaviour_96_and_the_advice_cannot_be_undone<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    b.listen()?;
    let tried = Tried::with(b, MemoryFault::LostAndDoForkNew(Errno::ENOMEM), Provider::Unknown)?;
    tried.neither_is_valid(b, "ERR_CMD_AND_DO_FORK_NEW", Code::CmdAndDoForkNew)
}

pub(super) fn a_code_that_is_not_documented<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    b.listen()?;
    let tried = Tried::with(b, MemoryFault::Undocumented, Provider::ChecksFirst)?;
    let code = match &tried.ended.0 {
        Err(MemoryError::Failed(failed)) => failed.step,
        other => return Err(Failure(format!("{other:?}, expected a failure"))),
    };
    let MemoryStep::Reregister(code @ Code::Unknown(_)) = code else { return Err(Failure(format!("{code:?}"))) };
    tried.neither_is_valid(b, "undocumented", code)
}

/// A refused deregistration has no effect. After another failure it can only be retried. Each registration is
/// deregistered once.
pub(super) fn behaviour_126_a_deregistration_that_fails<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let pd = b.pd(Side::Server)?;
    let mr = register(&pd, bytes(1), READABLE)?;
    let before = fields(&mr);
    b.env.fail_next(MemoryFault::Deregister(Errno::EBUSY))?;
    let Err(ErrorWith { given: mr, error }) = mr.deregister_vec() else {
        return Err(Failure("EBUSY: deregistered".into()));
    };
    failed::<()>("EBUSY", Err(error), MemoryStep::Deregister, Errno::EBUSY, Valid::Old)?;
    same("the MR", fields(&mr), before)?;
    same("a peer's read", b.peer_reads(&pd, mr.remote(0), LEN)?, Ok(bytes(1)))?;
    b.env.fail_next(MemoryFault::Deregister(Errno::EIO))?;
    let Err(ErrorWith { given: mr, error }) = mr.deregister_vec() else {
        return Err(Failure("EIO: deregistered".into()));
    };
    failed::<()>("EIO", Err(error), MemoryStep::Deregister, Errno::EIO, Valid::Neither)?;
    same("the MR", mr.state(), MrState::Unusable)?;
    used("users", &pd, 1)?;
    same("what comes back", deregister(mr)?, bytes(1))
}
