//! The commands on one id.

use core::net::SocketAddr;
use std::sync::Arc;

use cmid_proto::{ChannelKey, CmOption, ConnParam, Ece, Errno, IdKey, Outcome, PortSpace, RejectReason};

use crate::kernel::abi::{self, offset};
use crate::kernel::answer::{self, in6, storage};
use crate::kernel::channel::{ChannelFd, Scratch};
use crate::kernel::group::Membership;
use crate::kernel::location::{Depths, DeviceBinding, Limits, Location};
use crate::kernel::qp::QueuePair;
use crate::sign::unsigned;
use crate::tables::Destroy;

/// `IBV_QPT_RC` and `IBV_QPT_UD`.
const RC: u8 = 2;
const UD: u8 = 4;
/// `IBV_EVENT_COMM_EST`.
const COMM_EST: u32 = 4;

/// An id of the kernel.
pub(crate) struct Id {
    /// The kernel's number of the id.
    pub(crate) handle: u32,
    /// The key that the kernel reports it under; `None` for a request that is not accepted.
    pub(crate) uid: Option<IdKey>,
    /// The descriptor of its channel.
    pub(crate) fd: ChannelFd,
    /// Whether it has listened. The kernel may then have requests for it.
    pub(crate) has_listened: bool,
    /// For an id that has listened, the channel before the last migration. The ids of requests that were unread at the
    /// migration are still on it.
    pub(crate) came_from: Option<ChannelKey>,
    pub(crate) space: PortSpace,
    pub(crate) datagrams: bool,
    /// Whether the connection could not be completed. Its REJECTED and DISCONNECTED are then not reported.
    pub(crate) connect_error: bool,
    /// Whether the kernel has destroyed it. It may have given the number to another id.
    ended: bool,
    pub(crate) qp: Option<Arc<dyn QueuePair>>,
    pub(crate) groups: Vec<Membership>,
    pub(crate) binding: DeviceBinding,
    /// Whether the kernel's local address of the id is used. librdmacm reads it after a bind and a listen, and with
    /// ADDR_RESOLVED and CONNECT_REQUEST.
    pub(crate) has_address: bool,
    /// Whether the kernel's peer address is used: after a listen, and with ADDR_RESOLVED and CONNECT_REQUEST. A lookup
    /// that fails or is refused leaves one in the kernel.
    pub(crate) has_peer: bool,
    /// The destination of the last lookup, until its ADDR_RESOLVED is read, or the peer address that the kernel had at
    /// the bind.
    pub(crate) sought: Option<SocketAddr>,
    /// Whether a lookup was refused. The kernel may then have a peer address before the bind.
    pub(crate) refused: bool,
    /// The limits of its device, if known.
    pub(crate) limits: Option<Depths>,
    /// The depths in the request that created it, or of its last connect.
    pub(crate) requested: Depths,
    pub(crate) local_ece: Ece,
    pub(crate) remote_ece: Ece,
}

impl Id {
    pub(crate) fn new(handle: u32, uid: Option<IdKey>, fd: ChannelFd, space: PortSpace) -> Self {
        Id {
            handle,
            uid,
            fd,
            has_listened: false,
            came_from: None,
            space,
            datagrams: is_for_datagrams(space),
            connect_error: false,
            ended: false,
            qp: None,
            groups: Vec::new(),
            binding: DeviceBinding::Unbound,
            has_address: false,
            has_peer: false,
            refused: false,
            sought: None,
            limits: None,
            requested: Depths { responder_resources: 0, initiator_depth: 0 },
            local_ece: Ece::default(),
            remote_ece: Ece::default(),
        }
    }

    /// `rdma_create_id`. Returns the kernel's number of the id.
    pub(crate) fn create(key: IdKey, fd: ChannelFd, space: PortSpace) -> Result<u32, Errno> {
        let qp_type = if is_for_datagrams(space) { UD } else { RC };
        let (uid, ps) = (key.to_bits(), space.code() as u16);
        fd.number(abi::CreateId { uid, response: 0, ps, qp_type, reserved: [0; 5] })
    }

