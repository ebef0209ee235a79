//! One `rdma_cm_id`. It has the four state variables of the real stack, because what an application observes depends
//! on differences between them.

use std::net::{Ipv6Addr, SocketAddr};

use cmid_proto::{ConnParam, Ece, IdKey, PortSpace, Service};

use crate::fabric::config::{Config, LifeTime};
use crate::fabric::timers::TimerKey;
use crate::index::{FileNo, HostNo, QpNo};
use crate::kernel::address::Interface;
use crate::kernel::conn::Conn;
use crate::kernel::iw_conn::IwConn;
use crate::kernel::multicast::Membership;
use crate::kernel::options::Options;

/// The RDMA CM's state (`enum rdma_cm_state`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CmState {
    Idle,
    AddrBound,
    AddrQuery,
    AddrResolved,
    RouteQuery,
    RouteResolved,
    /// From connect, or from the arrival of a request, until disconnected; also after a reject or a timeout.
    Connect,
    Disconnect,
    Listen,
}

/// The maximum numbers of concurrent RDMA reads and atomics, as librdmacm stores them for an id.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Depths {
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
}

impl Depths {
    /// The device's maximum (`ibv_query_device`).
    pub(crate) fn of_device(config: &Config) -> Depths {
        Depths { responder_resources: config.max_responder_resources, initiator_depth: config.max_initiator_depth }
    }

    /// Whether the device supports the parameters (`ucma_valid_param`).
    pub(crate) fn allow(self, param: &ConnParam) -> bool {
        let fits = |requested, can| requested == ConnParam::DEVICE_MAX || requested <= can;
        fits(param.responder_resources, self.responder_resources) && fits(param.initiator_depth, self.initiator_depth)
    }

    /// The values that accept stores: [`ConnParam::DEVICE_MAX`] means those of the request, at most the device's
    /// maximum.
    pub(crate) fn lowered(self, device: Depths, param: &ConnParam) -> Depths {
        Depths {
            responder_resources: self.responder_resources.min(device.responder_resources),
            initiator_depth: self.initiator_depth.min(device.initiator_depth),
        }
        .unless_given(param)
    }

