//! What a device can do, what its ports are, and the longest datagram.

use std::net::IpAddr;

use cmid_harness::failure::{ensure, same};
use cmid_harness::fixture::{DeviceOf, Side};
use cmid_harness::{Check, Env, Fixture, test_caps};
use cmid_proto::datapath::{
    AhAttr, Atomics, Capacity, Caps, CreateError, CreateReason, DeviceAttrs, GidKind, GlobalRoute, LinkLayer, Odp,
    PortState, PostError, PostReason, SendWr, SrqCaps, To, WcStatus, prelude::*,
};
use cmid_proto::memory::Access;
use cmid_proto::{Errno, IdKey, PortSpace};

use super::memory::{deregister, register};

type NicOf<L> = <DeviceOf<L> as DataPath>::Nic;

/// The Q_Key that librdmacm uses for datagram QPs (`RDMA_UDP_QKEY`).
const QKEY: u32 = 0x0123_4567;

fn nic<L: Env>(b: &mut Fixture<'_, L>, id: IdKey) -> Check<(NicOf<L>, DeviceAttrs)> {
    let device = b.client.drive().device_mut();
    let nic = device.device_of(id)?;
    let attrs = nic.attrs()?;
    Ok((nic, attrs))
}

pub(super) fn a_device_tells_its_maxima_and_refuses_more<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    b.listen()?;
    let id = b.resolved()?;
    let (nic, attrs) = nic(b, id)?;
    ensure(!attrs.name.is_empty() && attrs.node_guid != 0, || format!("{attrs:?}"))?;
    // Those of rxe.
    let depths = (attrs.max_responder_resources, attrs.max_initiator_depth);
    same("its depths, ports and firmware", (depths, attrs.ports, &*attrs.firmware), ((128, 128), 1, "0.0.0"))?;
    same("its atomic operations", attrs.atomics, Atomics::Device)?;
    same("its paging on demand", attrs.odp, Odp::default())?;
    let maxima = attrs.maxima;
    same("its queues", (maxima.qp_wr, maxima.sge, maxima.cqe), (1 << 20, 32, (1 << 15) - 1))?;
    let others = [attrs.max_qp, attrs.max_cq, attrs.max_mr, maxima.srq_wr, maxima.srq_sge];
    ensure(others.iter().all(|max| *max > 0) && attrs.max_mr_size > 1 << 30, || format!("{attrs:?}"))?;
    let device = b.client.drive().device_mut();
    same("its completion vectors", nic.comp_vectors(), maxima.comp_vectors)?;
    let reason = |capacity, max| CreateReason::TooLarge { capacity, asked: max + 1, max };
    let refused = |made: Result<(), CreateError>| made.map_err(|error| error.reason());
    let deeper = refused(device.create_cq_on(&nic, maxima.cqe + 1).map(drop));
    same("a deeper CQ", deeper, Err(reason(Capacity::Depth, maxima.cqe)))?;
    let none = refused(device.create_cq_on(&nic, 0).map(drop));
    same("a CQ of no depth", none, Err(CreateReason::Zero(Capacity::Depth)))?;
    let vectors = maxima.comp_vectors;
    for vector in 0..vectors {
        device.create_cq_at(&nic, None, 1, vector)?;
    }
    for vector in [vectors, i32::MAX.unsigned_abs(), u32::MAX] {
        let made = refused(device.create_cq_at(&nic, None, 1, vector).map(drop));
        same("no such vector", made, Err(CreateReason::NoVector { vector, vectors }))?;
    }
    let pd = device.alloc_pd_on(&nic)?;
    let cq = device.create_cq_on(&nic, maxima.cqe)?;
    let (wr, sge, one) = (maxima.srq_wr, maxima.srq_sge, SrqCaps { max_wr: 1, max_sge: 1 });
    for (caps, capacity, max) in [
        (SrqCaps { max_wr: wr + 1, ..one }, Capacity::SrqMaxWr, wr),
        (SrqCaps { max_sge: sge + 1, ..one }, Capacity::SrqMaxSge, sge),
    ] {
        same("a larger SRQ", refused(pd.create_srq(caps).map(drop)), Err(reason(capacity, max)))?;
    }
    let (wr, sge) = (maxima.qp_wr, maxima.sge);
    for (caps, capacity, max) in [
        (Caps { max_send_wr: wr + 1, ..test_caps() }, Capacity::MaxSendWr, wr),
        (Caps { max_recv_wr: wr + 1, ..test_caps() }, Capacity::MaxRecvWr, wr),
        (Caps { max_send_sge: sge + 1, ..test_caps() }, Capacity::MaxSendSge, sge),
        (Caps { max_recv_sge: sge + 1, ..test_caps() }, Capacity::MaxRecvSge, sge),
    ] {
        let mut seen = Ok(());
        let made = b.client.drive().attach_qp(id, |device, attaching| {
            let made = device.create_qp(attaching, &pd, &cq, &cq, caps);
            seen = refused(made.as_ref().map(|_| ()).map_err(|error| *error));
            made
        });
        same("a larger QP", (made.is_err(), seen), (true, Err(reason(capacity, max))))?;
    }
    let caps = Caps { max_send_sge: maxima.sge, ..test_caps() };
    drop(b.client.drive().attach_qp(id, |device, attaching| device.create_qp(attaching, &pd, &cq, &cq, caps))?);
    b.destroy(Side::Client, id)
}

