//! Calls on ids in a wrong state.

use std::net::SocketAddr;

use cmid_proto::datapath::{Attaching, QpState, SrqCaps, prelude::*};
use cmid_proto::{Call, Device, Errno, PortSpace, RejectReason};
use cmid_verbs::{Access, Backend};

use crate::env::{CAPS, CLIENT, Pair, Side, backend, channel_key, id_key, open, param};

/// Without a device, librdmacm would dereference a null pointer.
pub(crate) fn guards() {
    let mut side = Side::new();
    let idle = side.id();
    let any = side.id();
    side.ok(&Call::Bind { id: any, addr: SocketAddr::from(([0, 0, 0, 0], 0)) });
    for id in [idle, any] {
        side.fails(&Call::ResolveRoute { id, timeout_ms: 100 }, Errno::EINVAL);
        side.fails(&Call::Connect { id, param: param() }, Errno::EINVAL);
        side.fails(&Call::Accept { id, param: param() }, Errno::EINVAL);
        side.fails(&Call::Reject { id, reason: RejectReason::Consumer }, Errno::EINVAL);
        side.fails(&Call::Establish { id }, Errno::EINVAL);
        side.fails(&Call::Disconnect { id }, Errno::EINVAL);
        assert_eq!(side.device.alloc_pd(id).map(drop).map_err(Errno::from), Err(Errno::ENODEV));
        assert_eq!(side.device.create_cq(id, 1).map(drop).map_err(Errno::from), Err(Errno::ENODEV));
        assert_eq!(side.device.destroy_qp(id), Err(Errno::EINVAL));
    }
    assert_eq!(side.device.local_addr(idle), Err(Errno::EADDRNOTAVAIL));
    assert_eq!(side.device.peer_addr(any), Err(Errno::EADDRNOTAVAIL));

    let bound = side.id();
    side.ok(&Call::Bind { id: bound, addr: SocketAddr::from((CLIENT, 0)) });
    let local = side.device.local_addr(bound).expect("bound");
    assert_eq!(local.ip(), CLIENT.into_ip());
    assert_ne!(local.port(), 0);
    side.fails(&Call::ResolveRoute { id: bound, timeout_ms: 100 }, Errno::EINVAL);
    side.fails(&Call::Connect { id: bound, param: param() }, Errno::EINVAL);

    let first = side.end(bound);
    let again = side
        .device
        .create_qp(Attaching::bare(bound), &first.pd, &first.cq, &first.cq, CAPS)
        .map(drop)
        .map_err(Errno::from);
    assert_eq!(again, Err(Errno::EINVAL));
    assert_eq!(side.device.destroy_qp(bound), Ok(()));
    assert_eq!(first.qp.state().map(|state| state.0), Ok(6), "error, for a handle is left");
    drop(first);
    drop(side.end(bound));

    let long = [0; 256];
    assert_eq!(
        side.device.call(&Call::Reject { id: bound, reason: RejectReason::Consumer }, &long),
        Err(Errno::EINVAL)
    );
    assert_eq!(side.device.call(&Call::Connect { id: bound, param: param() }, &long), Err(Errno::EINVAL));
}

