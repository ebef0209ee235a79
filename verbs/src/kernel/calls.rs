//! The commands on one id.

use core::net::SocketAddr;
use std::sync::Arc;

use cmid_proto::{
    Call, ChannelKey, CmOption, ConnParam, Ece, Errno, GroupKey, IdKey, Outcome, PortSpace, RejectReason,
};

use crate::kernel::abi::{self, offset};
use crate::kernel::answer::{location, storage};
use crate::kernel::channel::Channel;
use crate::kernel::qp::{Group, QueuePair};
use crate::macros;

/// `IBV_QPT_RC` and `IBV_QPT_UD`.
const RC: u8 = 2;
const UD: u8 = 4;
/// `IBV_EVENT_COMM_EST`.
const COMM_EST: u32 = 4;

/// The maximum numbers of RDMA reads and atomics of a device (`max_qp_rd_atom` and `max_qp_init_rd_atom` of
/// ibv_query_device(3)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Depths {
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
}

/// The device that an id is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    /// The GUID of the node, in network order.
    pub(crate) guid: u64,
    /// The kernel's number of the device; [`NO_INDEX`] from kernels that do not name it.
    pub(crate) index: u32,
    pub(crate) port: u8,
}

/// `UCMA_INVALID_IB_INDEX` of librdmacm.
pub(crate) const NO_INDEX: u32 = u32::MAX;

/// One multicast group that an id is in.
pub(crate) struct Membership {
    pub(crate) key: GroupKey,
    addr: SocketAddr,
    /// The kernel's number of it.
    pub(crate) handle: u32,
    pub(crate) send_only: bool,
    /// The group that the QP is attached to.
    pub(crate) attached: Option<Group>,
}

/// One id of the kernel's.
pub(crate) struct Id {
    /// The kernel's number of it.
    pub(crate) handle: u32,
    /// The key that the kernel reports it under; `None` for a request that is not accepted.
    pub(crate) uid: Option<IdKey>,
    pub(crate) channel: ChannelKey,
    /// The channel before that. The ids of requests that were unread at the migration are still on it.
    pub(crate) came_from: Option<ChannelKey>,
    pub(crate) space: PortSpace,
    pub(crate) datagrams: bool,
    /// The connection could not be completed: its REJECTED and DISCONNECTED are not reported.
    pub(crate) connect_error: bool,
    /// It was to be destroyed, and could not be.
    pub(crate) doomed: bool,
    pub(crate) qp: Option<Arc<dyn QueuePair>>,
    pub(crate) groups: Vec<Membership>,
    /// Once it is known.
    pub(crate) location: Option<Location>,
    /// Those of its device, once they are known.
    pub(crate) limits: Option<Depths>,
    /// Of the request that made it.
    pub(crate) requested: Depths,
    pub(crate) local_ece: Ece,
    pub(crate) remote_ece: Ece,
}

impl Id {
    pub(crate) fn new(handle: u32, uid: Option<IdKey>, channel: ChannelKey, space: PortSpace) -> Self {
        Id {
            handle,
            uid,
            channel,
            came_from: None,
            space,
            datagrams: matches!(space, PortSpace::Udp | PortSpace::Ipoib),
            connect_error: false,
            doomed: false,
            qp: None,
            groups: Vec::new(),
            location: None,
            limits: None,
            requested: Depths { responder_resources: 0, initiator_depth: 0 },
            local_ece: Ece::default(),
            remote_ece: Ece::default(),
        }
    }

    pub(crate) fn create(key: IdKey, on: ChannelKey, channel: &Channel, space: PortSpace) -> Result<Self, Errno> {
        let mut id = Self::new(0, Some(key), on, space);
        let (uid, ps, qp_type) = (key.to_bits(), space.code() as u16, if id.datagrams { UD } else { RC });
        id.handle = channel.number(abi::CreateId { uid, response: 0, ps, qp_type, reserved: [0; 5] })?;
        Ok(id)
    }

