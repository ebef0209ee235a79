//! Re-registrations that are not attempted, and those of a provider without support: behaviours 81 and 101.

use cmid_harness::failure::same;
use cmid_harness::fixture::Side;
use cmid_harness::{Check, Env, Fixture, TestMr};
use cmid_proto::Errno;
use cmid_proto::datapath::{MemoryRegion, ProtectionDomain};
use cmid_proto::memory::{Access, Change, Code, MemoryReason, MemoryStep, Policy, Valid};

use super::memory::{
    LEN, READABLE, bytes, change, combinations, contents, deregister, failed, fields, refused, register, unused,
    users_are,
};

/// Arguments that librdmacm or the kernel would refuse, misreport or crash on are refused before the call, and all is
/// returned.
pub(super) fn behaviour_81_what_makes_no_sense_is_refused<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let (pd, new) = (b.pd(Side::Server)?, b.pd(Side::Server)?);
    let mut mr = register(&pd, bytes(1), READABLE)?;
    let before = fields(&mr);
    for (what, change, reason) in [
        ("no flag", Change::default(), MemoryReason::NothingToChange),
        ("no memory", Change::default().to_buffer(Vec::new()).to_pd(new.clone()), MemoryReason::Empty),
        (
            "remote write alone",
            Change::default().to_access(Access::REMOTE_WRITE),
            MemoryReason::RemoteWithoutLocalWrite,
        ),
        (
            "remote atomic alone",
            Change::default().to_buffer(bytes(2)).to_access(Access::REMOTE_ATOMIC),
            MemoryReason::RemoteWithoutLocalWrite,
        ),
    ] {
        let given = change.buffer.clone();
        let (result, back) = mr.reregister_vec(change, Policy::default());
        same(what, result.as_ref().map_err(cmid_proto::memory::MemoryError::errno).err(), Some(Errno::EINVAL))?;
        refused(what, result, reason)?;
        same(what, (back, &fields(&mr)), (given, &before))?;
        users_are(what, (&pd, &new), (1, 0))?;
    }
    same("what it holds", deregister(mr)?, bytes(1))
}

/// ERR_CMD and EOPNOTSUPP, for every combination of flags: nothing has changed, and all is returned.
pub(super) fn behaviour_81_a_provider_without_it_changes_nothing<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let (pd, new) = (b.pd(Side::Server)?, b.pd(Side::Server)?);
    let mut mr = register(&pd, bytes(1), READABLE)?;
    let before = fields(&mr);
    for flags in combinations() {
        let what = format!("{flags:?}");
        let wanted = change(flags, &bytes(2), &new, Access::LOCAL_WRITE);
        let given = wanted.buffer.clone();
        let (result, back) = mr.reregister_vec(wanted, Policy::default());
        failed(&what, result, MemoryStep::Reregister(Code::Cmd), Errno::EOPNOTSUPP, Valid::Old)?;
        same(&what, (back, &fields(&mr)), (given, &before))?;
        users_are(&what, (&pd, &new), (1, 0))?;
    }
    same("what it holds", contents(&mr)?, bytes(1))?;
    same("a peer's read", b.peer_reads(&pd, mr.remote(0), LEN)?, Ok(bytes(1)))?;
    refused("dealloc", pd.dealloc(), MemoryReason::InUse(1))?;
    unused(&new)?;
    deregister(mr).map(drop)
}

/// libibverbs would accept the other device's PD, and the kernel would take its number for a PD of the MR's own
/// device.
pub(super) fn behaviour_101_a_pd_of_another_device_is_refused<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let pd = b.pd(Side::Server)?;
    let foreign = b.foreign_pd()?;
    let mut mr = register(&pd, bytes(1), READABLE)?;
    let before = fields(&mr);
    let wanted = Change::default().to_buffer(bytes(2)).to_pd(foreign.clone());
    let (result, back) = mr.reregister_vec(wanted, Policy::default());
    refused("another device's", result, MemoryReason::OtherDevice)?;
    same("what is given back", (back, foreign.users()), (Some(bytes(2)), 0))?;
    same("the MR", fields(&mr), before)?;
    deregister(mr).map(drop)
}
