//! The types of the data path, and the default methods of its traits.

#![cfg(feature = "std")]
#![allow(clippy::unwrap_used, reason = "a test")]

mod blocks;
mod builder;
mod creations;
mod device;
mod names;

use cmid_proto::datapath::{
    Access, BatchError, Caps, CreateCall, CreateError, CreateReason, Length, PostCall, PostError, PostReason, QpState,
    Remote, SendFlags, SendOp, SendWr, Sge, SrqCaps, To, prelude::*,
};
use cmid_proto::{Errno, IdKey, Transport};
use cmid_sim::Mr;

use crate::device::bound;

#[test]
fn a_pd_and_a_cq_of_an_id_are_of_its_device() {
    let (mut drive, id) = bound();
    let device = drive.device_mut();
    assert_eq!(device.alloc_pd(id).map(|pd| pd.users()), Ok(0));
    assert_eq!(device.create_cq(id, 7).map(|cq| cq.room().depth()), Ok(7));
    assert_eq!(device.path_mtu(id), Ok(1024));
    let unknown = IdKey::from_parts(0, 9, 1).unwrap();
    let refused = CreateError::new(CreateCall::DeviceOf, Errno::ENOENT.into());
    assert_eq!(device.alloc_pd(unknown).map(drop), Err(refused));
    assert_eq!(device.create_cq(unknown, 7).map(drop), Err(refused));
    assert_eq!(device.path_mtu(unknown), Err(refused));
}

#[test]
fn a_layer_has_the_data_path_of_its_device() {
    let (mut drive, id) = bound();
    let made = drive.attach_qp(id, |layer, attaching| {
        let nic = layer.device_of(attaching.id())?;
        assert_eq!(layer.0.device_of(attaching.id()), Ok(nic.clone()));
        let (pd, cq) = (layer.alloc_pd_on(&nic)?, layer.create_cq_at(&nic, None, 32, 1)?);
        let absent = layer.create_cq_at(&nic, None, 32, nic.comp_vectors()).unwrap_err().reason();
        assert!(matches!(absent, CreateReason::NoVector { .. }), "{absent}");
        layer.async_events(&nic)?;
        let qp = layer.create_qp(attaching, &pd, &cq, &cq, Caps::default())?;
        assert_eq!((pd.users(), cq.room().reserved()), (1, 32));
        Ok(qp)
    });
    assert_eq!(made.map(|qp| qp.caps()), Ok(Caps::default()));
    drive.detach_qp(id, |layer, id| layer.destroy_qp(id)).unwrap();
    let made = drive.attach_qp(id, |layer, attaching| {
        let nic = layer.device_of(attaching.id())?;
        let (pd, channel) = (layer.alloc_pd_on(&nic)?, layer.create_comp_channel(&nic)?);
        let cq = layer.create_cq_at(&nic, Some(&channel), 24, 0)?;
        assert_eq!(cq.take_notifications(), Err(Errno::EINVAL), "those are the channel's");
        let srq = pd.create_srq(SrqCaps { max_wr: 8, max_sge: 1 })?;
        layer.create_qp_with_srq(attaching, &pd, &cq, &cq, &srq, Caps::default())
    });
    let mut qp = made.unwrap();
    assert_eq!(qp.caps(), Caps { max_recv_wr: 0, max_recv_sge: 0, ..Caps::default() });
    assert_eq!(qp.post_recv(1, [mr().sge(0..1)]).unwrap_err().reason(), PostReason::HasSrq);
}

fn mr() -> Mr {
    let (mut drive, id) = bound();
    drive.device_mut().alloc_pd(id).unwrap().register(vec![0; 9], Access::REMOTE_READ).unwrap()
}

#[test]
fn memory_is_named_by_ranges_and_addresses() {
    let mr = mr();
    let Sge { offset, len, .. } = mr.sge(2..7);
    assert_eq!((offset, len), (2, Some(5)));
    assert_eq!(mr.remote(4), Remote { addr: mr.addr() + 4, rkey: mr.rkey() });
}

