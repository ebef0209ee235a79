//! The states of an id.

use crate::columns::columns;

columns! {
    /// The state of an id. The kernel distinguishes fewer states (all of *connecting* to *failed* are its `CONNECT`),
    /// and librdmacm none. These states decide which request is possible.
    pub enum State {
        /// Created; bound to nothing.
        Idle = "idle",
        /// Has a local address, perhaps not yet a device.
        Bound = "bound",
        /// `rdma_resolve_addr` is under way.
        AddrResolving = "resolving address",
        /// Has a device and knows the peer's address.
        AddrResolved = "address resolved",
        /// `rdma_resolve_route` is under way.
        RouteResolving = "resolving route",
        /// Ready to connect.
        RouteResolved = "route resolved",
        /// Active: the request is sent, no answer yet.
        Connecting = "connecting",
        /// Active, without a QP on the id: the answer is here and waits for `rdma_establish`.
        Responded = "responded",
        /// Passive: the application has not answered the request yet.
        Requested = "requested",
        /// Passive: accepted, the peer has not confirmed yet.
        Accepting = "accepting",
        /// Both sides may send.
        Connected = "connected",
        /// This side has requested a disconnect; the peer has not answered.
        Disconnecting = "disconnecting",
        /// A teardown is under way: until no packet of the connection can arrive any more, or until its deadline.
        Closing = "closing",
        /// The peer has requested a disconnect; this side has not answered.
        PeerClosed = "closed by peer",
        /// Disconnected on both sides; packets may still be under way.
        TimeWait = "time wait",
        /// Disconnected and past its time wait: memory may be used again.
        Closed = "closed",
        /// Datagrams, active: the lookup is sent, no answer yet.
        SidrReqSent = "SIDR request sent",
        /// Datagrams, passive: the application has not answered the lookup yet.
        SidrReqReceived = "SIDR request received",
        /// Datagrams, either side: the lookup is answered. Nothing more happens on this id.
        SidrResolved = "SIDR resolved",
        /// Rejected by either side, unreachable, in error, or given up at a deadline. Only a destroy helps.
        Failed = "failed",
        /// Accepts connection requests.
        Listening = "listening",
        /// Its device is gone. Only a destroy helps.
        Removed = "device removed",
        /// A destroy waits for the application's acks or for the device.
        Destroying = "destroying",
    }
}