    /// Destroys the id, after its QP was taken off. Its groups end with it. After a failure the id lives on without its QP.
    pub(crate) fn destroy(&mut self, channel: &Channel) -> Outcome {
        let id = self.handle;
        self.doomed = true;
        // No QP is the usual case.
        let _ = self.detach();
        channel.number(abi::DestroyId { response: 0, id, reserved: 0 }).map(drop)
    }

    /// The kernel reports the membership by the uid of the id and the number of the membership.
    pub(crate) fn join(&mut self, channel: &Channel, key: GroupKey, at: &SocketAddr, send_only: bool) -> Outcome {
        self.groups.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        let ((addr, addr_size), uid, id) = (storage(at), self.uid.map_or(0, IdKey::to_bits), self.handle);
        let join_flags = u16::from(send_only);
        let handle = channel.number(abi::JoinMcast { response: 0, uid, id, addr_size, join_flags, addr })?;
        self.groups.push(Membership { key, addr: *at, handle, send_only, attached: None });
        Ok(())
    }

    /// # Errors
    /// `EADDRNOTAVAIL` if the id is not in this group by this address; `ENXIO` once the device is gone, and the id stays in the group.
    pub(crate) fn leave(&mut self, channel: &Channel, key: GroupKey, addr: &SocketAddr) -> Outcome {
        let at = self
            .groups
            .iter()
            .position(|group| group.key == key && group.addr == *addr)
            .ok_or(Errno(libc::EADDRNOTAVAIL))?;
        if let (Some(qp), Some(group)) = (&self.qp, self.groups[at].attached.take()) {
            qp.detach_group(group);
        }
        let id = self.groups[at].handle;
        channel.number(abi::LeaveMcast { destroy: abi::DestroyId { response: 0, id, reserved: 0 } })?;
        self.groups.remove(at);
        Ok(())
    }

    /// What a MULTICAST_JOIN starts: the QP is attached, unless it only sends.
    pub(crate) fn joined(&mut self, handle: u32, group: Group) -> Outcome {
        let Some(membership) = self.groups.iter_mut().find(|known| known.handle == handle) else { return Ok(()) };
        if let Some(qp) = &self.qp
            && !membership.send_only
        {
            qp.attach_group(group)?;
            membership.attached = Some(group);
        }
        Ok(())
    }

    /// Its device, asked for once. `None` while it has none.
    pub(crate) fn locate(&mut self, channel: &Channel) -> Result<Option<Location>, Errno> {
        if self.location.is_none() {
            let mut answer = [0; offset::ADDR_LEN];
            answer[offset::ADDR_INDEX..].fill(0xff);
            channel.ask(abi::Query { response: 0, id: self.handle, option: abi::QUERY_ADDR }, &mut answer)?;
            self.location = location(&answer);
        }
        Ok(self.location)
    }

    /// A call on this id alone. `limits` are used if those of its device are not known.
    pub(crate) fn call(
        &mut self,
        key: IdKey,
        channel: &Channel,
        call: &Call,
        private_data: &[u8],
        limits: Depths,
    ) -> Outcome {
        let id = self.handle;
        match *call {
            Call::Bind { ref addr, .. } => {
                let (addr, addr_size) = storage(addr);
                channel.send(abi::Bind { id, addr_size, reserved: 0, addr })
            }
            Call::ResolveAddr { ref src, ref dst, timeout_ms, .. } => self.resolve_addr(channel, src, dst, timeout_ms),
            Call::ResolveRoute { timeout_ms, .. } => {
                channel.send(abi::ResolveRoute { id, timeout_ms: timeout_ms.cast_unsigned() })
            }
            Call::Listen { backlog, .. } => channel.send(abi::Listen { id, backlog: backlog.cast_unsigned() }),
            Call::Connect { ref param, .. } => self.connect(channel, param, private_data, limits),
            Call::Accept { ref param, .. } => self.answer(key, channel, param, private_data, limits),
            Call::Reject { reason, .. } => self.reject(channel, reason, private_data),
            Call::Establish { .. } if self.qp.is_some() => Err(Errno::EINVAL),
            // Without parameters the kernel sends the third message of the handshake.
            Call::Establish { .. } => self.accept(key, channel, NO_PARAM),
            Call::Disconnect { .. } => {
                self.qp.as_ref().map_or(Ok(()), |qp| qp.shut_down())?;
                channel.send(abi::Disconnect { id })
            }
            Call::Notify { .. } => channel.send(abi::Notify { id, event: COMM_EST }),
            Call::SetOption { option, .. } => set_option(channel, id, option),
            Call::SetEce { ece, .. } => self.set_ece(ece),
            Call::Join { group, ref addr, send_only, .. } => self.join(channel, group, addr, send_only),
            Call::Leave { group, ref addr, .. } => self.leave(channel, group, addr),
            Call::OpenChannel { .. }
            | Call::CloseChannel { .. }
            | Call::CreateId { .. }
            | Call::Migrate { .. }
            | Call::Destroy { .. } => Err(Errno::EINVAL),
        }
    }

