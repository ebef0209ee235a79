//! Requests and their parameters in a trace.

use std::net::SocketAddr;

use cmid_proto::datapath::{AhAttr, GlobalRoute};
use cmid_proto::{ChannelKey, CmOption, ConnParam, Datagram, Ece, GroupKey, ReceivedParam, RejectReason, Request};
use serde::{Deserialize, Serialize};

use crate::values::{As, Bytes};

/// A [`Request`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum RequestFields {
    Bind {
        addr: SocketAddr,
    },
    ResolveAddr {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        src: Option<SocketAddr>,
        dst: SocketAddr,
    },
    ResolveRoute,
    Listen {
        backlog: i32,
    },
    AttachQp,
    DetachQp,
    Connect {
        param: Param,
        #[serde(default, skip_serializing_if = "Bytes::is_empty")]
        data: Bytes,
    },
    Accept {
        param: Param,
        #[serde(default, skip_serializing_if = "Bytes::is_empty")]
        data: Bytes,
    },
    Reject {
        reason: As<RejectReason>,
        #[serde(default, skip_serializing_if = "Bytes::is_empty")]
        data: Bytes,
    },
    Establish,
    Disconnect,
    Teardown,
    Notify,
    GetRequest,
    Join {
        addr: SocketAddr,
        send_only: bool,
    },
    Leave {
        group: As<GroupKey>,
    },
    SetTos(u8),
    SetReuseAddr(bool),
    SetAfOnly(bool),
    SetAckTimeout(u8),
    SetEce {
        vendor_id: u32,
        options: u32,
    },
    Migrate {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to: Option<As<ChannelKey>>,
    },
    Destroy,
    DestroyNow,
}

impl From<&Request<'_>> for RequestFields {
    fn from(request: &Request<'_>) -> Self {
        let data = request.private_data().into();
        match *request {
            Request::Bind { addr } => RequestFields::Bind { addr },
            Request::ResolveAddr { src, dst } => RequestFields::ResolveAddr { src, dst },
            Request::ResolveRoute => RequestFields::ResolveRoute,
            Request::Listen { backlog } => RequestFields::Listen { backlog },
            Request::AttachQp => RequestFields::AttachQp,
            Request::DetachQp => RequestFields::DetachQp,
            Request::Connect { param, .. } => RequestFields::Connect { param: param.into(), data },
            Request::Accept { param, .. } => RequestFields::Accept { param: param.into(), data },
            Request::Reject { reason, .. } => RequestFields::Reject { reason: As(reason), data },
            Request::Establish => RequestFields::Establish,
            Request::Disconnect => RequestFields::Disconnect,
            Request::Teardown => RequestFields::Teardown,
            Request::Notify => RequestFields::Notify,
            Request::GetRequest => RequestFields::GetRequest,
            Request::Join { addr, send_only } => RequestFields::Join { addr, send_only },
            Request::Leave { group } => RequestFields::Leave { group: As(group) },
            Request::SetOption { option: CmOption::Tos(tos) } => RequestFields::SetTos(tos),
            Request::SetOption { option: CmOption::ReuseAddr(on) } => RequestFields::SetReuseAddr(on),
            Request::SetOption { option: CmOption::AfOnly(on) } => RequestFields::SetAfOnly(on),
            Request::SetOption { option: CmOption::AckTimeout(power) } => RequestFields::SetAckTimeout(power),
            Request::SetEce { ece: Ece { vendor_id, options } } => RequestFields::SetEce { vendor_id, options },
            Request::Migrate { to } => RequestFields::Migrate { to: to.map(As) },
            Request::Destroy => RequestFields::Destroy,
            Request::DestroyNow => RequestFields::DestroyNow,
        }
    }
}

