//! QPs with their PDs and CQs in one call.

use cmid_proto::datapath::{
    Caps, CompletionQueue, CreateError, DataPath, ModifyError, ModifyReason, ProtectionDomain, QpAttr, QpAttrs,
    QpParts, QueuePair, SrqCaps,
};
use cmid_proto::{Acks, Drive, Errno, Error, FailureCause, IdKey, Limits, PortSpace};

use crate::device::{Layer, Log, Paths};

/// A drive with a bound id.
fn bound() -> (Drive<Layer>, IdKey) {
    let mut drive = Drive::new(Layer(Paths::default()), Limits::SINGLE);
    let channel = drive.open_channel(Acks::OnDelivery).unwrap();
    let id = drive.create_id(Some(channel), PortSpace::Tcp).unwrap();
    drive.bind(id, "10.0.0.1:1".parse().unwrap()).unwrap();
    (drive, id)
}

#[test]
fn without_a_wish_the_pd_and_the_cq_are_new_and_the_cq_fits() {
    let (mut drive, id) = bound();
    let QpParts { qp, pd, cq } = drive.qp(id).attach().unwrap();
    assert_eq!((qp.num(), pd.users(), cq.num()), (9, 0, 32));
    assert_eq!(
        drive.device().0.log,
        [Log::DeviceOf, Log::AllocPd(3), Log::CreateCq(3, false, 32, 0), Log::CreateQp(None, 16, 16)]
    );
    assert!(drive.core().id_info(id).unwrap().has_qp);
    assert_eq!(format!("{:?}", QpParts::<Layer> { qp, pd, cq }), "QpParts(QP 9)");
    let again = drive.qp(id).attach().unwrap_err();
    assert!(matches!(again, Error::Refused(_)), "{again}");
    assert!(format!("{:?}", drive.qp(id)).starts_with("QpBuilder { caps: Caps {"));
}

#[test]
fn each_wish_is_carried_out() {
    let (mut drive, id) = bound();
    let caps = Caps { max_send_wr: 4, max_recv_wr: u32::MAX, ..Caps::default() };
    let detach = |drive: &mut Drive<Layer>| drive.detach_qp(id, |layer, id| layer.destroy_qp(id)).unwrap();
    let first = drive.qp(id).cq(7).attach().unwrap();
    assert_eq!(first.cq.num(), 7);
    detach(&mut drive);
    let two = drive.qp(id).cq((5, 6)).attach().unwrap();
    assert_eq!((two.cq.0.num(), two.cq.1.num()), (5, 6));
    detach(&mut drive);
    assert_eq!(drive.qp(id).caps(caps).attach().unwrap().cq.num(), u32::MAX, "no overflow");
    detach(&mut drive);
    let srq = first.pd.create_srq(SrqCaps { max_wr: 100, max_sge: 1 }).unwrap();
    assert_eq!(drive.qp(id).pd(&first.pd).srq(&srq).caps(caps).attach().unwrap().cq.num(), 104);
    detach(&mut drive);
    drive.device_mut().0.log.clear();
    let shared = drive.qp(id).pd(&first.pd).cq(&first.cq).attach().unwrap();
    assert_eq!(shared.cq.num(), 7);
    detach(&mut drive);
    let shared = drive.qp(id).pd(&first.pd).cq((&two.cq.1, &two.cq.0)).attach().unwrap();
    assert_eq!((shared.cq.0.num(), shared.cq.1.num()), (6, 5));
    let none_new =
        [Log::DeviceOf, Log::CreateQp(None, 16, 16), Log::DestroyQp, Log::DeviceOf, Log::CreateQp(None, 16, 16)];
    assert_eq!(drive.device().0.log, none_new);
}

#[test]
fn a_part_that_cannot_be_made_is_named_and_the_id_has_no_qp() {
    let (mut drive, id) = bound();
    let cause = |error| match error {
        Error::Failed(failure) => failure.cause,
        Error::Refused(_) | Error::Fault(_) => None,
    };
    let attrs = QpAttrs { retry_count: Some(8), ..QpAttrs::default() };
    let reason = ModifyReason::TooLarge { attr: QpAttr::RetryCount, asked: 8, max: 7 };
    let refused = CreateError::from(ModifyError { num: 9, reason });
    assert_eq!(cause(drive.qp(id).attrs(attrs).attach().unwrap_err()), Some(FailureCause::Create(refused)));
    assert_eq!((refused.errno(), refused.to_string()), (Errno::EINVAL, ModifyError { num: 9, reason }.to_string()));
    assert!(!drive.core().id_info(id).unwrap().has_qp);
    drive.device_mut().0.fails = true;
    let failed = drive.attach_qp(id, QpParts::attach).unwrap_err();
    assert_eq!(failed.errno(), Errno::ENODEV);
}
