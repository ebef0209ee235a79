//! The errors of creations: their texts, their errnos, and the checks of capacities.

use cmid_proto::datapath::{
    Caps, CqRoom, CreateCall, CreateError, CreateReason, DeviceName, DrainError, Maxima, ModifyError, ModifyReason,
    OfDevice, PostCall, PostError, PostReason, SrqCaps, Unpolled, Unposted,
};
use cmid_proto::memory::{self, MemoryError, MemoryReason, MemoryRequest, MemoryTarget};
use cmid_proto::{Errno, ErrorWith};
use cmid_sim::Piece;

const MAXIMA: Maxima = Maxima { qp_wr: 64, sge: 4, inline: 100, cqe: 128, comp_vectors: 2, srq_wr: 32, srq_sge: 3 };

fn text(reason: Option<CreateReason>) -> String {
    reason.map_or_else(String::new, |reason| reason.to_string())
}

#[test]
fn the_capacity_that_is_too_large_is_named_with_its_maximum() {
    let most = Caps { max_send_wr: 64, max_recv_wr: 64, max_send_sge: 4, max_recv_sge: 4, max_inline: 100 };
    assert_eq!(MAXIMA.qp(&most), None);
    assert_eq!(
        MAXIMA.qp(&Caps { max_send_wr: 0, max_recv_wr: 0, max_send_sge: 0, max_recv_sge: 0, max_inline: 0 }),
        None
    );
    for (caps, expected) in [
        (Caps { max_send_wr: 65, ..most }, "max_send_wr 65, more than the device's maximum of 64"),
        (Caps { max_recv_wr: u32::MAX, ..most }, "max_recv_wr 4294967295, more than the device's maximum of 64"),
        (Caps { max_send_sge: 5, ..most }, "max_send_sge 5, more than the device's maximum of 4"),
        (Caps { max_recv_sge: 6, ..most }, "max_recv_sge 6, more than the device's maximum of 4"),
        (Caps { max_inline: 101, ..most }, "max_inline 101, more than the device's maximum of 100"),
    ] {
        assert_eq!(text(MAXIMA.qp(&caps)), expected);
    }
    for (depth, vector, expected) in [
        (1, 0, ""),
        (128, 1, ""),
        (0, 0, "depth 0: at least 1 is needed"),
        (129, 0, "depth 129, more than the device's maximum of 128"),
        (1, 2, "completion vector 2: the device has 2, counted from 0"),
    ] {
        assert_eq!(text(MAXIMA.cq(depth, vector)), expected);
    }
    for (max_wr, max_sge, expected) in [
        (1, 0, ""),
        (32, 3, ""),
        (0, 1, "max_wr 0: at least 1 is needed"),
        (33, 1, "max_wr 33, more than the device's maximum of 32"),
        (1, 4, "max_sge 4, more than the device's maximum of 3"),
    ] {
        assert_eq!(text(MAXIMA.srq(SrqCaps { max_wr, max_sge })), expected);
    }
}

