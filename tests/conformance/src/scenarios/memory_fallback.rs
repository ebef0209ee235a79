//! The fallback where the provider cannot re-register: registering anew, on request.

use cmid_harness::failure::{ensure, same};
use cmid_harness::fixture::Side;
use cmid_harness::{Check, Env, Fixture, MemoryFault, TestMr};
use cmid_proto::Errno;
use cmid_proto::datapath::{MemoryRegion, ProtectionDomain, WcStatus};
use cmid_proto::memory::{Access, Change, Fallback, MemoryReason, MemoryStep, Policy, Valid, Way};

use super::memory::{
    LEN, READABLE, bytes, change, combinations, contents, deregister, failed, fields, refused, register, unused,
    users_are,
};

const ANEW: Policy = Policy { fallback: Fallback::Anew, provider: cmid_proto::memory::Provider::Unknown };

/// For every combination of flags: the keys change, the old ones are invalid, and the MR reports the way it was done.
pub(super) fn behaviour_100_a_fallback_registers_anew<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    for flags in combinations() {
        let what = format!("{flags:?}");
        let (old, new) = (b.pd(Side::Server)?, b.pd(Side::Server)?);
        let mut mr = register(&old, bytes(1), READABLE)?;
        let there = mr.remote(0);
        let wanted = change(flags, &bytes(2), &new, READABLE | Access::REMOTE_WRITE);
        let held = wanted.buffer.clone().unwrap_or_else(|| bytes(1));
        let (other_buffer, rights) = (wanted.buffer.is_some(), wanted.access.unwrap_or(READABLE));
        let (pd, left) = if wanted.pd.is_some() { (&new, &old) } else { (&old, &new) };
        let (result, back) = mr.reregister_vec(wanted, ANEW);
        same(&what, (result?, mr.way()), (Way::Anew, Way::Anew))?;
        same(&what, (back, mr.access()), (other_buffer.then(|| bytes(1)), Some(rights)))?;
        ensure(mr.rkey() != there.rkey, || format!("{what}: the key is still {:#x}", mr.rkey()))?;
        unused(left)?;
        refused(&what, pd.dealloc(), MemoryReason::InUse(1))?;
        same(&what, b.peer_reads(pd, there, LEN)?, Err(WcStatus::REM_ACCESS_ERR))?;
        same(&what, b.peer_reads(pd, mr.remote(0), LEN)?, Ok(held.clone()))?;
        same(&what, deregister(mr)?, held)?;
        unused(pd)?;
    }
    Ok(())
}

/// A failing registration leaves the old registration and its keys.
pub(super) fn behaviour_100_a_fallback_that_fails_leaves_the_old_one<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let (pd, new) = (b.pd(Side::Server)?, b.pd(Side::Server)?);
    let mut mr = register(&pd, bytes(1), READABLE)?;
    let before = fields(&mr);
    let wanted = Change::default().to_buffer(bytes(2)).to_pd(new.clone()).to_access(READABLE | Access::ON_DEMAND);
    let (result, back) = mr.reregister_vec(wanted, ANEW);
    // Linux 6.1 returns EINVAL.
    let is_old = std::env::var("CMID_KERNEL").is_ok_and(|kernel| kernel.starts_with("6.1."));
    let errno = if is_old { Errno::EINVAL } else { Errno::EOPNOTSUPP };
    failed("on demand", result, MemoryStep::RegisterAnew, errno, Valid::Old)?;
    same("what comes back", (back, fields(&mr)), (Some(bytes(2)), before))?;
    users_are("users", (&pd, &new), (1, 0))?;
    same("a peer's read", b.peer_reads(&pd, mr.remote(0), LEN)?, Ok(bytes(1)))?;
    unused(&new)?;
    deregister(mr).map(drop)
}

/// Each step of the fallback fails in turn.
pub(super) fn every_step_of_a_fallback_fails<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    for (fault, step, errno) in [
        (MemoryFault::Register(Errno::ENOMEM), MemoryStep::RegisterAnew, Errno::ENOMEM),
        (MemoryFault::Deregister(Errno::EBUSY), MemoryStep::DeregisterOld, Errno::EBUSY),
    ] {
        let (pd, new) = (b.pd(Side::Server)?, b.pd(Side::Server)?);
        let mut mr = register(&pd, bytes(1), READABLE)?;
        let before = fields(&mr);
        b.env.fail_next(fault)?;
        let (result, back) = mr.reregister_vec(Change::default().to_buffer(bytes(2)).to_pd(new.clone()), ANEW);
        failed("the fallback", result, step, errno, Valid::Old)?;
        same("what comes back", (back, fields(&mr)), (Some(bytes(2)), before))?;
        same("what it holds", contents(&mr)?, bytes(1))?;
        users_are("users", (&pd, &new), (1, 0))?;
        same("a peer's read", b.peer_reads(&pd, mr.remote(0), LEN)?, Ok(bytes(1)))?;
        unused(&new)?;
        deregister(mr)?;
        unused(&pd)?;
    }
    Ok(())
}
