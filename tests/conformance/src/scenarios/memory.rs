//! Helpers of the scenarios about memory.

use std::fmt::Debug;

use cmid_harness::failure::same;
use cmid_harness::fixture::{MrOf, PdOf};
use cmid_harness::{Check, Env, Failure, TestMr, TestPd};
use cmid_proto::Errno;
use cmid_proto::memory::{
    Access, Change, Changes, MemoryError, MemoryFailure as Failed, MemoryReason, MemoryRefused, MemoryStep, MrState,
    Policy, Valid, Way,
};

/// The length of a region in bytes.
pub(super) const LEN: usize = 4096;
/// Access rights that let peers read.
pub(super) const READABLE: Access = Access::LOCAL_WRITE.union(Access::REMOTE_READ);

/// Bytes that identify the buffer they are from.
pub(super) fn bytes(of: u8) -> Vec<u8> {
    (0..LEN).map(|at| of.wrapping_add((at % 7) as u8)).collect()
}

pub(super) fn register<P: TestPd>(pd: &P, buffer: Vec<u8>, access: Access) -> Check<P::Mr> {
    Ok(pd.register_vec(buffer, access)?)
}

pub(super) fn deregister(mr: impl TestMr) -> Check<Vec<u8>> {
    Ok(mr.deregister_vec()?.buffer)
}

/// Fails unless the result is a refusal for this reason.
pub(super) fn refused<T: Debug>(what: &str, seen: Result<T, impl Into<MemoryError>>, expected: MemoryReason) -> Check {
    match seen.map_err(Into::into) {
        Err(MemoryError::Refused(MemoryRefused { reason, .. })) if reason == expected => Ok(()),
        other => Err(Failure(format!("{what}: {other:?}, expected a refusal: {expected}"))),
    }
}

/// Fails unless the result is this failure of this step.
pub(super) fn failed<T: Debug>(
    what: &str,
    seen: Result<T, MemoryError>,
    step: MemoryStep,
    errno: Errno,
    valid: Valid,
) -> Check {
    let expected = Failed { step, errno, valid };
    match seen {
        Err(MemoryError::Failed(failure)) if failure == expected => Ok(()),
        other => Err(Failure(format!("{what}: {other:?}, expected {expected:?}"))),
    }
}

/// The fields that must be unchanged when the old registration is valid.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fields {
    place: (u64, usize),
    keys: (u32, u32),
    state: MrState,
    access: Option<Access>,
    way: Way,
}

pub(super) fn fields(mr: &impl TestMr) -> Fields {
    Fields {
        place: (mr.addr(), mr.len()),
        keys: (mr.lkey(), mr.rkey()),
        state: mr.state(),
        access: mr.access(),
        way: mr.way(),
    }
}

/// Reads the contents of a region.
pub(super) fn contents(mr: &impl TestMr) -> Check<Vec<u8>> {
    let mut bytes = vec![0; mr.len()];
    mr.read(0, &mut bytes)?;
    Ok(bytes)
}

/// A change with these flags, to these arguments.
pub(super) fn change<P: Clone>(flags: Changes, buffer: &[u8], pd: &P, access: Access) -> Change<P, Vec<u8>> {
    Change {
        buffer: flags.contains(Changes::TRANSLATION).then(|| buffer.to_vec()),
        pd: flags.contains(Changes::PD).then(|| pd.clone()),
        access: flags.contains(Changes::ACCESS).then_some(access),
    }
}

/// All non-empty combinations of flags.
pub(super) fn combinations() -> impl Iterator<Item = Changes> {
    (1..=Changes::all().bits()).map(Changes::from_bits_truncate)
}

/// Fails unless this many objects belong to a PD, and the device counts as many.
pub(super) fn used(what: &str, pd: &impl TestPd, users: u32) -> Check {
    let seen = pd.users();
    same(what, (seen, pd.users_at_device().unwrap_or(seen)), (users, users))
}

/// Fails unless the two PDs have these numbers of users.
pub(super) fn users_are<P: TestPd>(what: &str, pds: (&P, &P), users: (u32, u32)) -> Check {
    used(what, pds.0, users.0)?;
    used(what, pds.1, users.1)
}

/// Fails unless a PD has no users and can be deallocated.
pub(super) fn unused(pd: &impl TestPd) -> Check {
    used("what belongs to the PD", pd, 0)?;
    Ok(pd.dealloc()?)
}

/// Re-registers, which must succeed in place. Returns the old buffer.
pub(super) fn changed<L: Env>(mr: &mut MrOf<L>, change: Change<PdOf<L>, Vec<u8>>) -> Check<Option<Vec<u8>>> {
    let (result, buffer) = mr.reregister_vec(change, Policy::default());
    same("way", result?, Way::InPlace)?;
    Ok(buffer)
}