#[test]
fn each_constructor_makes_its_operation() {
    let mr = mr();
    let (sge, remote) = (mr.sge(0..8), Remote { addr: 8, rkey: 2 });
    let to = To { ah: &7_u8, qp_num: 1, qkey: 2 };
    let made = |wr: SendWr<'_, Sge<'_, Mr>, u8>| (wr.wr_id, format!("{:?}", wr.op), wr.flags);
    let is = |wr, text: &str| assert_eq!(made(wr), (3, text.to_owned(), SendFlags::SIGNALED));
    is(SendWr::send(3, sge), "Send");
    is(SendWr::send_imm(3, sge, 4), "SendImm(4)");
    is(SendWr::send_invalidate(3, sge, 5), "SendInvalidate(5)");
    is(SendWr::send_to(3, sge, to), "SendTo(To { ah: 7, qp_num: 1, qkey: 2 })");
    is(SendWr::send_to_imm(3, sge, to, 6), "SendToImm(To { ah: 7, qp_num: 1, qkey: 2 }, 6)");
    is(SendWr::write(3, sge, remote), "Write(Remote { addr: 8, rkey: 2 })");
    is(SendWr::write_imm(3, sge, remote, 9), "WriteImm(Remote { addr: 8, rkey: 2 }, 9)");
    is(SendWr::read(3, sge, remote), "Read(Remote { addr: 8, rkey: 2 })");
    let text = "CompareSwap { remote: Remote { addr: 8, rkey: 2 }, compare: 1, swap: 2 }";
    is(SendWr::compare_swap(3, sge, remote, 1, 2), text);
    is(SendWr::fetch_add(3, sge, remote, 1), "FetchAdd { remote: Remote { addr: 8, rkey: 2 }, add: 1 }");
    let wr = SendWr::new(3, SendOp::SendTo(to), sge);
    // Copies are equal.
    #[expect(clippy::clone_on_copy, reason = "both ways to copy")]
    let (copy, op, range, destination) = (wr, wr.op.clone(), wr.sges.clone(), to.clone());
    assert_eq!((format!("{op:?}"), range.offset, destination.qkey), (format!("{:?}", copy.op), 0, 2));
}

#[test]
fn a_batch_that_was_posted_in_part_says_how_far() {
    let error = PostError::new(PostCall::Send, 17, PostReason::Device(Errno::ENOMEM));
    let text = "2 work requests are posted, the next one is not: post_send on QP 17: the device returned ENOMEM, and may \
                execute the request nevertheless";
    let batch = BatchError { posted: 2, error };
    assert_eq!((batch.to_string().as_str(), batch.errno()), (text, Errno::ENOMEM));
    assert_eq!((Errno::from(batch), Errno::from(error)), (Errno::ENOMEM, Errno::ENOMEM));
}

/// What is not posted, and why, with the limits.
#[test]
fn a_post_error_names_the_call_the_queue_and_the_cause() {
    let is = |call, reason: PostReason, errno, text: &str| {
        let error = PostError::new(call, 0x12_3456, reason);
        assert_eq!((error.call(), error.num(), error.reason(), error.errno()), (call, 0x12_3456, reason, errno));
        assert_eq!(error.to_string(), text);
        assert_eq!(format!("{error:?}"), text, "`main` prints the Debug form");
    };
    let early = "post_send on QP 1193046: the QP is in INIT, and sends from RTS on";
    is(PostCall::Send, PostReason::TooEarly(QpState::INIT), Errno::EINVAL, early);
    let len = Length::new(1 << 40);
    let range = "post_recv on SRQ 1193046: a range ends beyond its MR of 1099511627776 bytes";
    is(PostCall::SrqRecv, PostReason::OutOfRange { len }, Errno::EINVAL, range);
    let read_only = "post_recv on QP 1193046: the MR is read-only: it is registered without LOCAL_WRITE";
    is(PostCall::Recv, PostReason::ReadOnly, Errno::EINVAL, read_only);
    let full = "post_recv on QP 1193046: the queue is full: it holds 16 requests, each until its completion is polled";
    is(PostCall::Recv, PostReason::QueueFull { max: 16 }, Errno::ENOMEM, full);
    let ranges = "post_send on QP 1193046: 4 ranges, more than the queue's maximum of 3";
    is(PostCall::Send, PostReason::TooManyRanges { ranges: 4, max: 3 }, Errno::EINVAL, ranges);
    let iwarp = "post_send on QP 1193046: iWARP has no such operation";
    is(PostCall::Send, PostReason::NotOfTransport(Transport::Iwarp), Errno::EOPNOTSUPP, iwarp);
    let lacks = PostReason::LacksRight(Access::MW_BIND | Access::LOCAL_WRITE);
    is(
        PostCall::Bind,
        lacks,
        Errno::EINVAL,
        "post_bind on QP 1193046: the bind needs an MR with LOCAL_WRITE | MW_BIND",
    );
    let rights = PostReason::NotOfWindow(Access::from_bits_retain(1 << 30 | 1));
    let text = "post_invalidate on QP 1193046: a window has no other rights than those of a peer, and \
                LOCAL_WRITE | 0x40000000 are given";
    is(PostCall::Invalidate, rights, Errno::EINVAL, text);
    assert!(size_of::<Result<(), PostError>>() <= 16);
}
