//! The types of the data path, and the default methods of its traits.

#![cfg(feature = "std")]
#![allow(clippy::unwrap_used, reason = "a test")]

mod blocks;
mod builder;
mod creations;
mod device;
mod drain;
mod memory;
mod names;
mod queues;

use cmid_proto::datapath::{
    Access, BatchError, Caps, Completion, CompletionQueue, DataPath, Length, MemoryRegion, PostCall, PostError,
    PostReason, ProtectionDomain, QpState, QueuePair, RdmaDevice, Remote, SendFlags, SendOp, SendWr, Sge, SrqCaps, To,
};
use cmid_proto::{Acks, Drive, Errno, IdKey, Limits, PortSpace, Transport};

use crate::device::{Bytes, Layer, Log, Nic, Paths};

fn id() -> IdKey {
    IdKey::from_parts(0, 1, 1).unwrap()
}

#[test]
fn a_pd_and_a_cq_of_an_id_are_of_its_device() {
    let mut device = Paths::default();
    assert_eq!(device.alloc_pd(id()).map(|pd| pd.users()), Ok(0));
    assert_eq!(device.create_cq(id(), 7).map(|cq| cq.num()), Ok(7));
    assert_eq!(device.log, [Log::DeviceOf, Log::AllocPd(3), Log::DeviceOf, Log::CreateCq(3, false, 7, 0)]);
    device.fails = true;
    assert_eq!(device.alloc_pd(id()).map(drop), Err(Errno::ENODEV.into()));
    assert_eq!(device.create_cq(id(), 7).map(drop), Err(Errno::ENODEV.into()));
}

#[test]
fn a_layer_has_the_data_path_of_its_device() {
    let mut drive = Drive::new(Layer(Paths::default()), Limits::SINGLE);
    let channel = drive.open_channel(Acks::OnDelivery).unwrap();
    let id = drive.create_id(Some(channel), PortSpace::Tcp).unwrap();
    drive.bind(id, "10.0.0.1:1".parse().unwrap()).unwrap();
    let made = drive.attach_qp(id, |layer, attaching| {
        let nic = layer.device_of(attaching.id())?;
        assert_eq!(nic, Nic(3));
        let (pd, cq) = (layer.alloc_pd_on(&nic)?, layer.create_cq_at(&nic, 5, 2)?);
        assert_eq!(nic.comp_vectors(), 4);
        assert_eq!(nic.attrs().map(|attrs| attrs.name), Ok("test3".into()));
        assert_eq!((nic.port_attrs(2).map(drop), nic.gids(1)), (Err(Errno::EINVAL), Ok(Vec::new())));
        assert_eq!(layer.path_mtu(attaching.id()), Ok(1024));
        layer.async_events(&nic)?;
        layer.create_qp(attaching, &pd, &cq, &cq, Caps::default())
    });
    let qp = made.unwrap();
    assert_eq!((qp.num(), qp.caps().max_send_wr), (9, 16));
    drive.detach_qp(id, |layer, id| layer.destroy_qp(id)).unwrap();
    let mut log = vec![
        Log::DeviceOf,
        Log::AllocPd(3),
        Log::CreateCq(3, false, 5, 2),
        Log::DeviceOf,
        Log::AsyncEvents,
        Log::CreateQp(None, 16, 16),
        Log::DestroyQp,
    ];
    assert_eq!(drive.device().0.log, log);
    let made = drive.attach_qp(id, |layer, attaching| {
        let (pd, channel) = (layer.alloc_pd_on(&Nic(3))?, layer.create_comp_channel(&Nic(3))?);
        let cq = layer.create_cq_with_channel(&Nic(3), &channel, 5, 0)?;
        let srq = pd.create_srq(SrqCaps { max_wr: 8, max_sge: 1 })?;
        layer.create_qp_with_srq(attaching, &pd, &cq, &cq, &srq, Caps::default())
    });
    assert_eq!(made.unwrap().num(), 9);
    log.extend([Log::AllocPd(3), Log::CreateCompChannel, Log::CreateCq(3, true, 5, 0), Log::CreateQp(Some(8), 16, 0)]);
    assert_eq!(drive.device().0.log, log);
}

#[test]
fn one_completion_is_polled_or_none_or_the_error() {
    let mut cq = Paths::default().create_cq(id(), 1).unwrap();
    cq.ready = vec![Ok(1), Ok(0), Err(Errno::EIO)];
    assert_eq!(cq.poll_one(), Ok(Some(Completion { wr_id: 5, ..Completion::default() })));
    assert_eq!((cq.poll_one(), cq.poll_one()), (Ok(None), Err(Errno::EIO)));
}

#[test]
fn a_cq_without_completions_is_armed_and_polled_once_more() {
    let (mut cq, mut some) = (Paths::default().create_cq(id(), 1).unwrap(), [Completion::default(); 2]);
    cq.ready = vec![Ok(2), Ok(0), Ok(1), Ok(0), Ok(0), Err(Errno::EIO)];
    assert_eq!([(); 3].map(|()| cq.poll_or_arm(&mut some)), [Ok(2), Ok(1), Ok(0)]);
    assert_eq!(cq.poll_or_arm(&mut some), Err(Errno::EIO));
}

#[test]
fn memory_is_named_by_ranges_and_addresses() {
    let mr = Bytes([1, 2, 3, 4, 5, 6, 7, 8, 9]);
    let Sge { offset, len, .. } = mr.sge(2..7);
    assert_eq!((offset, len), (2, Some(5)));
    assert_eq!(mr.remote(4), Remote { addr: 4100, rkey: 6 });
}

#[test]
fn each_constructor_makes_its_operation() {
    let mr = Bytes([0; 9]);
    let (sge, remote) = (mr.sge(0..8), Remote { addr: 8, rkey: 2 });
    let to = To { ah: &7_u8, qp_num: 1, qkey: 2 };
    let made = |wr: SendWr<'_, Sge<'_, Bytes>, u8>| (wr.wr_id, format!("{:?}", wr.op), wr.flags);
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
