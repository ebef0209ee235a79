//! Asynchronous events of a device.

use core::fmt;

/// An asynchronous event (`struct ibv_async_event`, ibv_get_async_event(3)): an event of a device that
/// no single work request causes.
#[doc(alias = "ibv_async_event")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AsyncEvent {
    /// The kind.
    pub kind: AsyncEventKind,
    /// The object.
    pub source: AsyncSource,
}

/// The object of an asynchronous event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AsyncSource {
    /// The QP with this number ([`QueuePair::num`](super::QueuePair::num)).
    Qp(u32),
    /// The CQ with this number ([`CompletionQueue::num`](super::CompletionQueue::num)).
    Cq(u32),
    /// The SRQ with this number ([`SharedReceiveQueue::num`](super::SharedReceiveQueue::num)).
    Srq(u32),
    /// The port with this number, from 1 on.
    Port(u8),
    /// The device, or an object of a kind that this crate does not support.
    Device,
}

/// The kind of an asynchronous event (`enum ibv_event_type`).
#[doc(alias("ibv_event_type", "ibv_event_type_str"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AsyncEventKind(pub u32);

impl AsyncEventKind {
    /// A CQ has overrun, and completions are lost. Its QPs fail.
    pub const CQ_ERR: AsyncEventKind = AsyncEventKind(0);
    /// A QP has failed.
    pub const QP_FATAL: AsyncEventKind = AsyncEventKind(1);
    /// A QP has received an invalid request.
    pub const QP_REQ_ERR: AsyncEventKind = AsyncEventKind(2);
    /// A QP has received a request for memory that it may not access.
    pub const QP_ACCESS_ERR: AsyncEventKind = AsyncEventKind(3);
    /// A QP has received data before ESTABLISHED; [`Request::Notify`](crate::Request::Notify) reports it to the RDMA
    /// CM.
    pub const COMM_EST: AsyncEventKind = AsyncEventKind(4);
    /// A QP has executed the requests that were posted before it began to drain.
    pub const SQ_DRAINED: AsyncEventKind = AsyncEventKind(5);
    /// A connection uses its alternate path.
    pub const PATH_MIG: AsyncEventKind = AsyncEventKind(6);
    /// A connection cannot use its alternate path.
    pub const PATH_MIG_ERR: AsyncEventKind = AsyncEventKind(7);
    /// The device has failed or is removed. Every id on it reports DEVICE_REMOVAL.
    pub const DEVICE_FATAL: AsyncEventKind = AsyncEventKind(8);
    /// A port is up.
    pub const PORT_ACTIVE: AsyncEventKind = AsyncEventKind(9);
    /// A port is down. Connections on it fail when their retries are used up.
    pub const PORT_ERR: AsyncEventKind = AsyncEventKind(10);
    /// The LID of a port has changed.
    pub const LID_CHANGE: AsyncEventKind = AsyncEventKind(11);
    /// The P_Key table of a port has changed.
    pub const PKEY_CHANGE: AsyncEventKind = AsyncEventKind(12);
    /// The subnet manager of a port has changed.
    pub const SM_CHANGE: AsyncEventKind = AsyncEventKind(13);
    /// A shared receive queue has failed.
    pub const SRQ_ERR: AsyncEventKind = AsyncEventKind(14);
    /// A shared receive queue has fewer receives than its limit
    /// ([`SharedReceiveQueue::arm_limit`](super::SharedReceiveQueue::arm_limit)).
    pub const SRQ_LIMIT_REACHED: AsyncEventKind = AsyncEventKind(15);
    /// A QP in its error state takes no more receives from its shared receive queue.
    pub const QP_LAST_WQE_REACHED: AsyncEventKind = AsyncEventKind(16);
    /// The subnet manager requests that clients of a port register again.
    pub const CLIENT_REREGISTER: AsyncEventKind = AsyncEventKind(17);
    /// The GID table of a port has changed: an address was added or removed.
    pub const GID_CHANGE: AsyncEventKind = AsyncEventKind(18);
    /// A work queue has failed.
    pub const WQ_FATAL: AsyncEventKind = AsyncEventKind(19);
}

impl fmt::Display for AsyncEventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            AsyncEventKind::CQ_ERR => "CQ_ERR",
            AsyncEventKind::QP_FATAL => "QP_FATAL",
            AsyncEventKind::QP_REQ_ERR => "QP_REQ_ERR",
            AsyncEventKind::QP_ACCESS_ERR => "QP_ACCESS_ERR",
            AsyncEventKind::COMM_EST => "COMM_EST",
            AsyncEventKind::SQ_DRAINED => "SQ_DRAINED",
            AsyncEventKind::PATH_MIG => "PATH_MIG",
            AsyncEventKind::PATH_MIG_ERR => "PATH_MIG_ERR",
            AsyncEventKind::DEVICE_FATAL => "DEVICE_FATAL",
            AsyncEventKind::PORT_ACTIVE => "PORT_ACTIVE",
            AsyncEventKind::PORT_ERR => "PORT_ERR",
            AsyncEventKind::LID_CHANGE => "LID_CHANGE",
            AsyncEventKind::PKEY_CHANGE => "PKEY_CHANGE",
            AsyncEventKind::SM_CHANGE => "SM_CHANGE",
            AsyncEventKind::SRQ_ERR => "SRQ_ERR",
            AsyncEventKind::SRQ_LIMIT_REACHED => "SRQ_LIMIT_REACHED",
            AsyncEventKind::QP_LAST_WQE_REACHED => "QP_LAST_WQE_REACHED",
            AsyncEventKind::CLIENT_REREGISTER => "CLIENT_REREGISTER",
            AsyncEventKind::GID_CHANGE => "GID_CHANGE",
            AsyncEventKind::WQ_FATAL => "WQ_FATAL",
            AsyncEventKind(other) => return write!(f, "event type {other}"),
        })
    }
}

impl fmt::Display for AsyncEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.source {
            AsyncSource::Qp(number) => write!(f, "{} of QP {number}", self.kind),
            AsyncSource::Cq(number) => write!(f, "{} of CQ {number}", self.kind),
            AsyncSource::Srq(number) => write!(f, "{} of SRQ {number}", self.kind),
            AsyncSource::Port(number) => write!(f, "{} of port {number}", self.kind),
            AsyncSource::Device => write!(f, "{} of the device", self.kind),
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn an_event_names_its_kind_and_its_source() {
        let text = |kind, source| AsyncEvent { kind, source }.to_string();
        assert_eq!(text(AsyncEventKind::QP_FATAL, AsyncSource::Qp(17)), "QP_FATAL of QP 17");
        assert_eq!(text(AsyncEventKind::CQ_ERR, AsyncSource::Cq(3)), "CQ_ERR of CQ 3");
        assert_eq!(text(AsyncEventKind::SRQ_LIMIT_REACHED, AsyncSource::Srq(4)), "SRQ_LIMIT_REACHED of SRQ 4");
        assert_eq!(text(AsyncEventKind::PORT_ERR, AsyncSource::Port(1)), "PORT_ERR of port 1");
        assert_eq!(text(AsyncEventKind(77), AsyncSource::Device), "event type 77 of the device");
    }
}
