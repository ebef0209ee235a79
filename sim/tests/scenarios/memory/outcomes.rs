//! The effects of each outcome of a re-registration (`semantics` 10.4 and 10.6), and of the fallback.

use cmid_proto::datapath::{MemoryRegion, ProtectionDomain};
use cmid_sim::memory::{Code, MemoryFailure, MemoryStep};
use cmid_sim::{Change, Left, ReregFault, Way};

use super::*;

const IO: Errno = Errno::EIO;

fn forked() -> MemoryFixture {
    MemoryFixture::new(Config { rereg: Rereg::All, fork: true, ..Config::default() })
}

fn all(fixture: &MemoryFixture) -> Change {
    Change::default().to_buffer(vec![2; 50]).to_pd(fixture.two.clone()).to_access(Access::LOCAL_WRITE)
}

/// Changes memory, PD and rights with this fault; returns the buffer that came back.
#[track_caller]
fn struck(
    fixture: &MemoryFixture,
    mr: &mut Mr,
    fault: ReregFault,
    code: Code,
    errno: Errno,
    valid: Valid,
) -> Option<Buffer> {
    fixture.env.host.fail_next_reregistration(fault);
    let ended = mr.reregister(all(fixture), Policy::default());
    assert_eq!(
        ended.result,
        Err(MemoryFailure { step: MemoryStep::Reregister(code), errno, valid }.into()),
        "{fault:?}"
    );
    ended.buffer
}

#[test]
fn where_no_driver_was_asked_the_new_buffer_comes_back() {
    for (fault, code, errno) in [
        (ReregFault::DontForkNew(Errno::ENOMEM), Code::DontForkNew, Errno::ENOMEM),
        (ReregFault::Cmd { errno: Errno::EOPNOTSUPP, left: Left::Old }, Code::Cmd, Errno::EOPNOTSUPP),
    ] {
        let fixture = forked();
        let mut mr = fixture.mr();
        let before = (mr.addr(), mr.lkey(), mr.access());
        assert_eq!(struck(&fixture, &mut mr, fault, code, errno, Valid::Old), Some([2; 50].into()));
        assert_eq!((mr.addr(), mr.lkey(), mr.access()), before);
        fixture.users([1, 0]);
        assert_eq!(fixture.env.fabric.pages_kept_from_fork(), 1);
        // The fault struck only that call.
        assert_eq!(mr.reregister(all(&fixture), Policy::default()).result, Ok(Way::InPlace));
        fixture.users([0, 1]);
    }
}

/// After a call of the driver it is unknown, whatever the result, how the new buffer is used. It is kept until
/// nothing is registered.
#[test]
fn where_a_driver_was_asked_the_new_buffer_is_kept() {
    let believed = Policy { provider: Provider::ChecksFirst, ..Policy::default() };
    for left in [Left::Old, Left::New, Left::Neither] {
        for (errno, policy) in [(Errno::EINVAL, Policy::default()), (Errno::EINVAL, believed), (IO, believed)] {
            let fixture = forked();
            let mut mr = fixture.mr();
            let before = (mr.addr(), mr.len(), mr.lkey(), mr.access());
            fixture.env.host.fail_next_reregistration(ReregFault::Cmd { errno, left });
            let ended = mr.reregister(all(&fixture), policy);
            let failure = MemoryFailure { step: MemoryStep::Reregister(Code::Cmd), errno, valid: Valid::Old };
            assert_eq!((ended.result, ended.buffer), (Err(failure.into()), None), "{left:?}");
            assert_eq!((mr.addr(), mr.len(), mr.lkey(), mr.access()), before);
            assert_eq!(mr.state(), MrState::Registered);
            fixture.users([1, 0]);
            // Only one such buffer is kept.
            for policy in [policy, ANEW] {
                let again = mr.reregister(Change::default().to_buffer([3; 30]), policy);
                assert_eq!(again.buffer, Some(vec![3; 30].into()));
                refused(again.result.unwrap_err(), MemoryReason::InDoubt);
            }
            // A change without a buffer is possible if a registration is left.
            let change = Change::default().to_access(Access::LOCAL_WRITE).to_pd(fixture.two.clone());
            let moved = mr.reregister(change, policy);
            assert_eq!((moved.result.is_ok(), moved.buffer), (left != Left::Neither, None));
            fixture.users(if left == Left::Neither { [1, 0] } else { [0, 1] });
            // A deregistration that fails keeps both.
            fixture.env.host.fail_next_deregistration(Errno::EBUSY);
            let (mr, _) = mr.deregister().unwrap_err();
            assert_eq!(returned(mr), memory::Returned { buffer: [1; 100].into(), other: Some([2; 50].into()) });
            fixture.users([0, 0]);
        }
    }
}

