//! PDs and registrations: behaviours 80 and 84 to 88.

use cmid_harness::failure::{ensure, same};
use cmid_harness::fixture::Side;
use cmid_harness::{Check, Env, Failure, Fixture, MemoryFault, TestPd, make_qp, test_caps};
use cmid_proto::datapath::{SendWr, WcStatus, prelude::*};
use cmid_proto::memory::{Access, MemoryError, MemoryReason, MrState, PdState, Way};
use cmid_proto::{Errno, ErrorWith};

use super::memory::{LEN, READABLE, bytes, contents, deregister, refused, register, unused, used};

/// Registers, which must fail. Returns the error. The buffer is returned and nothing is left behind.
fn not_registered<P: TestPd>(what: &str, pd: &P, buffer: Vec<u8>, access: Access) -> Check<MemoryError> {
    let (len, before) = (buffer.len(), pd.users());
    let Err(ErrorWith { given: back, error }) = pd.register_vec(buffer, access) else {
        return Err(Failure(format!("{what}: registered")));
    };
    same(what, (back.len(), pd.users()), (len, before))?;
    Ok(error)
}

pub(super) fn behaviour_80_what_cannot_be_registered<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let pd = b.pd(Side::Server)?;
    for (what, buffer, access, reason) in [
        ("no memory", Vec::new(), Access::LOCAL_WRITE, MemoryReason::Empty),
        ("an unknown right", bytes(1), Access::from_bits_retain(1 << 15), MemoryReason::UnknownRights(1 << 15)),
        ("all bits", bytes(1), Access::from_bits_retain(!0), MemoryReason::UnknownRights(!Access::all().bits())),
        ("remote write alone", bytes(1), Access::REMOTE_WRITE, MemoryReason::RemoteWithoutLocalWrite),
        (
            "remote atomic alone",
            bytes(1),
            READABLE.difference(Access::LOCAL_WRITE) | Access::REMOTE_ATOMIC,
            MemoryReason::RemoteWithoutLocalWrite,
        ),
    ] {
        let error = not_registered(what, &pd, buffer, access)?;
        same(what, error.errno(), Errno::EINVAL)?;
        refused::<()>(what, Err(error), reason)?;
    }
    // Linux 6.1 returns EINVAL.
    let (what, errnos) = ("on demand", [Errno::EOPNOTSUPP, Errno::EINVAL]);
    let error = not_registered(what, &pd, bytes(1), READABLE | Access::ON_DEMAND)?;
    let one_of_them = matches!(error, MemoryError::Register { errno, .. } if errnos.contains(&errno));
    ensure(one_of_them, || format!("{what}: {error:?}, expected one of {errnos:?}"))?;
    let mr = register(&pd, bytes(1), READABLE)?;
    deregister(mr).map(drop)
}

pub(super) fn behaviour_80_no_memory_left_to_lock<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let pd = b.pd(Side::Server)?;
    b.env.fail_next(MemoryFault::Register(Errno::ENOMEM))?;
    let error = not_registered("the limit", &pd, bytes(1), READABLE)?;
    ensure(matches!(error, MemoryError::Register { errno: Errno::ENOMEM, .. }), || format!("the limit: {error:?}"))?;
    let mr = register(&pd, bytes(1), READABLE)?;
    deregister(mr).map(drop)
}