    /// The values that connect stores: [`ConnParam::DEVICE_MAX`] means `self`, the device's maximum.
    pub(crate) fn unless_given(self, param: &ConnParam) -> Depths {
        let pick = |given, otherwise| if given == ConnParam::DEVICE_MAX { otherwise } else { given };
        Depths {
            responder_resources: pick(param.responder_resources, self.responder_resources),
            initiator_depth: pick(param.initiator_depth, self.initiator_depth),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Id {
    pub(crate) host: HostNo,
    /// The key at its device; `None` while a request is unread, and while the id is between two devices.
    pub(crate) key: Option<IdKey>,
    /// Its channel in the kernel, and its turn in the channel's list of ids.
    pub(crate) file: FileNo,
    pub(crate) turn: u64,
    pub(crate) port_space: PortSpace,

    // Fields of the RDMA CM (`rdma_id_private`).
    pub(crate) state: CmState,
    pub(crate) src: Option<SocketAddr>,
    pub(crate) dst: Option<SocketAddr>,
    /// The bytes in the kernel's structure of `dst` at the place of an IPv6 address.
    pub(crate) dst_ip6: Ipv6Addr,
    pub(crate) port: Option<u16>,
    /// Its turn in the list of the ids of its RDMA device, if it has one (`_cma_attach_to_dev`).
    pub(crate) device: Option<u64>,
    /// The link address of its interface when it was looked up last, if it has one with a device; and the neighbour's.
    pub(crate) own_link: Option<u64>,
    pub(crate) neighbour_link: u64,
    /// The interface that an address lookup chose; later lookups are confined to it.
    pub(crate) interface: Option<Interface>,
    /// The timer of an address or route lookup.
    pub(crate) lookup: Option<TimerKey>,
    /// Its turn in the list of the ids whose neighbour is watched, if it is there (`cma_add_id_to_tree`).
    pub(crate) watched: Option<u64>,
    /// The packet life time of its path, once a route is requested.
    pub(crate) life_time: Option<LifeTime>,
    /// The traffic class of its route.
    pub(crate) traffic_class: u8,
    pub(crate) options: Options,

    // Fields of the user context (`ucma_context`).
    /// Whether events are delivered; false for a connection that is not accepted.
    pub(crate) uid: bool,
    pub(crate) backlog: u32,
    /// Whether its device is removed (`ctx->closing`). Only destroy is then possible.
    pub(crate) removed: bool,
    /// The memberships, in the order of their joins.
    pub(crate) groups: Vec<Membership>,

    // Fields of the library (`cma_id_private`).
    /// Whether the library knows the id's device.
    pub(crate) verbs: bool,
    pub(crate) known_src: Option<SocketAddr>,
    pub(crate) known_dst: Option<SocketAddr>,
    pub(crate) depths: Depths,
    /// Whether a CONNECT_ERROR was reported. REJECTED and DISCONNECTED are then no longer reported.
    pub(crate) connect_error: bool,
    pub(crate) qp: Option<QpNo>,
    /// Whether the QP uses a shared receive queue.
    pub(crate) on_srq: bool,
    /// The ECE sent to the peer, and that of the peer.
    pub(crate) local_ece: Ece,
    pub(crate) remote_ece: Ece,

    /// The IB CM's part (`cm_id_private`), once a connection is requested.
    pub(crate) conn: Option<Conn>,
    /// The iWARP connection manager's part (`iw_cm_id`), on such a device.
    pub(crate) iw: Option<IwConn>,
}

impl Id {
    /// Returns the ECE in an accept: the peer's vendor, and local options (`ucma_copy_ece_param_to_kern_rep`).
    pub(crate) fn answered_ece(&self) -> Ece {
        Ece { vendor_id: self.remote_ece.vendor_id, options: self.local_ece.options }
    }

    pub(crate) fn new(host: HostNo, file: FileNo, port_space: PortSpace) -> Self {
        Id {
            host,
            key: None,
            file,
            turn: 0,
            port_space,
            state: CmState::Idle,
            src: None,
            dst: None,
            dst_ip6: Ipv6Addr::UNSPECIFIED,
            port: None,
            device: None,
            own_link: None,
            neighbour_link: 0,
            interface: None,
            lookup: None,
            watched: None,
            life_time: None,
            traffic_class: 0,
            options: Options::default(),
            uid: true,
            backlog: 0,
            removed: false,
            groups: Vec::new(),
            verbs: false,
            known_src: None,
            known_dst: None,
            depths: Depths::default(),
            connect_error: false,
            qp: None,
            on_srq: false,
            local_ece: Ece::default(),
            remote_ece: Ece::default(),
            conn: None,
            iw: None,
        }
    }

    /// Whether it is a datagram id, by the type of its QP (`rdma_create_id`).
    pub(crate) fn is_datagram(&self) -> bool {
        match self.port_space.service() {
            Service::Datagram => true,
            Service::Connected => false,
        }
    }

    /// Copies its addresses to the library (`ucma_query_addr`).
    pub(crate) fn query_addresses(&mut self) {
        self.known_src = self.src;
        self.known_dst = self.dst.or(self.known_dst);
    }
}

/// The parameters with the QP number and the shared receive queue of the QP, if there is one.
pub(crate) fn with_qp(id: &Id, param: &ConnParam) -> ConnParam {
    let (qp_num, srq) = match id.qp {
        Some(qp) => (qp.num, id.on_srq),
        None => (param.qp_num & 0x00ff_ffff, param.srq),
    };
    ConnParam {
        retry_count: param.retry_count.min(7),
        rnr_retry_count: param.rnr_retry_count.min(7),
        qp_num,
        srq,
        ..*param
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accept_lowers_what_connect_takes_from_the_device() {
        let device = Depths::of_device(&Config::default());
        let requested = ConnParam { responder_resources: 255, initiator_depth: 9, ..ConnParam::default() };
        let given = device.unless_given(&requested);
        assert_eq!((given.responder_resources, given.initiator_depth), (128, 9));
        let request = Depths { responder_resources: 3, initiator_depth: 200 };
        let lowered = request.lowered(device, &ConnParam::default());
        assert_eq!((lowered.responder_resources, lowered.initiator_depth), (3, 128));
        let request = Depths { responder_resources: 200, initiator_depth: 2 };
        let lowered = request.lowered(device, &ConnParam::default());
        assert_eq!((lowered.responder_resources, lowered.initiator_depth), (128, 2));
    }

    #[test]
    fn numbers_are_clamped_and_masked() {
        let id = Id::new(HostNo(0), FileNo(0), PortSpace::Tcp);
        let param =
            ConnParam { retry_count: 9, rnr_retry_count: 8, qp_num: u32::MAX, srq: true, ..ConnParam::default() };
        let sent = with_qp(&id, &param);
        assert_eq!((sent.retry_count, sent.rnr_retry_count, sent.qp_num, sent.srq), (7, 7, 0x00ff_ffff, true));
        let qp = crate::index::QpNo { host: HostNo(0), num: 5 };
        let sent = with_qp(&Id { qp: Some(qp), ..id }, &param);
        assert_eq!((sent.qp_num, sent.srq), (5, false));
    }
}
