//! Re-registration by a kernel's driver that can change PD and rights (rxe): behaviours 82, 106 and 114 to 121.

use cmid_harness::failure::{same, why};
use cmid_harness::fixture::Side;
use cmid_harness::{Check, Env, Fixture, TestMr};
use cmid_proto::Errno;
use cmid_proto::datapath::{OfPd, PostReason, SendWr, WcStatus, prelude::*};
use cmid_proto::memory::{Access, Change, Changes, Code, MemoryReason, MemoryStep, Policy, Valid};

use super::memory::{
    LEN, READABLE, bytes, change, changed, combinations, contents, deregister, failed, fields, refused, register,
    unused, used, users_are,
};

const CMD: MemoryStep = MemoryStep::Reregister(Code::Cmd);

/// The old PD can be deallocated and the new one cannot. The keys stay the same. A peer reads through a QP of the new
/// PD only.
pub(super) fn behaviour_82_another_pd<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let (old, new) = (b.pd(Side::Server)?, b.pd(Side::Server)?);
    let mut mr = register(&old, bytes(1), READABLE)?;
    let there = mr.remote(0);
    same("before", b.peer_reads(&old, there, LEN)?, Ok(bytes(1)))?;
    same("nothing comes back", changed::<L>(&mut mr, Change::default().to_pd(new.clone()))?, None)?;
    same("the keys of rxe", (mr.remote(0), mr.lkey()), (there, there.rkey))?;
    users_are("users", (&old, &new), (0, 1))?;
    refused("the new one", new.dealloc(), MemoryReason::InUse(1))?;
    same("by the new PD", b.peer_reads(&new, there, LEN)?, Ok(bytes(1)))?;
    same("by the old PD", b.peer_reads(&old, there, LEN)?, Err(WcStatus::REM_ACCESS_ERR))?;
    unused(&old)?;
    same("its PD", mr.pd().map(|pd| pd.users()), Some(1))?;
    same("what it holds", deregister(mr)?, bytes(1))
}

/// The memory cannot be posted locally on a QP of another PD either.
pub(super) fn behaviour_106_memory_whose_pd_has_changed_cannot_be_posted<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let (own, new, pd) = (b.pd(Side::Client)?, b.pd(Side::Client)?, b.pd(Side::Server)?);
    let mut from = register(&own, bytes(1), Access::LOCAL_WRITE)?;
    let to = register(&pd, bytes(2), READABLE | Access::REMOTE_WRITE)?;
    let (mut client, server) = b.join(&own, &pd)?;
    client.qp.post_send(SendWr::write(1, from.sge(0..LEN), to.remote(0)))?;
    b.ends(&mut client, 1, WcStatus::SUCCESS)?;
    same("what was written", contents(&to)?, bytes(1))?;
    changed::<L>(&mut from, Change::default().to_pd(new.clone()))?;
    from.write(0, b"abc")?;
    same(
        "posting it",
        why(client.qp.post_send(SendWr::write(2, from.sge(0..LEN), to.remote(0)))),
        Err(PostReason::OtherPd(OfPd::Mr)),
    )?;
    b.part((client, server))?;
    deregister(from)?;
    same("what nobody has written", deregister(to)?, bytes(1))?;
    for pd in [own, new, pd] {
        unused(&pd)?;
    }
    Ok(())
}

/// A read fails after its right was removed, and succeeds again when the right is restored.
pub(super) fn behaviour_106_rights_are_taken_and_given<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let pd = b.pd(Side::Server)?;
    let all = READABLE | Access::REMOTE_WRITE;
    let mut mr = register(&pd, bytes(1), all)?;
    let there = mr.remote(0);
    same("before", b.peer_reads(&pd, there, LEN)?, Ok(bytes(1)))?;
    for (access, read, write) in [
        (Access::LOCAL_WRITE | Access::REMOTE_WRITE, Err(WcStatus::REM_ACCESS_ERR), WcStatus::SUCCESS),
        (READABLE, Ok(bytes(1)), WcStatus::REM_ACCESS_ERR),
        // Local reads only.
        (Access::empty(), Err(WcStatus::REM_ACCESS_ERR), WcStatus::REM_ACCESS_ERR),
        (all, Ok(bytes(1)), WcStatus::SUCCESS),
    ] {
        let what = format!("{access:?}");
        changed::<L>(&mut mr, Change::default().to_access(access))?;
        same(&what, (mr.access(), mr.remote(0), pd.users()), (Some(access), there, 1))?;
        same(&what, b.peer_reads(&pd, there, LEN)?, read)?;
        same(&what, b.peer_writes(&pd, there, &bytes(1)[..9])?, write)?;
    }
    same("what it holds", deregister(mr)?, bytes(1))
}

/// Over an established connection: an access that was allowed before now ends the connection.
pub(super) fn behaviour_106_a_connection_feels_it_at_once<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let (own, pd) = (b.pd(Side::Client)?, b.pd(Side::Server)?);
    let mut mr = register(&pd, bytes(1), READABLE)?;
    let into = register(&own, bytes(0), Access::LOCAL_WRITE)?;
    let (mut client, server) = b.join(&own, &pd)?;
    client.qp.post_send(SendWr::read(1, into.sge(0..LEN), mr.remote(0)))?;
    b.ends(&mut client, 1, WcStatus::SUCCESS)?;
    changed::<L>(&mut mr, Change::default().to_access(Access::LOCAL_WRITE))?;
    client.qp.post_send(SendWr::read(2, into.sge(0..LEN), mr.remote(0)))?;
    b.ends(&mut client, 2, WcStatus::REM_ACCESS_ERR)?;
    client.qp.post_send(SendWr::read(3, into.sge(0..LEN), mr.remote(0)))?;
    b.ends(&mut client, 3, WcStatus::WR_FLUSH_ERR)?;
    b.part((client, server))?;
    deregister(into)?;
    deregister(mr).map(drop)
}