    /// `rdma_connect`.
    fn connect(&self, channel: &Channel, param: &ConnParam, data: &[u8], limits: Depths) -> Outcome {
        let limits = self.limits.unwrap_or(limits);
        self.check(param, limits)?;
        let depths = depths(param, limits);
        let conn_param = conn_param(param, data, depths, self.qp.as_deref())?;
        channel.send(abi::Connect { conn_param, id: self.handle, reserved: 0, ece: ece(self.local_ece) })
    }

    /// `rdma_accept`.
    fn answer(&mut self, key: IdKey, channel: &Channel, param: &ConnParam, data: &[u8], limits: Depths) -> Outcome {
        let limits = self.limits.unwrap_or(limits);
        self.check(param, limits)?;
        let requested = Depths {
            responder_resources: self.requested.responder_resources.min(limits.responder_resources),
            initiator_depth: self.requested.initiator_depth.min(limits.initiator_depth),
        };
        let depths = depths(param, requested);
        let conn_param = conn_param(param, data, depths, self.qp.as_deref())?;
        if !self.datagrams {
            self.prepare(channel, depths.responder_resources, depths.initiator_depth)?;
        }
        let accepted = self.accept(key, channel, conn_param);
        match (&accepted, &self.qp) {
            (Ok(()), _) => self.uid = Some(key),
            (Err(_), Some(qp)) => qp.stop(),
            (Err(_), None) => {}
        }
        accepted
    }

    /// Refuses depths that the device does not have, in the port space where librdmacm does it (`ucma_valid_param`).
    fn check(&self, param: &ConnParam, limits: Depths) -> Outcome {
        let above = |depth: u8, limit: u8| depth != ConnParam::DEVICE_MAX && depth > limit;
        let refused = above(param.responder_resources, limits.responder_resources)
            || above(param.initiator_depth, limits.initiator_depth);
        if self.space == PortSpace::Tcp && refused { Err(Errno::EINVAL) } else { Ok(()) }
    }

    /// `rdma_set_local_ece`.
    fn set_ece(&mut self, ece: Ece) -> Outcome {
        if self.qp.is_some() || ece.vendor_id == 0 {
            return Err(Errno::EINVAL);
        }
        self.local_ece = ece;
        Ok(())
    }

    fn resolve_addr(&self, on: &Channel, src: &Option<SocketAddr>, dst: &SocketAddr, timeout_ms: i32) -> Outcome {
        let (dst_addr, dst_size) = storage(dst);
        let (src_addr, src_size) = src.as_ref().map_or((abi::Storage([0; 128]), 0), storage);
        let timeout_ms = timeout_ms.cast_unsigned();
        let body =
            abi::ResolveAddr { id: self.handle, timeout_ms, src_size, dst_size, reserved: 0, src_addr, dst_addr };
        on.send(body)
    }