/// The fallback moves a region with a buffer in doubt and keeps that buffer.
#[test]
fn a_region_in_doubt_that_is_registered_anew_keeps_the_other_buffer() {
    let fixture = forked();
    let mut mr = fixture.mr();
    fixture.env.host.fail_next_reregistration(ReregFault::Cmd { errno: Errno::EINVAL, left: Left::New });
    assert_eq!(mr.reregister(all(&fixture), Policy::default()).buffer, None);
    fixture.env.host.fail_next_reregistration(ReregFault::Cmd { errno: Errno::EOPNOTSUPP, left: Left::Old });
    let anew = mr.reregister(Change::default().to_pd(fixture.two.clone()), ANEW);
    assert_eq!((anew.result, anew.buffer), (Ok(Way::Anew), None));
    fixture.users([0, 1]);
    assert_eq!(returned(mr), memory::Returned { buffer: [1; 100].into(), other: Some([2; 50].into()) });
    fixture.users([0, 0]);
}

#[test]
fn after_do_fork_old_the_new_one_is_valid() {
    let fixture = forked();
    let mut mr = fixture.mr();
    let fault = ReregFault::DoForkOld(IO);
    assert_eq!(struck(&fixture, &mut mr, fault, Code::DoForkOld, IO, Valid::New), Some([1; 100].into()));
    assert_eq!((mr.state(), mr.len(), mr.access()), (MrState::Registered, 50, Some(Access::LOCAL_WRITE)));
    fixture.users([0, 1]);
    // The old page is still kept from children, without a use.
    assert_eq!(fixture.env.fabric.pages_kept_from_fork(), 2);
    assert_eq!(returned(mr).buffer, [2; 50]);
    assert_eq!(fixture.env.fabric.pages_kept_from_fork(), 1);
}

#[test]
fn where_neither_is_valid_both_buffers_and_domains_are_kept() {
    for left in [Left::Old, Left::New, Left::Neither] {
        for (fault, code) in [
            (ReregFault::Cmd { errno: IO, left }, Code::Cmd),
            (ReregFault::CmdAndDoForkNew { errno: IO, left }, Code::CmdAndDoForkNew),
            (ReregFault::Undocumented { code: -9, errno: IO, left }, Code::Unknown(-9)),
        ] {
            let fixture = forked();
            let mut mr = fixture.mr();
            assert_eq!(struck(&fixture, &mut mr, fault, code, IO, Valid::Neither), None);
            assert_eq!((mr.state(), mr.access()), (MrState::Unusable, None));
            assert_eq!((mr.lkey(), mr.rkey(), mr.pd().is_none()), (0, 0, true));
            // The machines cannot know the domain of the registration, and keep both.
            let pds = [&fixture.one, &fixture.two];
            assert_eq!(pds.map(Pd::users), [1, 1]);
            assert_eq!(pds.map(Pd::users_at_device), [Some(1), Some(0)]);
            let ended = mr.reregister(all(&fixture), ANEW);
            assert_eq!(ended.buffer, Some(vec![2; 50].into()));
            refused(ended.result.unwrap_err(), MemoryReason::OnlyDeregister);
            assert_eq!(returned(mr), memory::Returned { buffer: [1; 100].into(), other: Some([2; 50].into()) });
            fixture.users([0, 0]);
            let kept = usize::from(code == Code::CmdAndDoForkNew);
            assert_eq!(fixture.env.fabric.pages_kept_from_fork(), kept);
        }
    }
}

#[test]
fn a_driver_that_mixes_up_domains_leaves_one_busy() {
    let fixture = forked();
    let mut mr = fixture.mr();
    let fault = ReregFault::Cmd { errno: IO, left: Left::NeitherAndPdSwitched };
    struck(&fixture, &mut mr, fault, Code::Cmd, IO, Valid::Neither);
    returned(mr);
    // The machines count correctly; the device still counts a user.
    assert_eq!((fixture.one.users(), fixture.one.users_at_device()), (0, Some(1)));
    assert_eq!(fixture.one.dealloc(), Err(MemoryError::Dealloc(Errno::EBUSY)));
    assert_eq!(fixture.one.state(), cmid_sim::PdState::Live);
    fixture.two.dealloc().unwrap();
}

