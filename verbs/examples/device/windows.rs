//! Row 83: memory windows.

use cmid_proto::Errno;
use cmid_proto::memory::{Error, Failure, Fallback, MrState, Policy, Provider, Step, Valid};
use cmid_verbs::{Access, Change, Completion, Mw, Remote, Reregistered, WcStatus};

use crate::data::{bytes, polled, register, success};
use crate::lab::Pair;
use crate::memory::{PAGE, kernel_mrs};

pub(crate) fn bound() {
    let Pair { client: _client, server: _server, mut c, mut s, .. } = Pair::connected();
    let source = register(&c, 7, Access::empty());
    let mut mr = register(&s, 1, Access::LOCAL_WRITE | Access::MW_BIND);
    let users = s.pd.users();
    let mut window = s.pd.alloc_mw().expect("rxe has them");
    assert_eq!(s.pd.users(), users + 1);

    let unbound = window.rkey();
    s.qp.post_bind(1, &mut window, &mr, 64..128, Access::REMOTE_WRITE).expect("post_bind");
    assert_ne!(window.rkey(), unbound);
    // In flight it pins the MR, as any other work request.
    let (back, error) = mr.deregister().map(drop).expect_err("the bind is in flight");
    assert_eq!(error.errno(), Errno::EBUSY);
    mr = back;
    success(polled(&mut s.cq), 1, Completion::BIND);

    // The peer has no right on the MR, but on this part.
    let at = |offset, window: &Mw, addr: u64| Remote { addr: addr + offset, rkey: window.rkey() };
    c.qp.post_write(2, &source, 0..64, at(64, &window, mr.addr())).expect("post_write");
    success(polled(&mut c.cq), 2, Completion::WRITE);
    assert_eq!((bytes(&mr, 63), bytes(&mr, 127)), ([1, 7], [7, 1]));

    // As long as it is bound, the MR stays, whichever way it is to go.
    let before = (mr.addr(), mr.rkey(), mr.access());
    let (back, error) = mr.deregister().map(drop).expect_err("a window is bound to it");
    mr = back;
    let kept = |step| Error::Failed(Failure { step, errno: Errno::EINVAL, valid: Valid::Old });
    assert_eq!((error, mr.state()), (kept(Step::Deregister), MrState::Registered));
    // The kernel has struck it off its list, before it asked the driver (ib_dereg_mr_user).
    let mrs = kernel_mrs();
    let anew = Policy { fallback: Fallback::Anew, provider: Provider::Unknown };
    let Reregistered { result, buffer } = mr.reregister(Change::default().to_buffer(vec![0; 8]), anew);
    assert_eq!((result, buffer.map(|buffer| buffer.len())), (Err(kept(Step::DeregisterOld)), Some(8)));
    assert_eq!(((mr.addr(), mr.rkey(), mr.access()), kernel_mrs()), (before, mrs), "the new one was undone");
    assert_eq!(s.pd.dealloc().map_err(|error| error.errno()), Err(Errno::EBUSY));

    // Invalidated, bound anew elsewhere, under another key.
    let first = window.rkey();
    s.qp.post_invalidate(3, &window).expect("post_invalidate");
    success(polled(&mut s.cq), 3, Completion::INVALIDATE);
    s.qp.post_bind(4, &mut window, &mr, 0..8, Access::REMOTE_WRITE | Access::REMOTE_READ).expect("post_bind");
    success(polled(&mut s.cq), 4, Completion::BIND);
    assert_ne!(window.rkey(), first);
    c.qp.post_write(5, &source, 0..8, at(0, &window, mr.addr())).expect("post_write");
    success(polled(&mut c.cq), 5, Completion::WRITE);
    assert_eq!(bytes(&mr, 7), [7, 1]);
    let mut second = s.pd.alloc_mw().expect("alloc_mw");
    s.qp.post_bind(8, &mut second, &mr, 0..PAGE, Access::REMOTE_READ).expect("post_bind");
    success(polled(&mut s.cq), 8, Completion::BIND);

    // rxe does not look at where a window ends (check_rkey asks the MR). But a key that was taken back is dead.
    s.qp.post_invalidate(6, &window).expect("post_invalidate");
    success(polled(&mut s.cq), 6, Completion::INVALIDATE);
    c.qp.post_write(7, &source, 0..8, at(0, &window, mr.addr())).expect("post_write");
    assert_eq!(polled(&mut c.cq).status, WcStatus::REM_ACCESS_ERR);

    // Neither of the two ways to end a window asks whether it is bound.
    window.dealloc().map_err(|(_, errno)| errno).expect("ibv_dealloc_mw");
    let (mr, error) = mr.deregister().map(drop).expect_err("the second is bound to it");
    assert_eq!(error, kept(Step::Deregister));
    drop(second);
    assert_eq!(s.pd.users(), users);
    assert_eq!(mr.deregister().map_err(|(_, error)| error).expect("no window is left").buffer.len(), PAGE);
}

/// What would make a provider look into objects of another PD.
pub(crate) fn foreign() {
    let Pair { client: _client, server: _server, c, mut s, .. } = Pair::connected();
    let (near, far) = (register(&s, 0, Access::MW_BIND), register(&c, 0, Access::MW_BIND));
    let (mut own, mut other) = (s.pd.alloc_mw().expect("alloc_mw"), c.pd.alloc_mw().expect("alloc_mw"));
    assert_eq!(s.qp.post_bind(1, &mut other, &near, 0..8, Access::REMOTE_READ), Err(Errno::EINVAL));
    assert_eq!(s.qp.post_bind(1, &mut own, &far, 0..8, Access::REMOTE_READ), Err(Errno::EINVAL));
    assert_eq!(s.qp.post_bind(1, &mut own, &near, 0..PAGE + 1, Access::REMOTE_READ), Err(Errno::EINVAL));
    assert_eq!(s.qp.post_invalidate(1, &other), Err(Errno::EINVAL));
    drop(own);
    assert!(near.deregister().is_ok());
}