pub(crate) fn keys() {
    let mut side = Side::new();
    let id = side.id();
    let stale = id_key(id.slot() as u32, 2);
    side.fails(&Call::Destroy { id: stale }, Errno::ENOENT);
    side.fails(&Call::Listen { id: stale, backlog: 1 }, Errno::ENOENT);
    assert_eq!(side.device.local_addr(stale), Err(Errno::ENOENT));
    assert_eq!(side.device.alloc_pd(stale).map(drop).map_err(Errno::from), Err(Errno::ENOENT));

    let channel = side.channel;
    let (other, unknown, child) = (channel_key(1, 1), channel_key(1, 2), side.key());
    side.ok(&Call::OpenChannel { channel: other });
    side.fails(&Call::OpenChannel { channel: other }, Errno::EINVAL);
    side.fails(&Call::CloseChannel { channel: unknown }, Errno::EBADF);
    side.fails(&Call::CreateId { id: child, channel: unknown, port_space: PortSpace::Tcp }, Errno::EBADF);
    side.fails(&Call::CreateId { id, channel, port_space: PortSpace::Tcp }, Errno::EINVAL);
    side.fails(&Call::Migrate { id, from: channel, to: unknown }, Errno::EBADF);
    assert_eq!(side.device.fetch(unknown, child), Err(Errno::EBADF));
    assert_eq!(side.device.fetch(channel, id), Err(Errno::EINVAL), "the child's key is taken");
    assert_eq!(side.device.fetch(channel, child), Ok(None));

    // A channel with ids cannot be closed. A release fails while the channel has other ids.
    side.fails(&Call::CloseChannel { channel }, Errno::EBUSY);
    let second = side.id();
    assert!(matches!(side.device.release(id, channel), Err(Errno::EINVAL)));
    assert!(matches!(side.device.release(id, other), Err(Errno::EINVAL)));
    assert!(matches!(side.device.release(id, unknown), Err(Errno::ENOENT)));
    side.ok(&Call::Migrate { id, from: channel, to: other });
    side.ok(&Call::Migrate { id, from: other, to: other });
    side.ok(&Call::Destroy { id: second });
    side.ok(&Call::CloseChannel { channel });
    let handle = side.device.release(id, other).expect("it is alone there");
    assert_eq!(side.device.counts(), (0, 0));

    // Adopting under keys in use is an error of the driver: only the handle is destroyed.
    let (id, channel) = (id_key(0, 9), channel_key(0, 9));
    assert_eq!(side.device.adopt(id, channel, handle), Ok(()));
    let intruder = Side::new().stolen();
    assert_eq!(side.device.adopt(id_key(0, 8), channel_key(3, 1), intruder), Err(Errno::EINVAL));
    assert_eq!(side.device.counts(), (1, 1));
    let mut another = open();
    let handle = side.device.release(id, channel).expect("alone");
    assert_eq!(another.adopt(id_key(5, 1), channel_key(5, 1), handle), Ok(()));
    assert_eq!(another.counts(), (1, 1));
    assert_eq!(another.call(&Call::Destroy { id: id_key(5, 1) }, &[]), Ok(()));
    assert_eq!(another.call(&Call::CloseChannel { channel: channel_key(5, 1) }, &[]), Ok(()));
}

/// The attributes and the objects of libibverbs that an application gets for a data path of its own. `programs/foreign` uses
/// them.
pub(crate) fn raw() {
    let mut pair = Pair::connected();
    let Pair { client, c, .. } = &mut pair;
    assert_eq!(client.device.qp_attr(c.id, QpState::ERR).map(drop), Err(Errno::EINVAL));
    assert_eq!(client.device.qp_attr(id_key(99, 1), QpState::INIT).map(drop), Err(Errno::ENOENT));
    let memory = c.pd.register(vec![0; 16], Access::LOCAL_WRITE).expect("register");
    let srq = c.pd.create_srq(SrqCaps { max_wr: 4, max_sge: 1 }).expect("create_srq");
    // SAFETY: nothing is done with the pointers but to look at their presence, and at fields of a QP and an SRQ that
    // are alive.
    unsafe {
        assert!(memory.raw_mr().is_some());
        let qp: *mut rdma_sys::ibv_qp = c.qp.raw_qp().as_ptr().cast();
        assert_eq!((*qp).qp_num, c.qp.num());
        assert_eq!((*qp).send_cq, c.cq.raw_cq().as_ptr().cast());
        assert_eq!((*qp).pd, c.pd.raw_pd().as_ptr().cast());
        let srq: *mut rdma_sys::ibv_srq = srq.raw_srq().as_ptr().cast();
        assert_eq!((*srq).pd, (*qp).pd);
        let has_id = client.device.raw_id(c.id).map(drop);
        assert_eq!(has_id, if backend() == Backend::Kernel { Err(Errno::ENOSYS) } else { Ok(()) });
    }
}

impl Side {
    /// A handle of an idle id.
    fn stolen(mut self) -> cmid_verbs::Handle {
        let id = self.id();
        self.device.release(id, self.channel).expect("alone")
    }
}

trait IntoIp {
    fn into_ip(self) -> std::net::IpAddr;
}

impl IntoIp for [u8; 4] {
    fn into_ip(self) -> std::net::IpAddr {
        std::net::IpAddr::from(self)
    }
}