impl RequestFields {
    /// Converts to the type of the core.
    pub(crate) fn request(&self) -> Request<'_> {
        match *self {
            RequestFields::Bind { addr } => Request::Bind { addr },
            RequestFields::ResolveAddr { src, dst } => Request::ResolveAddr { src, dst },
            RequestFields::ResolveRoute => Request::ResolveRoute,
            RequestFields::Listen { backlog } => Request::Listen { backlog },
            RequestFields::AttachQp => Request::AttachQp,
            RequestFields::DetachQp => Request::DetachQp,
            RequestFields::Connect { param, ref data } => {
                Request::Connect { param: param.into(), private_data: &data.0 }
            }
            RequestFields::Accept { param, ref data } => Request::Accept { param: param.into(), private_data: &data.0 },
            RequestFields::Reject { reason: As(reason), ref data } => Request::Reject { reason, private_data: &data.0 },
            RequestFields::Establish => Request::Establish,
            RequestFields::Disconnect => Request::Disconnect,
            RequestFields::Teardown => Request::Teardown,
            RequestFields::Notify => Request::Notify,
            RequestFields::GetRequest => Request::GetRequest,
            RequestFields::Join { addr, send_only } => Request::Join { addr, send_only },
            RequestFields::Leave { group: As(group) } => Request::Leave { group },
            RequestFields::SetTos(tos) => Request::SetOption { option: CmOption::Tos(tos) },
            RequestFields::SetReuseAddr(on) => Request::SetOption { option: CmOption::ReuseAddr(on) },
            RequestFields::SetAfOnly(on) => Request::SetOption { option: CmOption::AfOnly(on) },
            RequestFields::SetAckTimeout(power) => Request::SetOption { option: CmOption::AckTimeout(power) },
            RequestFields::SetEce { vendor_id, options } => Request::SetEce { ece: Ece { vendor_id, options } },
            RequestFields::Migrate { to } => Request::Migrate { to: to.map(|As(to)| to) },
            RequestFields::Destroy => Request::Destroy,
            RequestFields::DestroyNow => Request::DestroyNow,
        }
    }
}

/// A [`ConnParam`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Param {
    responder_resources: u8,
    initiator_depth: u8,
    flow_control: bool,
    retry_count: u8,
    rnr_retry_count: u8,
    srq: bool,
    qp_num: u32,
}

impl From<ConnParam> for Param {
    fn from(it: ConnParam) -> Self {
        let ConnParam { responder_resources, initiator_depth, flow_control, retry_count, rnr_retry_count, srq, qp_num } =
            it;
        Param { responder_resources, initiator_depth, flow_control, retry_count, rnr_retry_count, srq, qp_num }
    }
}

impl From<Param> for ConnParam {
    fn from(it: Param) -> Self {
        let Param { responder_resources, initiator_depth, flow_control, retry_count, rnr_retry_count, srq, qp_num } =
            it;
        ConnParam { responder_resources, initiator_depth, flow_control, retry_count, rnr_retry_count, srq, qp_num }
    }
}

/// The parameters of an event; `None` if all are zero.
pub(crate) fn received(param: ReceivedParam) -> Option<Param> {
    (param != ReceivedParam::default()).then(|| (*param).into())
}

/// A [`Datagram`], with its fields at one level.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Path {
    qp_num: u32,
    qkey: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    grh: Option<Route>,
    dlid: u16,
    sl: u8,
    src_path_bits: u8,
    static_rate: u8,
    port_num: u8,
}

/// A [`GlobalRoute`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Route {
    dgid: std::net::Ipv6Addr,
    flow_label: u32,
    sgid_index: u8,
    hop_limit: u8,
    traffic_class: u8,
}

impl From<Datagram> for Path {
    fn from(it: Datagram) -> Self {
        let Datagram { qp_num, qkey, path } = it;
        let AhAttr { grh, dlid, sl, src_path_bits, static_rate, port_num } = path;
        let grh = grh.map(|route| {
            let GlobalRoute { dgid, flow_label, sgid_index, hop_limit, traffic_class } = route;
            Route { dgid: dgid.into(), flow_label, sgid_index, hop_limit, traffic_class }
        });
        Path { qp_num, qkey, grh, dlid, sl, src_path_bits, static_rate, port_num }
    }
}

impl Path {
    pub(crate) fn datagram(&self) -> Datagram {
        let Path { qp_num, qkey, ref grh, dlid, sl, src_path_bits, static_rate, port_num } = *self;
        let grh = grh.as_ref().map(|route| {
            let Route { dgid, flow_label, sgid_index, hop_limit, traffic_class } = *route;
            GlobalRoute { dgid: dgid.octets(), flow_label, sgid_index, hop_limit, traffic_class }
        });
        Datagram { qp_num, qkey, path: AhAttr { grh, dlid, sl, src_path_bits, static_rate, port_num } }
    }
}
