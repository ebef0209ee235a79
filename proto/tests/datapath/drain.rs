//! The drain of a QP.

use cmid_proto::datapath::{Completion, Drain, DrainError, Draining, PostReason, QpState, Unpolled};
use cmid_proto::{Errno, Time};

use crate::device::{Cq, Qp};

const DEADLINE: Time = Time(100);

/// A QP in its error state that answers so when it is asked what is left: sends and receives.
fn ended(left: &[(u32, u32)]) -> Qp {
    let qp = Qp { state: Ok(QpState::ERR), ..Qp::default() };
    qp.left.replace(left.iter().map(|&(sends, receives)| Unpolled { sends, receives }).collect());
    qp
}

/// A CQ of depth 40 with these results of polls.
fn cq(ready: &[usize]) -> Cq {
    Cq::new(40, ready.iter().map(|&polled| Ok(polled)).collect())
}

#[test]
fn a_drain_is_over_when_nothing_of_the_qp_is_left() {
    let (mut qp, mut send_cq, mut recv_cq) = (ended(&[(0, 2), (0, 0)]), cq(&[2, 0, 0]), cq(&[1, 0, 2, 0]));
    let (mut drain, mut taken) = (Drain::until(DEADLINE), 0);
    let mut poll = || drain.poll(Time(1), &mut qp, &mut [&mut send_cq, &mut recv_cq], |_| taken += 1);
    assert_eq!([poll(), poll()], [Ok(Draining::Waits), Ok(Draining::Over)]);
    assert_eq!((taken, qp.sent), (5, vec![]));
}

#[test]
fn a_last_send_flushes_what_has_no_completion_and_is_not_reported() {
    let (mut qp, mut cq) = (ended(&[(1, 0), (2, 0), (2, 0), (0, 0)]), cq(&[0, 0, 1, 0, 1, 0]));
    let (mut drain, mut taken) = (Drain::until(DEADLINE), Vec::new());
    let mut poll = |cq: &mut Cq| drain.poll(Time(1), &mut qp, &mut [cq], |completion| taken.push(completion.qp_num));
    assert_eq!(poll(&mut cq), Ok(Draining::Waits));
    for (qp_num, drained) in [(8, Draining::Waits), (9, Draining::Over)] {
        cq.completion = Completion { wr_id: Drain::MARK, qp_num, ..Completion::default() };
        assert_eq!(poll(&mut cq), Ok(drained));
    }
    assert_eq!((taken, qp.sent), (vec![8], vec![Drain::MARK]));
}

/// As that of a future that was dropped.
#[test]
fn the_last_send_of_an_earlier_drain_is_not_reported_either() {
    let (mut qp, mut cq, mut taken) = (ended(&[(1, 0), (2, 0), (0, 0)]), cq(&[0, 0, 1, 0]), 0);
    cq.completion = Completion { wr_id: Drain::MARK, qp_num: 9, ..Completion::default() };
    for drained in [Draining::Waits, Draining::Over] {
        assert_eq!(Drain::until(DEADLINE).poll(Time(1), &mut qp, &mut [&mut cq], |_| taken += 1), Ok(drained));
    }
    assert_eq!(taken, 0);
}

#[test]
fn a_full_queue_gets_the_last_send_later_and_a_datagram_qp_none() {
    let mut qp = ended(&[(1, 0); 5]);
    qp.refusals = vec![PostReason::QueueFull { max: 1 }];
    let (mut drain, mut empty) = (Drain::until(DEADLINE), cq(&[0; 5]));
    for sent in [0, 1, 1] {
        assert_eq!(drain.poll(Time(1), &mut qp, &mut [&mut empty], |_| ()), Ok(Draining::Waits));
        assert_eq!(qp.sent.len(), sent);
    }
    let mut qp = ended(&[(1, 0); 4]);
    qp.refusals = vec![PostReason::IsDatagram];
    let (mut drain, mut empty) = (Drain::until(DEADLINE), cq(&[0; 4]));
    for _ in 0..2 {
        assert_eq!(drain.poll(Time(1), &mut qp, &mut [&mut empty], |_| ()), Ok(Draining::Waits));
    }
    assert!(qp.sent.is_empty());
}

#[test]
fn a_drain_ends_at_its_deadline_with_what_is_left_and_polls_before() {
    let (mut qp, mut cq) = (ended(&[(0, 3), (0, 3), (0, 2)]), cq(&[0, 0, 1, 0]));
    let (mut drain, mut taken) = (Drain::until(DEADLINE), 0);
    let mut poll = |now| drain.poll(Time(now), &mut qp, &mut [&mut cq], |_| taken += 1);
    assert_eq!([poll(1), poll(99)], [Ok(Draining::Waits); 2]);
    let error = poll(100).unwrap_err();
    assert_eq!((error, error.errno()), (DrainError::TimedOut(Unpolled { sends: 0, receives: 2 }), Errno::ETIMEDOUT));
    assert_eq!(error.to_string(), "timed out: 0 requests of the send queue and 2 receives are left");
    assert_eq!(taken, 1);
}

#[test]
fn a_qp_that_works_is_not_drained_and_an_unknown_state_is_no_reason() {
    for (state, refused) in
        [(Ok(QpState::INIT), true), (Ok(QpState::RTS), true), (Ok(QpState::SQE), false), (Err(Errno::EIO), false)]
    {
        let mut qp = Qp { state, ..ended(&[]) };
        let drained = Drain::until(DEADLINE).poll(Time(1), &mut qp, &mut [&mut cq(&[0])], |_| ());
        assert_eq!(drained.is_err(), refused, "{state:?}");
        if let (Err(error), Ok(state)) = (drained, state) {
            assert_eq!((error, error.errno()), (DrainError::NotEnded(state), Errno::EINVAL));
        }
    }
}

#[test]
fn one_poll_takes_at_most_what_a_cq_has_room_for() {
    // The CQ is never empty, because of other QPs.
    let (mut qp, mut busy) = (ended(&[(0, 1)]), cq(&[16; 9]));
    let mut taken = 0;
    let drained = Drain::until(DEADLINE).poll(Time(1), &mut qp, &mut [&mut busy], |_| taken += 1);
    assert_eq!((drained, taken), (Ok(Draining::Waits), 48));
}

#[test]
fn the_error_of_a_poll_ends_a_drain() {
    let mut broken = cq(&[]);
    broken.ready = vec![Err(Errno::EIO)];
    let drained = Drain::until(DEADLINE).poll(Time(1), &mut ended(&[]), &mut [&mut broken], |_| ());
    assert_eq!(drained, Err(DrainError::Device(Errno::EIO)));
}