#[test]
fn an_error_names_its_call_and_its_object() {
    let [one, two] = [DeviceName::new(b"rxe0"), DeviceName::new(b"rxe1")];
    let other = |of| CreateReason::OtherDevice { object: OfDevice::SendCq, of, on: one };
    let node = CreateReason::Node { node: DeviceName::new(b"uverbs0"), errno: Errno::EACCES };
    let overrun = CqRoom::new(4).check(5).unwrap_err();
    let pd = CreateReason::Pd(memory::MemoryReason::DeviceGone);
    for (call, reason, errno, expected) in [
        (CreateCall::CreateQp, other(two), Errno::EINVAL, "create_qp: the CQ of sends is of rxe1, not of rxe0"),
        (
            CreateCall::CreateQp,
            other(one),
            Errno::EINVAL,
            "create_qp: the CQ of sends is of rxe0 as opened another time",
        ),
        (CreateCall::DeviceOf, node, Errno::EACCES, "device_of: /dev/infiniband/uverbs0 cannot be opened: EACCES"),
        (
            CreateCall::CreateQp,
            CreateReason::Overrun(overrun),
            Errno::EOVERFLOW,
            "create_qp: 5 more work requests would overrun the CQ of depth 4, which has 0 already",
        ),
        (CreateCall::CreateSrq, pd, Errno::EIO, "create_srq: the PD: its device is gone"),
        (CreateCall::AllocPd, Errno::ENOMEM.into(), Errno::ENOMEM, "alloc_pd: ENOMEM"),
        (CreateCall::CreateQp, CreateReason::OtherPd, Errno::EINVAL, "create_qp: the SRQ is of another PD"),
        (CreateCall::CreateQp, CreateReason::HasQp, Errno::EINVAL, "create_qp: the id has a QP"),
        (CreateCall::CreateCompChannel, Errno::EMFILE.into(), Errno::EMFILE, "create_comp_channel: EMFILE"),
        (CreateCall::CreateCq, Errno::ENODEV.into(), Errno::ENODEV, "create_cq: ENODEV"),
    ] {
        let error = CreateError::new(call, reason);
        assert_eq!((error.to_string().as_str(), error.errno()), (expected, errno));
        assert_eq!((error.call(), error.reason(), Errno::from(error)), (Some(call), reason, errno));
        assert_eq!(format!("{error:?}"), expected, "main prints the Debug form");
        assert_eq!(std::io::Error::from(error).to_string(), expected);
    }
}

/// In the closure of `attach_qp`, the question mark converts each of them.
#[test]
fn the_other_errors_of_a_closure_convert_and_keep_their_text() {
    let post = PostError::new(PostCall::Recv, 17, PostReason::HasSrq);
    let registered = memory::MemoryError::register(Errno::ENOMEM, 4096, Some(1024));
    let of = |error: CreateError| (error.call(), error.to_string(), error.errno());
    assert_eq!(of(Errno::EPERM.into()), (None, "EPERM".into(), Errno::EPERM));
    assert_eq!(of(post.into()), (None, post.to_string(), Errno::EINVAL));
    assert_eq!(
        of(ErrorWith { given: vec![0_u8], error: registered }.into()),
        (None, registered.to_string(), Errno::ENOMEM)
    );
}

#[test]
fn a_name_is_kept_up_to_16_bytes() {
    let kept = |name: &str| DeviceName::new(name.as_bytes()).as_str().to_owned();
    assert_eq!(kept("mlx5_bond_0"), "mlx5_bond_0");
    assert_eq!(
        (kept("rocep129s0f0np0x"), kept("rocep129s0f0np0xy")),
        ("rocep129s0f0np0x".into(), "rocep129s0f0n...".into())
    );
    assert_eq!((kept(""), kept("a b\u{e9}\n")), (String::new(), "a?b???".into()));
}

#[test]
fn an_attach_closure_returns_each_error_of_the_data_path_with_its_reason() {
    let post = PostError::new(PostCall::Recv, 7, PostReason::EmptyBatch);
    let modify = ModifyError { num: 7, reason: ModifyReason::IsDatagram };
    let memory: MemoryError = memory::MemoryRefused {
        request: MemoryRequest::Register,
        target: MemoryTarget::Mr(None),
        reason: MemoryReason::NoBlock,
    }
    .into();
    let unposted = || Unposted::<Piece> { error: post, given: None };
    for (error, reason) in [
        (CreateError::from(post), CreateReason::Post(post)),
        (unposted().into(), CreateReason::Post(post)),
        (modify.into(), CreateReason::Modify(modify)),
        (ErrorWith { given: vec![0_u8], error: memory }.into(), CreateReason::Register(memory)),
        (Errno::ENOMEM.into(), CreateReason::Device(Errno::ENOMEM)),
    ] {
        assert_eq!((error.call(), error.reason()), (None, reason));
    }
    assert_eq!((PostError::from(unposted()), Errno::from(unposted())), (post, post.errno()));
    assert_eq!((unposted().to_string(), format!("{:?}", unposted())), (post.to_string(), format!("{post:?}")));
    assert_eq!(Errno::from(modify), Errno::EINVAL);
    assert_eq!(Errno::from(DrainError::TimedOut(Unpolled::default())), Errno::ETIMEDOUT);
    assert_eq!(Errno::from(DrainError::Device(Errno::EIO)), Errno::EIO);
}