    /// Queries the device of the id, once. `None` if it has none.
    pub(crate) fn locate(&mut self, scratch: &mut Scratch) -> Result<Option<&Location>, Errno> {
        if matches!(self.binding, DeviceBinding::Unqueried) {
            self.binding = DeviceBinding::from(self.fd.device_of(self.handle, &mut scratch.place)?);
        }
        let DeviceBinding::At(location) = &self.binding else { return Ok(None) };
        Ok(Some(location))
    }

    /// # Errors
    /// `EINVAL` while the id has no device.
    fn needs_device(&self) -> Outcome {
        if matches!(self.binding, DeviceBinding::Unbound) { Err(Errno::EINVAL) } else { Ok(()) }
    }

    /// Handles ADDR_RESOLVED and CONNECT_REQUEST: the id has this device, and addresses.
    pub(crate) fn resolved(&mut self, device: Option<Location>) {
        self.has_peer = true;
        self.sought = None;
        self.has_address = true;
        self.binding = DeviceBinding::from(device);
    }

    fn bound(&mut self) {
        self.has_address = true;
        if matches!(self.binding, DeviceBinding::Unbound) {
            self.binding = DeviceBinding::Unqueried;
        }
    }

    /// Reads an address of the id from the kernel.
    ///
    /// # Errors
    /// `EADDRNOTAVAIL` if there is none.
    pub(crate) fn address(&self, at: usize) -> Result<SocketAddr, Errno> {
        let mut answer = [0; offset::ADDR_LEN];
        self.fd.query(abi::Query { response: 0, id: self.handle, option: abi::QUERY_ADDR }, &mut answer)?;
        let none = |addr: &SocketAddr| addr.ip().is_unspecified() && addr.port() == 0;
        answer::address(&answer, at).filter(|addr| !none(addr)).ok_or(Errno(libc::EADDRNOTAVAIL))
    }

    /// `rdma_set_option`.
    pub(crate) fn set_option(&self, option: CmOption) -> Outcome {
        self.fd.set(self.handle, option)
    }

    /// `rdma_bind_addr`. An id that is bound to a specific address has a device.
    pub(crate) fn bind(&mut self, addr: &SocketAddr, scratch: &mut Scratch) -> Outcome {
        let (addr, addr_size) = storage(addr);
        self.fd.send(abi::Bind { id: self.handle, addr_size, reserved: 0, addr })?;
        // librdmacm reads both addresses here. A later lookup that is refused changes the kernel's.
        if self.refused {
            self.sought = self.address(offset::ADDR_DST).ok();
        }
        self.bound();
        self.locate(scratch).map(drop)
    }

    /// `rdma_resolve_addr`.
    pub(crate) fn resolve_addr(&mut self, src: &Option<SocketAddr>, dst: &SocketAddr, timeout_ms: i32) -> Outcome {
        let src_addr = src.as_ref().map_or(abi::In6([0; 28]), in6);
        let timeout_ms = unsigned(timeout_ms);
        let outcome = self.fd.send(abi::ResolveIp { src_addr, dst_addr: in6(dst), id: self.handle, timeout_ms });
        match outcome {
            Ok(()) => self.sought = Some(*dst),
            Err(_) => self.refused = true,
        }
        outcome
    }

    /// `rdma_resolve_route`.
    pub(crate) fn resolve_route(&self, timeout_ms: i32) -> Outcome {
        self.needs_device()?;
        self.fd.send(abi::ResolveRoute { id: self.handle, timeout_ms: unsigned(timeout_ms) })
    }

    /// `rdma_listen`.
    pub(crate) fn listen(&mut self, backlog: i32) -> Outcome {
        self.fd.send(abi::Listen { id: self.handle, backlog: unsigned(backlog) })?;
        self.has_listened = true;
        // librdmacm reads both addresses and the device here: a failed lookup may have bound the id.
        (self.has_peer, self.sought) = (true, None);
        self.bound();
        Ok(())
    }

