//! The parameters of all connections; `c/main.c` has the same.

use cmid_proto::ConnParam;

/// Without a QP, the caller sets its number.
pub(crate) const PARAM: ConnParam = ConnParam {
    responder_resources: 1,
    initiator_depth: 1,
    flow_control: false,
    retry_count: 7,
    rnr_retry_count: 7,
    srq: false,
    qp_num: 0,
};
