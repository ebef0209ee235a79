use super::*;
use crate::datapath::WcStatus;

const BIND: Bind = Bind { qp_num: 17, lkey: 1, rkey: 0x102, access: Access::REMOTE_WRITE };
const LOCAL: Completion = Completion {
    wr_id: 0,
    status: WcStatus::SUCCESS,
    opcode: WcOpcode::LOCAL_INV,
    vendor_err: 0,
    byte_len: 0,
    imm_data: 0,
    qp_num: 17,
    src_qp: 0,
    flags: WcFlags::empty(),
    pkey_index: 0,
    slid: 0,
    sl: 0,
    dlid_path_bits: 0,
};
const RECEIVED: Completion =
    Completion { opcode: WcOpcode::RECV, flags: WcFlags::WITH_INV, imm_data: BIND.rkey, ..LOCAL };

fn bound() -> Bindings {
    let mut bindings = Bindings::new();
    bindings.bind(1, BIND);
    bindings
}

#[track_caller]
fn invalidate(bindings: &mut Bindings, window: u64, qp_num: u32) -> u64 {
    assert!(bindings.may_invalidate(window, qp_num));
    bindings.invalidate(window, qp_num)
}

#[test]
fn invalidations_end_bindings_and_other_completions_do_not() {
    let received = |flags| Completion { opcode: WcOpcode::RECV, flags, ..LOCAL };
    let failed = |completion| Completion { status: WcStatus::WR_FLUSH_ERR, ..completion };
    let by_peer = received(WcFlags::WITH_INV);
    assert!([LOCAL, by_peer, received(WcFlags::IP_CSUM_OK)].iter().all(Bindings::concerns));
    let sent = Completion { opcode: WcOpcode::SEND, ..by_peer };
    let data = received(WcFlags::WITH_INV.union(WcFlags::WITH_IMM));
    let others = [failed(LOCAL), failed(by_peer), received(WcFlags::empty()), sent, data];
    assert!(!others.iter().any(Bindings::concerns));
}

#[test]
fn a_window_has_a_limited_number_of_binds_that_count() {
    let mut bindings = Bindings::new();
    for _ in 0..Bindings::BINDS_MAX {
        assert!(bindings.may_bind(1));
        bindings.bind(1, BIND);
    }
    assert_eq!((bindings.may_bind(1), bindings.may_bind(2)), (false, true));
    bindings.dealloc(1);
    assert!(bindings.may_bind(1));
}

/// Invalidations that fail are not polled as successes, also if each window is deallocated.
#[test]
fn a_qp_that_has_failed_has_a_limited_number_of_invalidations() {
    let mut bindings = Bindings::new();
    for window in 0..Bindings::INVALIDATIONS_MAX as u64 {
        assert!(bindings.may_bind(window));
        bindings.bind(window, BIND);
        invalidate(&mut bindings, window, 17);
        bindings.handle_completion(&Completion { status: WcStatus::WR_FLUSH_ERR, ..LOCAL });
        bindings.dealloc(window);
    }
    assert!(!bindings.may_bind(1));
    bindings.reuse(17);
    assert!(bindings.may_bind(1));
}

#[test]
fn a_binding_counts_until_its_invalidation_was_polled() {
    let mut bindings = bound();
    assert_eq!((bindings.of(1), bindings.of(2)), (Some(Access::REMOTE_WRITE), None));
    invalidate(&mut bindings, 1, 17);
    assert!(!bindings.may_invalidate(1, 17), "twice");
    bindings.handle_completion(&Completion { qp_num: 18, ..LOCAL });
    bindings.handle_completion(&Completion { status: WcStatus::WR_FLUSH_ERR, ..LOCAL });
    bindings.handle_completion(&Completion { opcode: WcOpcode::BIND_MW, ..LOCAL });
    assert_eq!(bindings.traffic(1), Traffic::WindowBound);
    assert_eq!((bindings.is_bound(1, BIND.rkey), bindings.is_bound(1, 0x103)), (true, false));
    bindings.handle_completion(&LOCAL);
    assert_eq!((bindings.traffic(1), bindings.bindings.len(), bindings.invalidations.len()), (Traffic::Quiet, 0, 0));
    assert!(!bindings.may_invalidate(1, 17), "it is not bound");
}