    /// `rdma_connect`.
    pub(super) fn connect(
        &mut self,
        scratch: &mut Scratch,
        limits: &Limits,
        param: &ConnParam,
        data: &[u8],
    ) -> Outcome {
        let limits = self.checked(param, limits, scratch)?;
        // Stored even if the kernel refuses the connect: they limit a later accept, as in librdmacm.
        self.requested = depths(param, limits);
        let message = &mut scratch.connect;
        message.body.conn_param.set(param, data, self.requested, self.qp.as_deref())?;
        message.body.id = self.handle;
        message.body.ece = abi::Ece { vendor_id: self.local_ece.vendor_id, attr_mod: self.local_ece.options };
        self.fd.write_message(message)
    }

    /// `rdma_accept`. The kernel reports the id under `key` from then on.
    pub(super) fn accept(
        &mut self,
        key: IdKey,
        scratch: &mut Scratch,
        limits: &Limits,
        param: &ConnParam,
        data: &[u8],
    ) -> Outcome {
        let limits = self.checked(param, limits, scratch)?;
        let requested = Depths {
            responder_resources: self.requested.responder_resources.min(limits.responder_resources),
            initiator_depth: self.requested.initiator_depth.min(limits.initiator_depth),
        };
        let depths = depths(param, requested);
        let body = &mut scratch.accept.body;
        body.conn_param.set(param, data, depths, self.qp.as_deref())?;
        body.uid = key.to_bits();
        body.id = self.handle;
        // The answer has the vendor of the request.
        body.ece = abi::Ece { vendor_id: self.remote_ece.vendor_id, attr_mod: self.local_ece.options };
        if !self.datagrams {
            self.prepare(&mut scratch.qp_attr, depths.responder_resources, depths.initiator_depth)?;
        }
        let accepted = self.fd.write_message(&scratch.accept);
        match (&accepted, &self.qp) {
            (Ok(()), _) => self.uid = Some(key),
            (Err(_), Some(qp)) => qp.fail(),
            (Err(_), None) => {}
        }
        accepted
    }

    /// `rdma_establish`, of an id without a QP.
    pub(crate) fn establish(&self, scratch: &mut Scratch) -> Outcome {
        if self.qp.is_some() { Err(Errno::EINVAL) } else { self.confirm(scratch) }
    }

    /// The third message of the handshake: an accept without parameters.
    pub(super) fn confirm(&self, scratch: &mut Scratch) -> Outcome {
        let body = &mut scratch.accept.body;
        body.conn_param.valid = 0;
        body.id = self.handle;
        body.ece = abi::Ece { vendor_id: 0, attr_mod: 0 };
        self.fd.write_message(&scratch.accept)
    }

    /// `rdma_disconnect`.
    pub(crate) fn disconnect(&self) -> Outcome {
        self.needs_device()?;
        if let Some(qp) = &self.qp {
            qp.shut_down()?;
        }
        self.fd.send(abi::Disconnect { id: self.handle })
    }

    /// `rdma_notify` of `IBV_EVENT_COMM_EST`.
    pub(crate) fn notify(&self) -> Outcome {
        self.fd.send(abi::Notify { id: self.handle, event: COMM_EST })
    }

    /// Checks the parameters of a connect or an accept, and returns the limits of the id's device. In the port spaces where
    /// librdmacm does (`ucma_valid_param`), refuses depths above those. A call that does not need the limits is made
    /// without a check if they cannot be queried, for lack of descriptors for example.
    fn checked(&mut self, param: &ConnParam, limits: &Limits, scratch: &mut Scratch) -> Result<Depths, Errno> {
        if self.limits.is_none() {
            let found = self.locate(scratch).and_then(|location| location.map(|at| limits.of(at)).transpose());
            match found {
                Ok(found) => self.limits = found,
                Err(errno) if [param.responder_resources, param.initiator_depth].contains(&ConnParam::DEVICE_MAX) => {
                    return Err(errno);
                }
                Err(_) => {}
            }
        }
        self.needs_device()?;
        let limits = self.limits.unwrap_or(Depths::UNKNOWN);
        let above = |depth: u8, limit: u8| depth != ConnParam::DEVICE_MAX && depth > limit;
        let refused = above(param.responder_resources, limits.responder_resources)
            || above(param.initiator_depth, limits.initiator_depth);
        if self.space == PortSpace::Tcp && refused { Err(Errno::EINVAL) } else { Ok(limits) }
    }

