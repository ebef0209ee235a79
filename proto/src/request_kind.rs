//! The kinds of requests: the columns of the request table.

use crate::columns::columns;

columns! {
    /// The kind of a request on an id: a column of the [request table](crate::table::REQUESTS).
    pub enum RequestKind {
        /// `rdma_bind_addr`.
        Bind = "bind_addr",
        /// `rdma_resolve_addr`.
        ResolveAddr = "resolve_addr",
        /// `rdma_resolve_route`.
        ResolveRoute = "resolve_route",
        /// `rdma_listen`.
        Listen = "listen",
        /// The application has created a QP for the id (`rdma_create_qp`).
        AttachQp = "attach_qp",
        /// The id has no QP any more (`rdma_destroy_qp`).
        DetachQp = "detach_qp",
        /// `rdma_connect`.
        Connect = "connect",
        /// `rdma_accept`.
        Accept = "accept",
        /// `rdma_reject`.
        Reject = "reject",
        /// `rdma_establish`.
        Establish = "establish",
        /// `rdma_disconnect`.
        Disconnect = "disconnect",
        /// A disconnect that ends when memory may be used again: at TIMEWAIT_EXIT, or at its deadline.
        Teardown = "teardown",
        /// `rdma_notify` with `IBV_EVENT_COMM_EST`.
        Notify = "notify",
        /// `rdma_get_request`: the next CONNECT_REQUEST of a listener in synchronous mode.
        GetRequest = "get_request",
        /// `rdma_join_multicast_ex`.
        Join = "join_multicast",
        /// `rdma_leave_multicast`.
        Leave = "leave_multicast",
        /// `rdma_set_option`, `RDMA_OPTION_ID_TOS`.
        SetTos = "set_tos",
        /// `rdma_set_option`, `RDMA_OPTION_ID_REUSEADDR`, on.
        ReuseAddr = "reuse_addr_on",
        /// `rdma_set_option`, `RDMA_OPTION_ID_REUSEADDR`, off.
        NoReuseAddr = "reuse_addr_off",
        /// `rdma_set_option`, `RDMA_OPTION_ID_AFONLY`.
        SetAfOnly = "set_af_only",
        /// `rdma_set_option`, `RDMA_OPTION_ID_ACK_TIMEOUT`.
        SetAckTimeout = "set_ack_timeout",
        /// `rdma_set_local_ece`.
        SetEce = "set_local_ece",
        /// `rdma_migrate_id`.
        Migrate = "migrate_id",
        /// Moving the id to another core.
        Release = "release",
        /// `rdma_destroy_id`.
        Destroy = "destroy_id",
        /// `rdma_destroy_id` without the acks that are owed.
        DestroyNow = "destroy_now",
    }
}