#[test]
fn a_bind_after_an_invalidation_is_another_binding() {
    let mut bindings = bound();
    invalidate(&mut bindings, 1, 17);
    bindings.bind(1, Bind { lkey: 2, rkey: 0x103, access: Access::REMOTE_READ, ..BIND });
    bindings.handle_completion(&LOCAL);
    assert_eq!((bindings.of(1), bindings.of(2)), (None, Some(Access::REMOTE_READ)));
    assert!(!bindings.may_invalidate(1, 18), "it was not bound through this QP");
    invalidate(&mut bindings, 1, 17);
}

#[test]
fn a_bind_through_another_qp_stays_until_the_deallocation() {
    let mut bindings = bound();
    bindings.bind(1, Bind { qp_num: 18, lkey: 2, ..BIND });
    invalidate(&mut bindings, 1, 18);
    bindings.handle_completion(&Completion { qp_num: 18, ..LOCAL });
    assert_eq!((bindings.of(1).is_some(), bindings.of(2)), (true, None));
    bindings.dealloc(1);
    assert_eq!(bindings.of(1), None);
}

#[test]
fn the_peer_ends_a_binding_by_its_key() {
    for flags in [WcFlags::WITH_INV, WcFlags::IP_CSUM_OK] {
        let mut bindings = bound();
        let received = Completion { opcode: WcOpcode::RECV, flags, imm_data: BIND.rkey, ..LOCAL };
        bindings.handle_completion(&Completion { imm_data: BIND.rkey + 1, ..received });
        bindings.handle_completion(&Completion { flags: WcFlags::WITH_IMM, ..received });
        bindings.handle_completion(&Completion { flags: flags.union(WcFlags::WITH_IMM), ..received });
        assert!(bindings.of(1).is_some());
        bindings.handle_completion(&received);
        assert_eq!(bindings.of(1), None);
        assert!(!bindings.may_invalidate(1, 17));
    }
}

#[test]
fn the_peer_ends_the_first_of_two_bindings_with_one_key() {
    let mut bindings = bound();
    bindings.bind(1, Bind { lkey: 2, ..BIND });
    bindings.handle_completion(&RECEIVED);
    assert_eq!((bindings.of(1), bindings.of(2)), (None, Some(BIND.access)));
    assert!(bindings.is_bound(1, BIND.rkey));
    bindings.handle_completion(&RECEIVED);
    assert_eq!((bindings.of(2), bindings.is_bound(1, BIND.rkey)), (None, false));
}

/// The device gives a key again, and the receive is polled after that.
#[test]
fn the_invalidation_of_a_deallocated_window_ends_no_later_binding_with_its_key() {
    let before: [fn(&mut Bindings); 2] = [|it| _ = invalidate(it, 1, 17), |it| it.bind_failed(1)];
    for before in before {
        let mut bindings = bound();
        before(&mut bindings);
        bindings.dealloc(1);
        bindings.bind(2, BIND);
        bindings.handle_completion(&RECEIVED);
        assert!(bindings.is_bound(2, BIND.rkey));
    }
    let mut bindings = bound();
    bindings.dealloc(1);
    bindings.bind(2, Bind { lkey: 2, ..BIND });
    bindings.bind(3, Bind { rkey: 0x203, lkey: 3, ..BIND });
    bindings.handle_completion(&RECEIVED);
    bindings.handle_completion(&Completion { imm_data: 0x203, ..RECEIVED });
    assert_eq!([2, 3].map(|lkey| bindings.of(lkey)), [Some(BIND.access), None]);
    assert!(!bindings.may_invalidate(2, 17), "it may be unbound");
    bindings.dealloc(2);
    // This side's own invalidation ends the binding, whatever was received before.
    bindings.bind(4, BIND);
    invalidate(&mut bindings, 4, 17);
    bindings.handle_completion(&RECEIVED);
    assert!(bindings.is_bound(4, BIND.rkey));
    bindings.handle_completion(&LOCAL);
    assert!(!bindings.is_bound(4, BIND.rkey));
    // Another QP, and one that gets the number, have no such receives.
    bindings.bind(5, Bind { qp_num: 18, ..BIND });
    bindings.handle_completion(&Completion { qp_num: 18, ..RECEIVED });
    bindings.reuse(17);
    bindings.bind(6, BIND);
    bindings.handle_completion(&RECEIVED);
    assert_eq!(bindings.of(1), None);
}