pub(super) fn behaviour_115_the_pd_that_it_has<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let pd = b.pd(Side::Server)?;
    let mut mr = register(&pd, bytes(1), READABLE)?;
    changed::<L>(&mut mr, Change::default().to_pd(pd.clone()).to_access(Access::LOCAL_WRITE))?;
    used("users", &pd, 1)?;
    same("rights", mr.access(), Some(Access::LOCAL_WRITE))?;
    deregister(mr).map(drop)
}

pub(super) fn behaviour_117_pd_and_rights_at_once<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let (old, new) = (b.pd(Side::Server)?, b.pd(Side::Server)?);
    let mut mr = register(&old, bytes(1), Access::LOCAL_WRITE)?;
    changed::<L>(&mut mr, Change::default().to_pd(new.clone()).to_access(READABLE))?;
    users_are("users", (&old, &new), (0, 1))?;
    unused(&old)?;
    same("by the new PD", b.peer_reads(&new, mr.remote(0), LEN)?, Ok(bytes(1)))?;
    deregister(mr).map(drop)
}

/// The driver cannot change the memory. Changes requested together with it are not made either.
pub(super) fn behaviour_121_other_memory_is_not_supported<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let (pd, new) = (b.pd(Side::Server)?, b.pd(Side::Server)?);
    let mut mr = register(&pd, bytes(1), READABLE)?;
    let before = fields(&mr);
    for flags in combinations().filter(|flags| flags.contains(Changes::TRANSLATION)) {
        let what = format!("{flags:?}");
        let (result, back) = mr.reregister_vec(change(flags, &bytes(2), &new, Access::LOCAL_WRITE), Policy::default());
        failed(&what, result, CMD, Errno::EOPNOTSUPP, Valid::Old)?;
        same(&what, (back, &fields(&mr)), (Some(bytes(2)), &before))?;
        users_are(&what, (&pd, &new), (1, 0))?;
    }
    same("a peer's read", b.peer_reads(&pd, mr.remote(0), LEN)?, Ok(bytes(1)))?;
    deregister(mr).map(drop)
}

/// The kernel checks rights as in a registration: the old ones stay.
pub(super) fn behaviour_114_rights_that_the_device_has_not<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let (pd, new) = (b.pd(Side::Server)?, b.pd(Side::Server)?);
    let mut mr = register(&pd, bytes(1), READABLE)?;
    let before = fields(&mr);
    // The driver refuses the supported but unavailable rights.
    let by_driver = !std::env::var("CMID_KERNEL").is_ok_and(|release| swaps_pd_first(&release));
    for (what, access) in [("on demand", Access::ON_DEMAND), ("huge pages", Access::HUGETLB)] {
        let access = READABLE | access;
        let rights = Change::default().to_access(access);
        let changes = [Some(rights.clone()), by_driver.then(|| rights.to_pd(new.clone()))];
        for change in changes.into_iter().flatten() {
            let (result, _) = mr.reregister_vec(change, Policy::default());
            failed(what, result, CMD, Errno::EOPNOTSUPP, Valid::Old)?;
            same(what, &fields(&mr), &before)?;
            users_are(what, (&pd, &new), (1, 0))?;
        }
    }
    let unknown = READABLE | Access::from_bits_retain(1 << 15);
    let (result, _) = mr.reregister_vec(Change::default().to_access(unknown), Policy::default());
    refused("an unknown right", result, MemoryReason::UnknownRights(1 << 15))?;
    same("an unknown right", &fields(&mr), &before)?;
    same("a peer's read", b.peer_reads(&pd, mr.remote(0), LEN)?, Ok(bytes(1)))?;
    unused(&new)?;
    deregister(mr).map(drop)
}

/// Whether rxe of this kernel takes the new PD before it refuses the rights. The MR then has a PD that does not count
/// it, and the kernel warns when it is deallocated. "RDMA/rxe: validate access flags before swapping the MR's PD"
/// fixed that in 6.12.113; rxe re-registers since 6.5.
fn swaps_pd_first(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    let mut number = || numbers.next().and_then(Result::ok).unwrap_or(0);
    let version = [number(), number(), number()];
    ([6, 5, 0]..[6, 12, 113]).contains(&version)
}

#[cfg(test)]
mod tests {
    use super::swaps_pd_first;

    #[test]
    fn kernels_are_known_by_their_release() {
        for swaps in ["6.12.107+deb13-amd64", "6.8.0-31-generic", "6.5.0"] {
            assert!(swaps_pd_first(swaps), "{swaps}");
        }
        for does_not in ["6.12.117+deb12-amd64", "6.12.113", "6.1.0-41-amd64", "6.13.1", ""] {
            assert!(!swaps_pd_first(does_not), "{does_not}");
        }
    }
}
