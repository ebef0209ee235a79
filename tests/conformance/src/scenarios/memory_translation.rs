//! Re-registration by devices that can change everything, including the memory.

use cmid_harness::failure::{ensure, same};
use cmid_harness::fixture::Side;
use cmid_harness::{Check, Env, Fixture};
use cmid_proto::datapath::{MemoryRegion, ProtectionDomain, WcStatus};
use cmid_proto::memory::{Access, Change, Changes};

use super::memory::{
    LEN, READABLE, bytes, change, changed, combinations, contents, deregister, fields, refused, register, unused,
    users_are,
};

/// Each flag changes only its own property. The old buffer is returned unchanged.
pub(super) fn behaviour_97_every_combination_of_flags<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    for flags in combinations() {
        let what = format!("{flags:?}");
        let (old, new) = (b.pd(Side::Server)?, b.pd(Side::Server)?);
        let mut mr = register(&old, bytes(1), READABLE)?;
        let there = mr.remote(0);
        let back = changed::<L>(&mut mr, change(flags, &bytes(2)[..LEN / 2], &new, Access::LOCAL_WRITE))?;
        let (translation, moved) = (flags.contains(Changes::TRANSLATION), flags.contains(Changes::PD));
        let rights = if flags.contains(Changes::ACCESS) { Access::LOCAL_WRITE } else { READABLE };
        let held = if translation { bytes(2)[..LEN / 2].to_vec() } else { bytes(1) };
        same(&what, back, translation.then(|| bytes(1)))?;
        same(&what, (mr.len(), mr.access()), (held.len(), Some(rights)))?;
        users_are(&what, (&old, &new), (u32::from(!moved), u32::from(moved)))?;
        same(&what, contents(&mr)?, held.clone())?;
        ensure(translation == (mr.addr() != there.addr), || format!("{what}: its address is {:#x}", mr.addr()))?;
        let (pd, other) = if moved { (&new, &old) } else { (&old, &new) };
        unused(other)?;
        let read = b.peer_reads(pd, mr.remote(0), held.len())?;
        let expected = if rights == READABLE { Ok(held) } else { Err(WcStatus::REM_ACCESS_ERR) };
        same(&what, read, expected)?;
        deregister(mr)?;
        unused(pd)?;
    }
    Ok(())
}

/// The old buffer behaves as if it had never been registered.
pub(super) fn behaviour_97_other_memory<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let pd = b.pd(Side::Server)?;
    let mut mr = register(&pd, bytes(1), READABLE | Access::REMOTE_WRITE)?;
    let there = mr.remote(0);
    same("the old memory", changed::<L>(&mut mr, Change::default().to_buffer(bytes(2)))?, Some(bytes(1)))?;
    same("a peer's read", b.peer_reads(&pd, mr.remote(0), LEN)?, Ok(bytes(2)))?;
    same("the old place", b.peer_reads(&pd, there, LEN)?, Err(WcStatus::REM_ACCESS_ERR))?;
    same("a peer's write", b.peer_writes(&pd, mr.remote(0), b"abc")?, WcStatus::SUCCESS)?;
    same("which is here", &contents(&mr)?[..4], &[b"abc", &bytes(2)[3..4]].concat()[..])?;
    refused("dealloc", pd.dealloc(), cmid_proto::memory::MemoryReason::InUse(1))?;
    deregister(mr).map(drop)
}

/// The driver makes a new registration behind the same handle: the keys are read again, and the old ones are invalid.
pub(super) fn behaviour_118_new_keys<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let (old, new) = (b.pd(Side::Server)?, b.pd(Side::Server)?);
    let mut mr = register(&old, bytes(1), READABLE)?;
    for (pd, other) in [(&new, &old), (&old, &new)] {
        let (there, before) = (mr.remote(0), fields(&mr));
        changed::<L>(&mut mr, Change::default().to_pd(pd.clone()).to_access(READABLE))?;
        ensure(mr.rkey() != there.rkey && fields(&mr) != before, || format!("the key is still {:#x}", mr.rkey()))?;
        users_are("users", (pd, other), (1, 0))?;
        same("by the new key", b.peer_reads(pd, mr.remote(0), LEN)?, Ok(bytes(1)))?;
        same("by the old key", b.peer_reads(pd, there, LEN)?, Err(WcStatus::REM_ACCESS_ERR))?;
    }
    deregister(mr).map(drop)
}