pub(super) fn a_port_tells_its_mtu_and_its_gids<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    b.listen()?;
    let id = b.resolved()?;
    let ip = b.net().client;
    let (nic, attrs) = nic(b, id)?;
    let device = b.client.drive().device_mut();
    let port = nic.port_attrs(attrs.ports)?;
    same("its state and link", (port.state, port.link_layer, port.lid), (PortState::ACTIVE, LinkLayer::Ethernet, 0))?;
    ensure((256..=port.max_mtu).contains(&port.active_mtu), || format!("{port:?}"))?;
    same("its width and speed", (port.width, port.lane_speed), (1, 2500))?;
    same("the MTU of the path", device.path_mtu(id)?, port.active_mtu)?;
    let gids = nic.gids(attrs.ports)?;
    ensure(gids.len() <= port.gid_table_len as usize, || format!("{} GIDs of {port:?}", gids.len()))?;
    let own = gids.iter().find(|gid| gid.ip() == ip);
    ensure(own.is_some_and(|gid| gid.kind == GidKind::RoceV2 && gid.net_device.is_some()), || format!("{gids:?}"))?;
    for missing in [0, attrs.ports + 1] {
        same("no such port", nic.port_attrs(missing).map(drop), Err(Errno::EINVAL))?;
        same("GIDs of no port", nic.gids(missing).map(drop), Err(Errno::EINVAL))?;
    }
    b.destroy(Side::Client, id)
}

pub(super) fn a_datagram_that_is_too_long_for_the_path_is_refused<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let pd = b.pd(Side::Client)?;
    b.listen_in(PortSpace::Udp, 2)?;
    let id = b.resolved_in(PortSpace::Udp, b.address)?;
    let device = b.client.drive().device_mut();
    let mtu = device.path_mtu(id)?;
    let nic = device.device_of(id)?;
    // A path to the own device.
    let ip: IpAddr = b.net().client;
    let gids = nic.gids(1)?;
    let own = gids.into_iter().find(|gid| gid.ip() == ip);
    let own = own.ok_or_else(|| cmid_harness::Failure("no GID of the address".into()))?;
    let sgid_index = u8::try_from(own.index).map_err(|_| Errno::EINVAL)?;
    let route = GlobalRoute { dgid: own.gid, sgid_index, hop_limit: 64, ..GlobalRoute::default() };
    let ah = pd.create_ah(&AhAttr { grh: Some(route), port_num: 1, ..AhAttr::default() })?;
    let mut end = b.end(Side::Client, id, &pd, Caps { max_send_sge: 2, ..test_caps() })?;
    let mr = register(&pd, vec![7; mtu as usize + 1], Access::LOCAL_WRITE)?;
    let to = To { ah: &ah, qp_num: end.qp.num(), qkey: QKEY };
    let refused = Err(PostReason::DatagramTooLong { len: mtu + 1, mtu });
    let whole = mtu as usize;
    let reason = |posted: Result<(), PostError>| posted.map_err(|error| error.reason());
    same("a byte too many", reason(end.qp.post_send(SendWr::send_to(1, mr.sge(0..whole + 1), to))), refused)?;
    let two = [mr.sge(0..whole), mr.sge(0..1)];
    same("in two ranges", reason(end.qp.post_send(SendWr::send_to(1, two, to))), refused)?;
    let batch = [SendWr::send_to(1, mr.sge(0..4), to), SendWr::send_to(2, mr.sge(0..whole + 1), to)];
    let posted = end.qp.post_sends(batch).map_err(|error| (error.posted, error.error.reason()));
    same("in a batch", posted, Err((0, PostReason::DatagramTooLong { len: mtu + 1, mtu })))?;
    same("nothing is posted", end.qp.unpolled().sends, 0)?;
    end.qp.post_send(SendWr::send_to(3, mr.sge(0..whole), to))?;
    b.ends(&mut end, 3, WcStatus::SUCCESS)?;
    drop(end.qp);
    b.destroy(Side::Client, id)?;
    deregister(mr)?;
    Ok(())
}
