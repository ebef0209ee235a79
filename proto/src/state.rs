//! The states of an id.

use crate::columns::columns;

columns! {
    /// The state of an id. The kernel has fewer states (its `RDMA_CM_CONNECT` covers *connecting* to *failed*), and
    /// librdmacm has none. The state determines which requests are possible.
    pub enum State {
        /// Created; bound to nothing, unless a bind, a lookup or a listen that has failed has bound it nevertheless.
        Idle = "idle",
        /// Has a local address, perhaps not yet a device.
        Bound = "bound",
        /// `rdma_resolve_addr` is under way.
        AddrResolving = "resolving address",
        /// Has a device and the peer's link address.
        AddrResolved = "address resolved",
        /// `rdma_resolve_route` is under way.
        RouteResolving = "resolving route",
        /// Ready to connect.
        RouteResolved = "route resolved",
        /// Active: the request is sent; the peer has not answered yet.
        Connecting = "connecting",
        /// Active, without a QP on the id: the peer has accepted; `rdma_establish` is due.
        Responded = "responded",
        /// Passive: the application has not answered the request yet.
        Requested = "requested",
        /// Passive: accepted; the peer has not confirmed yet.
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
        /// Disconnected and past its time wait, or past the deadline of a teardown.
        Closed = "closed",
        /// Datagrams, active: the lookup is sent; the peer has not answered yet.
        SidrReqSent = "SIDR request sent",
        /// Datagrams, passive: the application has not answered the lookup yet.
        SidrReqReceived = "SIDR request received",
        /// Datagrams, either side: the lookup is answered. Nothing more happens on this id.
        SidrResolved = "SIDR resolved",
        /// Rejected by either side, unreachable, in error, or past a deadline. The id cannot connect again: destroy it.
        Failed = "failed",
        /// Accepts connection requests.
        Listening = "listening",
        /// Its device is removed. The id cannot connect again: destroy it.
        Removed = "device removed",
        /// A destroy waits for the application's acks or for the device.
        Destroying = "destroying",
    }
}