    /// The kernel reports the id under `key` from then on, unless there are no parameters.
    pub(crate) fn accept(&self, key: IdKey, channel: &Channel, conn_param: abi::ConnParam) -> Outcome {
        let uid = key.to_bits();
        // The answer has the vendor of the request.
        let vendor_id = if conn_param.valid == 0 { self.local_ece.vendor_id } else { self.remote_ece.vendor_id };
        let ece = abi::Ece { vendor_id, attr_mod: self.local_ece.options };
        channel.send(abi::Accept { uid, conn_param, id: self.handle, reserved: 0, ece })
    }

    fn reject(&self, channel: &Channel, reason: RejectReason, data: &[u8]) -> Outcome {
        let (private_data, private_data_len) = private(data)?;
        let reason = match reason {
            RejectReason::Consumer => 28,
            RejectReason::Ece => 35,
        };
        let body = abi::Reject { id: self.handle, private_data_len, reason, reserved: [0; 2], private_data };
        channel.send(body)
    }
}

/// The id has been destroyed, or ends with its channel.
impl Drop for Id {
    fn drop(&mut self) {
        // No QP is the usual case.
        let _ = self.detach();
    }
}

fn ece(ece: Ece) -> abi::Ece {
    abi::Ece { vendor_id: ece.vendor_id, attr_mod: ece.options }
}

pub(crate) const NO_PARAM: abi::ConnParam = abi::ConnParam {
    qp_num: 0,
    qkey: 0,
    private_data: [0; abi::PRIVATE_DATA],
    private_data_len: 0,
    srq: 0,
    responder_resources: 0,
    initiator_depth: 0,
    flow_control: 0,
    retry_count: 0,
    rnr_retry_count: 0,
    valid: 0,
};

/// The depths of the parameters; `most` where they name those of the device.
fn depths(param: &ConnParam, most: Depths) -> Depths {
    let or = |depth: u8, most: u8| if depth == ConnParam::DEVICE_MAX { most } else { depth };
    Depths {
        responder_resources: or(param.responder_resources, most.responder_resources),
        initiator_depth: or(param.initiator_depth, most.initiator_depth),
    }
}

/// The number of the QP is that of the id's QP, if it has one.
fn conn_param(
    param: &ConnParam,
    data: &[u8],
    depths: Depths,
    qp: Option<&dyn QueuePair>,
) -> Result<abi::ConnParam, Errno> {
    let (private_data, private_data_len) = private(data)?;
    Ok(abi::ConnParam {
        qp_num: qp.map_or(param.qp_num, QueuePair::num),
        qkey: 0,
        private_data,
        private_data_len,
        srq: u8::from(param.srq && qp.is_none()),
        responder_resources: depths.responder_resources,
        initiator_depth: depths.initiator_depth,
        flow_control: u8::from(param.flow_control),
        retry_count: param.retry_count,
        rnr_retry_count: param.rnr_retry_count,
        valid: 1,
    })
}

/// The field of a command, and how much of it counts.
fn private(data: &[u8]) -> Result<([u8; abi::PRIVATE_DATA], u8), Errno> {
    let len = u8::try_from(data.len()).map_err(|_| Errno::EINVAL)?;
    let mut field = [0; abi::PRIVATE_DATA];
    field[..data.len()].copy_from_slice(data);
    Ok((field, len))
}

fn set_option(channel: &Channel, id: u32, option: CmOption) -> Outcome {
    match option {
        CmOption::Tos(tos) => channel.set_option(id, macros::RDMA_OPTION_ID_TOS, &[tos]),
        CmOption::ReuseAddr(on) => {
            channel.set_option(id, macros::RDMA_OPTION_ID_REUSEADDR, &i32::from(on).to_ne_bytes())
        }
        CmOption::AfOnly(on) => channel.set_option(id, macros::RDMA_OPTION_ID_AFONLY, &i32::from(on).to_ne_bytes()),
        CmOption::AckTimeout(power) => channel.set_option(id, macros::RDMA_OPTION_ID_ACK_TIMEOUT, &[power]),
    }
}