    /// `rdma_set_local_ece`.
    pub(crate) fn set_ece(&mut self, ece: Ece) -> Outcome {
        if self.qp.is_some() || ece.vendor_id == 0 {
            return Err(Errno::EINVAL);
        }
        self.local_ece = ece;
        Ok(())
    }

    /// `rdma_reject` and `rdma_reject_ece`.
    pub(crate) fn reject(&self, reason: RejectReason, data: &[u8]) -> Outcome {
        let (private_data, private_data_len) = private(data)?;
        let reason = match reason {
            RejectReason::Consumer => 28,
            RejectReason::Ece => 35,
        };
        let body = abi::Reject { id: self.handle, private_data_len, reason, reserved: [0; 2], private_data };
        self.fd.send(body)
    }
}

impl Destroy for Id {
    /// Detaches the QP and destroys the id, once. Its groups end with it. After a failure the id remains, without its QP.
    fn destroy(&mut self) -> Outcome {
        if self.ended {
            return Ok(());
        }
        if self.qp.is_some() {
            // Cannot fail: there is a QP.
            let _ = self.detach();
        }
        self.fd.destroy(self.handle)?;
        self.ended = true;
        Ok(())
    }
}

/// Detaches the QP and destroys the id by a command. The end of its channel does so too, but not while a forked child has
/// the descriptor. In such a child the kernel refuses the command (`ib_safe_file_access`).
impl Drop for Id {
    fn drop(&mut self) {
        // The kernel destroys an id that stays with its channel.
        let _ = self.destroy();
    }
}

/// Whether the QPs of a port space are for datagrams.
fn is_for_datagrams(space: PortSpace) -> bool {
    matches!(space, PortSpace::Udp | PortSpace::Ipoib)
}

/// Returns the depths of the parameters, with `most` for [`ConnParam::DEVICE_MAX`].
fn depths(param: &ConnParam, most: Depths) -> Depths {
    let or = |depth: u8, most: u8| if depth == ConnParam::DEVICE_MAX { most } else { depth };
    Depths {
        responder_resources: or(param.responder_resources, most.responder_resources),
        initiator_depth: or(param.initiator_depth, most.initiator_depth),
    }
}

impl abi::ConnParam {
    /// Fills in the parameters. The QP number and the SRQ are those of the id's QP, if it has one.
    fn set(&mut self, param: &ConnParam, data: &[u8], depths: Depths, qp: Option<&dyn QueuePair>) -> Outcome {
        self.private_data_len = u8::try_from(data.len()).map_err(|_| Errno::EINVAL)?;
        self.private_data[..data.len()].copy_from_slice(data);
        self.qp_num = qp.map_or(param.qp_num, QueuePair::num);
        self.srq = u8::from(qp.map_or(param.srq, QueuePair::uses_srq));
        self.responder_resources = depths.responder_resources;
        self.initiator_depth = depths.initiator_depth;
        self.flow_control = u8::from(param.flow_control);
        self.retry_count = param.retry_count;
        self.rnr_retry_count = param.rnr_retry_count;
        self.valid = 1;
        Ok(())
    }
}

/// Returns the field of a command, and the number of bytes in use.
fn private(data: &[u8]) -> Result<([u8; abi::PRIVATE_DATA], u8), Errno> {
    let len = u8::try_from(data.len()).map_err(|_| Errno::EINVAL)?;
    let mut field = [0; abi::PRIVATE_DATA];
    field[..data.len()].copy_from_slice(data);
    Ok((field, len))
}
