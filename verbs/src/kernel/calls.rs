//! The commands on one id.

use core::net::SocketAddr;

use cmid_proto::{
    Call, ChannelKey, CmOption, ConnParam, Ece, Errno, GroupKey, IdKey, Outcome, PortSpace, RejectReason,
};

use crate::kernel::abi;
use crate::kernel::answer::storage;
use crate::kernel::channel::Channel;
use crate::macros;

/// `IBV_QPT_RC` and `IBV_QPT_UD`.
const RC: u8 = 2;
const UD: u8 = 4;
/// `IBV_EVENT_COMM_EST`.
const COMM_EST: u32 = 4;

/// One id of the kernel's.
pub(crate) struct Id {
    /// The kernel's number of it.
    pub(crate) handle: u32,
    /// The key that the kernel reports it under.
    pub(crate) uid: IdKey,
    pub(crate) channel: ChannelKey,
    pub(crate) datagrams: bool,
    pub(crate) local_ece: Ece,
    pub(crate) remote_ece: Ece,
}

impl Id {
    pub(crate) fn filed(handle: u32, uid: IdKey, channel: ChannelKey, datagrams: bool) -> Self {
        Id { handle, uid, channel, datagrams, local_ece: Ece::default(), remote_ece: Ece::default() }
    }

    pub(crate) fn create(key: IdKey, on: ChannelKey, channel: &Channel, space: PortSpace) -> Result<Self, Errno> {
        let datagrams = matches!(space, PortSpace::Udp | PortSpace::Ipoib);
        let (uid, ps) = (key.to_bits(), space.code() as u16);
        let qp_type = if datagrams { UD } else { RC };
        let body = abi::CreateId { uid, response: 0, ps, qp_type, reserved: [0; 5] };
        Ok(Self::filed(channel.number(body)?, key, on, datagrams))
    }

    pub(crate) fn destroy(&self, channel: &Channel) -> Outcome {
        let id = self.handle;
        channel.number(abi::DestroyId { response: 0, id, reserved: 0 }).map(drop)
    }

    /// The kernel's number of the membership.
    pub(crate) fn join(
        &self,
        channel: &Channel,
        group: GroupKey,
        addr: &SocketAddr,
        send_only: bool,
    ) -> Result<u32, Errno> {
        let ((addr, addr_size), uid, id) = (storage(addr), group.to_bits(), self.handle);
        let join_flags = u16::from(send_only);
        channel.number(abi::JoinMcast { response: 0, uid, id, addr_size, join_flags, addr })
    }

    /// A call that changes nothing in this device's own record.
    pub(crate) fn call(&self, channel: &Channel, call: &Call, private_data: &[u8], depth: u8) -> Outcome {
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
            Call::Connect { ref param, .. } => {
                let conn_param = conn_param(param, private_data, depth)?;
                channel.send(abi::Connect { conn_param, id, reserved: 0, ece: self.ece() })
            }
            Call::Accept { ref param, .. } => self.accept(channel, conn_param(param, private_data, depth)?),
            Call::Reject { reason, .. } => self.reject(channel, reason, private_data),
            // Without parameters the kernel sends the third message of the handshake.
            Call::Establish { .. } => self.accept(channel, NO_PARAM),
            Call::Disconnect { .. } => channel.send(abi::Disconnect { id }),
            Call::Notify { .. } => channel.send(abi::Notify { id, event: COMM_EST }),
            Call::SetOption { option, .. } => set_option(channel, id, option),
            Call::OpenChannel { .. }
            | Call::CloseChannel { .. }
            | Call::CreateId { .. }
            | Call::Join { .. }
            | Call::Leave { .. }
            | Call::SetEce { .. }
            | Call::Migrate { .. }
            | Call::Destroy { .. } => Err(Errno::EINVAL),
        }
    }

    fn resolve_addr(&self, on: &Channel, src: &Option<SocketAddr>, dst: &SocketAddr, timeout_ms: i32) -> Outcome {
        let (dst_addr, dst_size) = storage(dst);
        let (src_addr, src_size) = src.as_ref().map_or((abi::Storage([0; 128]), 0), storage);
        let timeout_ms = timeout_ms.cast_unsigned();
        let body =
            abi::ResolveAddr { id: self.handle, timeout_ms, src_size, dst_size, reserved: 0, src_addr, dst_addr };
        on.send(body)
    }

    fn accept(&self, channel: &Channel, conn_param: abi::ConnParam) -> Outcome {
        let uid = self.uid.to_bits();
        channel.send(abi::Accept { uid, conn_param, id: self.handle, reserved: 0, ece: self.ece() })
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

    fn ece(&self) -> abi::Ece {
        abi::Ece { vendor_id: self.local_ece.vendor_id, attr_mod: self.local_ece.options }
    }
}

const NO_PARAM: abi::ConnParam = abi::ConnParam {
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

fn conn_param(param: &ConnParam, data: &[u8], depth: u8) -> Result<abi::ConnParam, Errno> {
    let (private_data, private_data_len) = private(data)?;
    let limited = |asked| if asked == ConnParam::DEVICE_MAX { depth } else { asked };
    Ok(abi::ConnParam {
        qp_num: param.qp_num,
        qkey: 0,
        private_data,
        private_data_len,
        srq: u8::from(param.srq),
        responder_resources: limited(param.responder_resources),
        initiator_depth: limited(param.initiator_depth),
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