pub(super) fn behaviour_84_a_pd_in_use_stays<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let (own, pd) = (b.pd(Side::Client)?, b.pd(Side::Server)?);
    same("a fresh one", (pd.state(), pd.users()), (PdState::Live, 0))?;
    let mr = register(&pd, bytes(1), READABLE)?;
    let (client, server) = b.join(&own, &pd)?;
    let in_use = |users| {
        used("users", &pd, users)?;
        refused("dealloc", pd.dealloc(), MemoryReason::InUse(users))
    };
    in_use(2)?;
    // A QP is destroyed when its id and its handle are gone, in either order.
    b.destroy(Side::Server, server.id)?;
    in_use(2)?;
    drop(server.qp);
    in_use(1)?;
    drop(client.qp);
    used("a QP of an id", &own, 1)?;
    b.destroy(Side::Client, client.id)?;
    used("without the id", &own, 0)?;
    deregister(mr)?;
    let other = pd.clone();
    unused(&pd)?;
    same("another handle", other.state(), PdState::Gone)?;
    refused("dealloc again", other.dealloc(), MemoryReason::Gone)?;
    refused("register", other.register_vec(bytes(1), READABLE), MemoryReason::Gone)?;
    let (_, id) = b.requested()?;
    let made = b.server.drive().attach_qp(id, |device, attaching| make_qp(device, attaching, &other, test_caps()));
    same("a QP", made.map(drop).map_err(|error| error.errno()), Err(Errno::EINVAL))?;
    // An MR keeps its PD without another handle, and returns it.
    let mr = register(&b.server.drive().device_mut().alloc_pd(id)?, bytes(1), READABLE)?;
    let pd = mr.pd().ok_or_else(|| Failure("it has no PD".into()))?;
    used("the MR", &pd, 1)?;
    deregister(mr)?;
    unused(&pd)
}

pub(super) fn behaviour_86_what_a_registration_has<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let pd = b.pd(Side::Server)?;
    let mut mr = register(&pd, bytes(1), READABLE)?;
    same(
        "what it says",
        (mr.state(), mr.access(), mr.way(), mr.len()),
        (MrState::Registered, Some(READABLE), Way::Anew, LEN),
    )?;
    same("the keys of rxe", mr.lkey(), mr.rkey())?;
    same("users, of which the handle is none", mr.pd().map(|pd| pd.users()), Some(1))?;
    same("what it holds", contents(&mr)?, bytes(1))?;
    mr.write(1, b"abc")?;
    same("beyond its end", mr.write(LEN - 1, b"abc"), Err(Errno::EINVAL))?;
    same(
        "what a peer reads",
        b.peer_reads(&pd, mr.remote(0), 5)?,
        Ok([&bytes(1)[..1], b"abc", &bytes(1)[4..5]].concat()),
    )?;
    let there = mr.remote(0);
    let back = deregister(mr)?;
    same("what comes back", (&back[1..4], &back[4..]), (&b"abc"[..], &bytes(1)[4..]))?;
    same("a key that is gone", b.peer_reads(&pd, there, 5)?, Err(WcStatus::REM_ACCESS_ERR))
}

pub(super) fn behaviour_87_no_rights_are_the_right_to_read_locally<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let (own, pd) = (b.pd(Side::Client)?, b.pd(Side::Server)?);
    let (from, to) = (register(&own, bytes(1), Access::empty())?, register(&pd, bytes(2), Access::LOCAL_WRITE)?);
    let (mut client, mut server) = b.join(&own, &pd)?;
    server.qp.post_recv(1, to.sge(0..LEN))?;
    client.qp.post_send(SendWr::send(2, from.sge(0..LEN)))?;
    b.ends(&mut client, 2, WcStatus::SUCCESS)?;
    b.ends(&mut server, 1, WcStatus::SUCCESS)?;
    same("what was sent", contents(&to)?, bytes(1))?;
    b.part((client, server))?;
    deregister(from)?;
    deregister(to)?;
    unused(&own)?;
    let closed = register(&pd, bytes(1), Access::empty())?;
    same("a peer's read", b.peer_reads(&pd, closed.remote(0), 5)?, Err(WcStatus::REM_ACCESS_ERR))?;
    same("a peer's write", b.peer_writes(&pd, closed.remote(0), b"abc")?, WcStatus::REM_ACCESS_ERR)?;
    same("what it holds", deregister(closed)?, bytes(1))
}

/// A device without support for an optional right registers the memory all the same.
pub(super) fn behaviour_88_optional_rights_are_taken<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let pd = b.pd(Side::Server)?;
    let rights = READABLE | Access::RELAXED_ORDERING;
    let mr = register(&pd, bytes(1), rights)?;
    same("rights", mr.access(), Some(rights))?;
    same("a peer's read", b.peer_reads(&pd, mr.remote(0), LEN)?, Ok(bytes(1)))?;
    deregister(mr).map(drop)
}