/// The receive of the first binding is polled when the window has its key again.
#[test]
fn the_invalidation_of_a_window_that_was_bound_again_ends_no_later_binding_with_its_key() {
    let mut bindings = bound();
    bindings.bind(1, Bind { rkey: 0x103, ..BIND });
    invalidate(&mut bindings, 1, 17);
    bindings.handle_completion(&LOCAL);
    assert_eq!(bindings.of(1), None);
    bindings.bind(1, BIND);
    bindings.handle_completion(&RECEIVED);
    assert!(bindings.is_bound(1, BIND.rkey));
    bindings.bind(2, Bind { rkey: 0x103, ..BIND });
    bindings.handle_completion(&Completion { imm_data: 0x103, ..RECEIVED });
    assert!(!bindings.is_bound(2, 0x103), "this side has invalidated the other one with its key");
}

#[test]
fn a_qp_has_a_limited_number_of_keys_of_deallocated_windows() {
    let mut bindings = Bindings::new();
    for window in 0..=Bindings::LEFT_MAX as u32 {
        bindings.bind(window.into(), Bind { rkey: window, ..BIND });
        bindings.dealloc(window.into());
    }
    assert_eq!(bindings.left[&17].len(), Bindings::LEFT_MAX);
    bindings.bind(1, Bind { rkey: u32::MAX, ..BIND });
    bindings.handle_completion(&Completion { imm_data: u32::MAX, ..RECEIVED });
    assert!(bindings.is_bound(1, u32::MAX), "the key may have been that of one that is not recorded");
}

/// The provider may have queued the refused bind, and the peer may have invalidated that one.
#[test]
fn the_peer_ends_no_binding_with_the_key_of_a_refused_one() {
    let mut bindings = bound();
    bindings.bind_failed(1);
    bindings.bind(1, Bind { lkey: 2, ..BIND });
    bindings.handle_completion(&RECEIVED);
    assert_eq!([1, 2].map(|lkey| bindings.of(lkey)), [Some(BIND.access); 2]);
}

#[test]
fn a_failed_post_ends_only_with_the_window() {
    let mut bindings = bound();
    bindings.bind_failed(1);
    assert!(!bindings.may_invalidate(1, 17), "it may be unbound");
    bindings.bind(2, Bind { lkey: 2, ..BIND });
    bindings.bind(3, Bind { lkey: 3, ..BIND });
    let failed = invalidate(&mut bindings, 2, 17);
    invalidate(&mut bindings, 3, 17);
    // Another thread has posted to another QP meanwhile.
    bindings.invalidate_failed(failed);
    // Of the first one, if it was queued.
    bindings.handle_completion(&LOCAL);
    assert!([1, 2, 3].into_iter().all(|lkey| bindings.of(lkey).is_some()));
    bindings.handle_completion(&LOCAL);
    assert_eq!([1, 2, 3].map(|lkey| bindings.of(lkey).is_some()), [true, true, false]);
    (1..=2).for_each(|window| bindings.dealloc(window));
    assert_eq!([1, 2].map(|lkey| bindings.of(lkey)), [None, None]);
}

#[test]
fn a_new_qp_of_the_same_number_inherits_no_invalidation() {
    let mut bindings = bound();
    invalidate(&mut bindings, 1, 17);
    bindings.dealloc(1);
    bindings.reuse(17);
    bindings.bind(2, BIND);
    invalidate(&mut bindings, 2, 17);
    bindings.handle_completion(&LOCAL);
    assert_eq!(bindings.of(1), None);
}