/// Except where memory is at stake: see `where_a_driver_was_asked_the_new_buffer_is_kept`.
#[test]
fn a_driver_that_checks_first_is_believed() {
    let policy = Policy { provider: Provider::ChecksFirst, ..Policy::default() };
    for left in [Left::Old, Left::Neither] {
        let fixture = forked();
        let mut mr = fixture.mr();
        fixture.env.host.fail_next_reregistration(ReregFault::Cmd { errno: IO, left });
        let ended = mr.reregister(all(&fixture), policy);
        // If the driver does not check first, the state of the region is wrong, but no memory is at risk.
        assert_eq!(failed(ended, "ibv_rereg_mr: ERR_CMD, EIO; the old registration is valid"), None);
        assert_eq!((mr.state(), mr.access()), (MrState::Registered, Some(RW)));
        let moved = mr.reregister(Change::default().to_access(Access::empty()), policy).result;
        let lost = "ibv_rereg_mr: ERR_CMD, EINVAL; the old registration is valid";
        let expected = if left == Left::Old { Ok(Way::InPlace) } else { Err(lost.to_owned()) };
        assert_eq!(moved.map_err(|error| error.to_string()), expected);
        fixture.users([1, 0]);
    }
}

#[test]
fn the_fallback_registers_anew() {
    for change in [1, 2, 4, 7] {
        let fixture = MemoryFixture::new(Config::default());
        let mut mr = fixture.mr();
        let (lkey, moves) = (mr.lkey(), change & 1 != 0);
        let all = all(&fixture);
        let change = Change {
            buffer: all.buffer.filter(|_| moves),
            pd: all.pd.filter(|_| change & 2 != 0),
            access: all.access.filter(|_| change & 4 != 0),
        };
        let users = if change.pd.is_some() { [0, 1] } else { [1, 0] };
        let ended = mr.reregister(change, ANEW);
        assert_eq!((ended.result, ended.buffer), (Ok(Way::Anew), moves.then(|| vec![1; 100].into())));
        assert_eq!((mr.way(), mr.lkey() == lkey), (Way::Anew, false));
        fixture.users(users);
        returned(mr);
        fixture.users([0, 0]);
    }
}

#[test]
fn a_fallback_that_fails_leaves_the_old_one() {
    let fixture = MemoryFixture::new(Config::default());
    let mut mr = fixture.mr();
    let lkey = mr.lkey();
    fixture.env.host.fail_next_registration(Errno::ENOMEM);
    let ended = mr.reregister(all(&fixture), ANEW);
    let text = "registering anew, ibv_reg_mr: ENOMEM; the old registration is valid";
    assert_eq!(failed(ended, text), Some(vec![2; 50].into()));
    fixture.users([1, 0]);
    // The deregistration of the old one is refused, so the new one is undone.
    fixture.env.host.fail_next_deregistration(Errno::EBUSY);
    let ended = mr.reregister(all(&fixture), ANEW);
    let text = "registered anew, ibv_dereg_mr of the old one: EBUSY; the old registration is valid";
    assert_eq!(failed(ended, text), Some(vec![2; 50].into()));
    fixture.users([1, 0]);
    assert_eq!((mr.lkey(), mr.state()), (lkey, MrState::Registered));
    assert_eq!(returned(mr).buffer, [1; 100]);
}

#[test]
fn a_fallback_that_gets_stuck_keeps_both_until_both_are_gone() {
    for errnos in [vec![Errno::EBUSY, Errno::EBUSY], vec![IO]] {
        let fixture = MemoryFixture::new(Config::default());
        let mut mr = fixture.mr();
        errnos.into_iter().for_each(|errno| fixture.env.host.fail_next_deregistration(errno));
        let ended = mr.reregister(all(&fixture), ANEW);
        assert!(ended.result.is_err());
        assert_eq!((ended.buffer, mr.state()), (None, MrState::Unusable));
        fixture.users([1, 1]);
        // The deregistration needs two calls, and each may fail.
        fixture.env.host.fail_next_deregistration(Errno::EBUSY);
        let (mr, _) = mr.deregister().unwrap_err();
        fixture.users([1, 1]);
        assert_eq!(returned(mr), memory::Returned { buffer: [1; 100].into(), other: Some([2; 50].into()) });
        fixture.users([0, 0]);
    }
}
