//! Asynchronous events of a device.

use core::fmt;

use super::numbers::names;

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

names! { AsyncEventKind, other "event type";
    /// A CQ has overrun, and completions are lost. Its QPs fail.
    CQ_ERR = 0;
    /// A QP has failed.
    QP_FATAL = 1;
    /// A QP has received an invalid request.
    QP_REQ_ERR = 2;
    /// A QP has received a request for memory that it may not access.
    QP_ACCESS_ERR = 3;
    /// A QP has received data before ESTABLISHED; [`Request::Notify`](crate::Request::Notify) reports it to the RDMA
    /// CM.
    COMM_EST = 4;
    /// A QP has executed the requests that were posted before it began to drain.
    SQ_DRAINED = 5;
    /// A connection uses its alternate path.
    PATH_MIG = 6;
    /// A connection cannot use its alternate path.
    PATH_MIG_ERR = 7;
    /// The device has failed or is removed. Every id on it reports DEVICE_REMOVAL.
    DEVICE_FATAL = 8;
    /// A port is up.
    PORT_ACTIVE = 9;
    /// A port is down. Connections on it fail when their retries are used up.
    PORT_ERR = 10;
    /// The LID of a port has changed.
    LID_CHANGE = 11;
    /// The P_Key table of a port has changed.
    PKEY_CHANGE = 12;
    /// The subnet manager of a port has changed.
    SM_CHANGE = 13;
    /// A shared receive queue has failed.
    SRQ_ERR = 14;
    /// A shared receive queue has fewer receives than its limit
    /// ([`SharedReceiveQueue::arm_limit`](super::SharedReceiveQueue::arm_limit)).
    SRQ_LIMIT_REACHED = 15;
    /// A QP in its error state takes no more receives from its shared receive queue.
    QP_LAST_WQE_REACHED = 16;
    /// The subnet manager requests that clients of a port register again.
    CLIENT_REREGISTER = 17;
    /// The GID table of a port has changed: an address was added or removed.
    GID_CHANGE = 18;
    /// A work queue has failed.
    WQ_FATAL = 19;
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
