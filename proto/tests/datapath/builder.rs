//! QPs with their PDs and CQs in one call.

use cmid_proto::datapath::{
    Capacity, Caps, CreateError, CreateReason, ModifyReason, QpAttr, QpAttrs, QpParts, SrqCaps, prelude::*,
};
use cmid_proto::{Drive, Error, Failure, FailureCause};
use cmid_sim::Cq;

use crate::device::{Layer, bound};

#[test]
fn without_a_wish_the_pd_and_the_cq_are_new_and_the_cq_fits() {
    let (mut drive, id) = bound();
    let QpParts { qp, pd, cq } = drive.qp(id).attach().unwrap();
    assert_eq!((qp.caps(), pd.users()), (Caps::default(), 1));
    assert_eq!((cq.room().depth(), cq.room().reserved()), (32, 32));
    assert!(drive.core().id_info(id).unwrap().has_qp);
    let num = qp.num();
    assert_eq!(format!("{:?}", QpParts::<Layer> { qp, pd, cq }), format!("QpParts(QP {num})"));
    let again = drive.qp(id).attach().unwrap_err();
    assert!(matches!(again, Error::Refused(_)), "{again}");
    assert!(format!("{:?}", drive.qp(id)).starts_with("QpBuilder { caps: Caps {"));
}

/// What a device has refused.
fn cause<C>(attached: Result<QpParts<Layer, C>, Error>) -> CreateError {
    match attached {
        Err(Error::Failed(Failure { cause: Some(FailureCause::Create(refused)), .. })) => refused,
        other => panic!("{:?}", other.map(drop)),
    }
}

#[test]
fn each_wish_is_carried_out() {
    let (mut drive, id) = bound();
    let depth = |cq: &Cq| cq.room().depth();
    let detach = |drive: &mut Drive<Layer>| drive.detach_qp(id, |layer, id| layer.destroy_qp(id)).unwrap();
    let QpParts { pd, cq: one, .. } = drive.qp(id).cq(37).attach().unwrap();
    assert_eq!(depth(&one), 37);
    detach(&mut drive);
    let QpParts { cq: two, .. } = drive.qp(id).cq((17, 18)).attach().unwrap();
    assert_eq!((depth(&two.0), depth(&two.1)), (17, 18));
    detach(&mut drive);
    let caps = Caps { max_send_wr: 4, max_recv_wr: u32::MAX, ..Caps::default() };
    let refused = cause(drive.qp(id).caps(caps).attach());
    let is_all = matches!(refused.reason(), CreateReason::TooLarge { capacity: Capacity::Depth, asked: u32::MAX, .. });
    assert!(is_all, "no overflow: {refused}");
    let srq = pd.create_srq(SrqCaps { max_wr: 100, max_sge: 1 }).unwrap();
    let on_srq = drive.qp(id).pd(&pd).srq(&srq).caps(caps).attach().unwrap();
    assert_eq!((depth(&on_srq.cq), on_srq.qp.caps().max_recv_wr), (104, 0));
    drop(on_srq);
    detach(&mut drive);
    let shared = drive.qp(id).pd(&pd).cq(&one).attach().unwrap();
    assert_eq!((shared.cq.num(), pd.users()), (one.num(), 2), "the SRQ and the QP");
    drop(shared);
    detach(&mut drive);
    let shared = drive.qp(id).pd(&pd).cq((&two.1, &two.0)).attach().unwrap();
    assert_eq!((shared.cq.0.num(), shared.cq.1.num()), (two.1.num(), two.0.num()));
    assert_eq!(shared.qp.caps(), Caps::default());
}

#[test]
fn a_part_that_cannot_be_made_is_named_and_the_id_has_no_qp() {
    let (mut drive, id) = bound();
    let attrs = QpAttrs { retry_count: Some(8), ..QpAttrs::default() };
    let reason = ModifyReason::TooLarge { attr: QpAttr::RetryCount, asked: 8, max: 7 };
    let refused = cause(drive.qp(id).attrs(attrs).attach());
    assert!(matches!(refused.reason(), CreateReason::Modify(error) if error.reason == reason), "{refused}");
    assert!(!drive.core().id_info(id).unwrap().has_qp);
    drive.attach_qp(id, QpParts::attach).unwrap();
}
