//! One end of an iWARP connection, and its messages.

use cmid_proto::ConnParam;

use crate::fabric::timers::TimerKey;
use crate::index::{HostNo, IdNo, QpNo};

/// The state of an `iw_cm_id` (`enum iw_cm_state`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IwState {
    /// The connection has ended.
    Idle,
    ConnRecv,
    ConnSent,
    Established,
    Closing,
}

/// One end of a TCP connection.
#[derive(Debug)]
pub(crate) struct IwConn {
    pub(crate) state: IwState,
    /// The id at the other end. The passive end exists once the request has arrived.
    pub(crate) peer: Option<IdNo>,
    /// Whether TCP has ended before the application has answered.
    pub(crate) gone: bool,
    pub(crate) qp: Option<QpNo>,
    pub(crate) param: ConnParam,
    /// The timer of the answer.
    pub(crate) timer: Option<TimerKey>,
}

/// A message of one end of a connection to the other, or of the device to its own end.
#[derive(Clone, Debug)]
pub(crate) enum IwMessage {
    /// A request to the host of the listener.
    Request {
        at: HostNo,
        private_data: Vec<u8>,
    },
    Reply {
        private_data: Vec<u8>,
    },
    Reject {
        private_data: Vec<u8>,
    },
    /// The own request, from a TCP connection that ends at its own address and port.
    OwnRequest {
        private_data: Vec<u8>,
    },
    /// The end of TCP.
    Close,
    /// The accepting end may send now.
    Ready,
    /// This end of TCP has closed.
    Closed,
}
