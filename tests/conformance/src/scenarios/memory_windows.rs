//! Behaviour 83: a bound memory window.

use cmid_harness::failure::{ensure, same};
use cmid_harness::fixture::Side;
use cmid_harness::{Check, Env, Failure, Fixture, TestMr};
use cmid_proto::ErrorWith;
use cmid_proto::datapath::{MemoryRegion, MemoryWindow, ProtectionDomain, QueuePair, Remote, SendWr, WcStatus};
use cmid_proto::memory::{Access, Change, Fallback, MemoryReason, Policy};

use super::memory::{LEN, READABLE, bytes, changed, contents, deregister, fields, refused, register, unused, used};

/// No remote access except through a window.
const BINDABLE: Access = Access::LOCAL_WRITE.union(Access::MW_BIND);

pub(super) fn behaviour_83_a_bound_window_holds_its_memory<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let (own, pd) = (b.pd(Side::Client)?, b.pd(Side::Server)?);
    let (into, mr) = (register(&own, bytes(0), READABLE)?, register(&pd, bytes(1), BINDABLE)?);
    let (mut client, mut server) = b.join(&own, &pd)?;
    let mut window = pd.alloc_mw()?;
    server.qp.post_bind(1, &mut window, &mr, 0..LEN / 2, Access::REMOTE_READ)?;
    b.ends(&mut server, 1, WcStatus::SUCCESS)?;
    used("users", &pd, 3)?;
    let first = window.rkey();
    client.qp.post_send(SendWr::read(2, into.sge(0..LEN / 2), Remote { addr: mr.addr(), rkey: first }))?;
    b.ends(&mut client, 2, WcStatus::SUCCESS)?;
    same("what the peer has read", &contents(&into)?[..LEN / 2], &bytes(1)[..LEN / 2])?;
    let before = fields(&mr);
    let Err(ErrorWith { given: mr, error }) = mr.deregister_vec() else { return Err(Failure("deregistered".into())) };
    refused::<()>("deregister", Err(error), MemoryReason::WindowBound)?;
    same("the MR", fields(&mr), before)?;
    refused("dealloc", pd.dealloc(), MemoryReason::InUse(3))?;
    // After the invalidation, it can be bound again, with another key.
    server.qp.post_invalidate(3, &mut window)?;
    b.ends(&mut server, 3, WcStatus::SUCCESS)?;
    server.qp.post_bind(4, &mut window, &mr, LEN / 2..LEN, Access::REMOTE_READ)?;
    b.ends(&mut server, 4, WcStatus::SUCCESS)?;
    ensure(window.rkey() != first, || "the same key".into())?;
    let half = Remote { addr: mr.addr() + (LEN / 2) as u64, rkey: window.rkey() };
    client.qp.post_send(SendWr::read(5, into.sge(LEN / 2..LEN), half))?;
    b.ends(&mut client, 5, WcStatus::SUCCESS)?;
    same("what the peer has read", deregister(into)?, bytes(1))?;
    // The window keeps its QP: rxe's would wait for the window for 50 s, and then count wrongly.
    b.part((client, server))?;
    used("a bound window without a connection", &pd, 3)?;
    drop(window);
    used("the MR", &pd, 1)?;
    same("what comes back", deregister(mr)?, bytes(1))
}

/// rxe ignores windows when it re-registers: a peer would continue to access the memory through one. So the change is
/// refused until the window is invalidated.
pub(super) fn behaviour_121_a_bound_window_holds_its_registration<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let (own, pd) = (b.pd(Side::Client)?, b.pd(Side::Server)?);
    let (into, mut mr) = (register(&own, bytes(0), READABLE)?, register(&pd, bytes(1), BINDABLE)?);
    let (mut client, mut server) = b.join(&own, &pd)?;
    let mut window = pd.alloc_mw()?;
    server.qp.post_bind(1, &mut window, &mr, 0..LEN, Access::REMOTE_READ)?;
    b.ends(&mut server, 1, WcStatus::SUCCESS)?;
    let (before, access) = (fields(&mr), Access::LOCAL_WRITE);
    let (result, _) = mr.reregister_vec(Change::default().to_access(access), Policy::default());
    refused("re-register", result, MemoryReason::WindowBound)?;
    same("the MR", fields(&mr), before)?;
    client.qp.post_send(SendWr::read(2, into.sge(0..LEN), Remote { addr: mr.addr(), rkey: window.rkey() }))?;
    b.ends(&mut client, 2, WcStatus::SUCCESS)?;
    same("what the peer has read", deregister(into)?, bytes(1))?;
    server.qp.post_invalidate(3, &mut window)?;
    b.ends(&mut server, 3, WcStatus::SUCCESS)?;
    changed::<L>(&mut mr, Change::default().to_access(access))?;
    drop(window);
    same("what comes back", deregister(mr)?, bytes(1))?;
    b.part((client, server))
}

/// The fallback would register anew, and then could not deregister the old registration.
pub(super) fn a_fallback_with_a_window_bound_is_refused<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let (own, pd, new) = (b.pd(Side::Client)?, b.pd(Side::Server)?, b.pd(Side::Server)?);
    let mut mr = register(&pd, bytes(1), BINDABLE | READABLE)?;
    let (client, mut server) = b.join(&own, &pd)?;
    let mut window = pd.alloc_mw()?;
    server.qp.post_bind(1, &mut window, &mr, 0..LEN, Access::REMOTE_READ)?;
    b.ends(&mut server, 1, WcStatus::SUCCESS)?;
    let before = fields(&mr);
    let policy = Policy { fallback: Fallback::Anew, ..Policy::default() };
    let (result, back) = mr.reregister_vec(Change::default().to_buffer(bytes(2)).to_pd(new.clone()), policy);
    refused("the fallback", result, MemoryReason::WindowBound)?;
    same("what comes back", (back, fields(&mr)), (Some(bytes(2)), before))?;
    unused(&new)?;
    drop(window);
    b.part((client, server))?;
    same("a peer's read", b.peer_reads(&pd, mr.remote(0), LEN)?, Ok(bytes(1)))?;
    deregister(mr).map(drop)
}
