//! Behaviour 83: a bound memory window.

use std::time::{Duration, Instant};

use cmid_harness::failure::{ensure, same, why};
use cmid_harness::fixture::{EndOf, PdOf, Side};
use cmid_harness::{Check, Env, Failure, Fixture, TestMr, TestPd};
use cmid_proto::ErrorWith;
use cmid_proto::datapath::{Length, OfPd, PostReason, Remote, SendWr, WcStatus, prelude::*};
use cmid_proto::memory::{Access, Change, Fallback, MemoryReason, Policy};

use super::memory::{LEN, READABLE, bytes, changed, contents, deregister, fields, refused, register, unused, used};

/// No remote access except through a window.
const BINDABLE: Access = Access::LOCAL_WRITE.union(Access::MW_BIND);

pub(super) fn behaviour_83_a_bound_window_holds_its_memory<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let (own, pd) = (b.pd(Side::Client)?, b.pd(Side::Server)?);
    let (into, mr) = (register(&own, bytes(0), READABLE)?, register(&pd, bytes(1), BINDABLE)?);
    a_window_holds_the_qps_that_it_was_bound_through(b, &own, &pd)?;
    let (mut client, mut server) = b.join(&own, &pd)?;
    what_cannot_be_bound::<L>(&own, &pd, &mut server)?;
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
    b.part((client, server))?;
    used("a bound window without a connection", &pd, 3)?;
    drop(window);
    used("the MR", &pd, 1)?;
    same("what comes back", deregister(mr)?, bytes(1))
}

/// Objects of another PD, rights that the memory has not, bits that no window has: none reaches the provider.
fn what_cannot_be_bound<L: Env>(own: &PdOf<L>, pd: &PdOf<L>, server: &mut EndOf<L>) -> Check {
    let [near, far] = [pd, own].map(|pd| register(pd, vec![0; 64], BINDABLE));
    let (near, far, plain) = (near?, far?, register(pd, vec![0; 64], READABLE)?);
    let (read_only, read) = (register(pd, vec![0; 64], Access::MW_BIND | Access::REMOTE_READ)?, Access::REMOTE_READ);
    let (mut window, mut foreign) = (pd.alloc_mw()?, own.alloc_mw()?);
    let (lacks, not_of) = (PostReason::LacksRight, PostReason::NotOfWindow);
    let all = Access::from_bits_retain(!0);
    for (is_foreign, mr, len, access, reason) in [
        (true, &near, 8, read, PostReason::OtherPd(OfPd::Mw)),
        (true, &far, 8, read, PostReason::OtherPd(OfPd::Mw)),
        (false, &far, 8, read, PostReason::OtherPd(OfPd::Mr)),
        (false, &near, 65, read, PostReason::OutOfRange { len: Length::new(64) }),
        (false, &plain, 8, read, lacks(Access::MW_BIND)),
        (false, &plain, 8, Access::REMOTE_WRITE, lacks(Access::MW_BIND)),
        (false, &read_only, 8, Access::REMOTE_WRITE, lacks(Access::LOCAL_WRITE)),
        (false, &read_only, 8, read | Access::REMOTE_ATOMIC, lacks(Access::LOCAL_WRITE)),
        (false, &near, 8, all, not_of(all)),
        (false, &near, 8, Access::LOCAL_WRITE, not_of(Access::LOCAL_WRITE)),
        (false, &near, 8, read | Access::MW_BIND, not_of(read | Access::MW_BIND)),
    ] {
        let window = if is_foreign { &mut foreign } else { &mut window };
        let before = window.rkey();
        same("a bind", why(server.qp.post_bind(1, window, mr, 0..len, access)), Err(reason))?;
        same("the key", window.rkey(), before)?;
    }
    // rxe would follow null pointers.
    same("not bound", why(server.qp.post_invalidate(1, &mut window)), Err(PostReason::NotBound))?;
    same("foreign", why(server.qp.post_invalidate(1, &mut foreign)), Err(PostReason::OtherPd(OfPd::Mw)))?;
    drop((window, foreign));
    [near, far, plain, read_only].into_iter().try_for_each(|mr| deregister(mr).map(drop))
}

/// A window goes before the QPs through which it was bound: rxe's would wait for it for 50 s, and then count wrongly. Only
/// the peer of the last one may use it.
fn a_window_holds_the_qps_that_it_was_bound_through<L: Env>(
    b: &mut Fixture<'_, L>,
    own: &PdOf<L>,
    pd: &PdOf<L>,
) -> Check {
    let mr = register(pd, bytes(1), BINDABLE)?;
    let (mut first, mut second, mut third) = (b.join(own, pd)?, b.join(own, pd)?, b.join(own, pd)?);
    let (mut window, before) = (pd.alloc_mw()?, pd.users());
    first.1.qp.post_bind(1, &mut window, &mr, 0..LEN, Access::REMOTE_READ)?;
    b.ends(&mut first.1, 1, WcStatus::SUCCESS)?;
    let of_another = why(second.1.qp.post_invalidate(2, &mut window));
    same("an invalidation through another QP", of_another, Err(PostReason::NotBound))?;
    first.1.qp.post_invalidate(2, &mut window)?;
    b.ends(&mut first.1, 2, WcStatus::SUCCESS)?;
    let started = Instant::now();
    b.part(first)?;
    used("the window keeps the first QP", pd, before)?;
    // Those of verbs may keep each QP that it was to be bound through, as long as they exist.
    let kept = |what, users| same(what, pd.users_at_device().unwrap_or(users), users);
    second.1.qp.post_bind(3, &mut window, &mr, 0..LEN, Access::REMOTE_READ)?;
    b.ends(&mut second.1, 3, WcStatus::SUCCESS)?;
    kept("it is bound through another", before - 1)?;
    let through = Remote { addr: mr.addr(), rkey: window.rkey() };
    same("another peer", b.peer_reads(pd, through, 8)?, Err(WcStatus::REM_ACCESS_ERR))?;
    third.1.qp.post_bind(4, &mut window, &mr, 0..LEN, Access::REMOTE_READ)?;
    ensure(!b.done(&mut third.1)?.is_success(), || "a window is bound twice".into())?;
    b.part(third)?;
    kept("the attempt keeps no QP", before - 2)?;
    b.part(second)?;
    kept("the window keeps the second QP", before - 2)?;
    drop(window);
    used("without it", pd, before - 4)?;
    ensure(started.elapsed() < Duration::from_secs(5), || format!("{:?}", started.elapsed()))?;
    deregister(mr).map(drop)
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
    let bind = why(server.qp.post_bind(4, &mut window, &mr, 0..LEN, Access::REMOTE_READ));
    same("without the right any more", bind, Err(PostReason::LacksRight(Access::MW_BIND)))?;
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
