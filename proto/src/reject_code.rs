//! The reason codes in the reject messages of the connection manager.

use core::fmt;

/// The reason code of a REJECTED event on InfiniBand and RoCE (IBTA specification, section 12.6.7.2; `enum
/// ib_cm_rej_reason` of the kernel).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RejectCode(pub u16);

macro_rules! reject_codes {
    ($($name:ident = $code:literal, $text:literal;)+) => {
        #[allow(missing_docs, reason = "the names are those of the specification; the text explains each")]
        impl RejectCode {
            $( pub const $name: RejectCode = RejectCode($code); )+

            /// Every code that has a constant here.
            pub const ALL: &[RejectCode] = &[$(RejectCode::$name),+];

            /// Returns the reason in words; `None` for a code without a constant here.
            #[must_use]
            pub const fn text(self) -> Option<&'static str> {
                match self.0 {
                    $( $code => Some($text), )+
                    _ => None,
                }
            }
        }
    };
}

reject_codes! {
    NO_QP = 1, "no QP available";
    NO_EEC = 2, "no EE context available";
    NO_RESOURCES = 3, "no resources available";
    TIMEOUT = 4, "timed out";
    UNSUPPORTED = 5, "unsupported request";
    INVALID_COMM_ID = 6, "invalid communication id";
    INVALID_COMM_INSTANCE = 7, "invalid communication instance";
    INVALID_SERVICE_ID = 8, "no listener on this port";
    INVALID_TRANSPORT_TYPE = 9, "invalid transport service type";
    STALE_CONN = 10, "stale connection: the peer has a connection with this QP number";
    RDC_NOT_EXIST = 11, "no such RD channel";
    INVALID_GID = 12, "invalid primary GID";
    INVALID_LID = 13, "invalid primary LID";
    INVALID_SL = 14, "invalid primary service level";
    INVALID_TRAFFIC_CLASS = 15, "invalid primary traffic class";
    INVALID_HOP_LIMIT = 16, "invalid primary hop limit";
    INVALID_PACKET_RATE = 17, "invalid primary packet rate";
    INVALID_ALT_GID = 18, "invalid alternate GID";
    INVALID_ALT_LID = 19, "invalid alternate LID";
    INVALID_ALT_SL = 20, "invalid alternate service level";
    INVALID_ALT_TRAFFIC_CLASS = 21, "invalid alternate traffic class";
    INVALID_ALT_HOP_LIMIT = 22, "invalid alternate hop limit";
    INVALID_ALT_PACKET_RATE = 23, "invalid alternate packet rate";
    PORT_CM_REDIRECT = 24, "redirected to another port's connection manager";
    PORT_REDIRECT = 25, "redirected to another port";
    INVALID_MTU = 26, "invalid path MTU";
    INSUFFICIENT_RESP_RESOURCES = 27, "insufficient responder resources";
    CONSUMER_DEFINED = 28, "rejected by the application";
    INVALID_RNR_RETRY = 29, "invalid RNR retry count";
    DUPLICATE_LOCAL_COMM_ID = 30, "duplicate local communication id";
    INVALID_CLASS_VERSION = 31, "invalid class version";
    INVALID_FLOW_LABEL = 32, "invalid primary flow label";
    INVALID_ALT_FLOW_LABEL = 33, "invalid alternate flow label";
    VENDOR_OPTION_NOT_SUPPORTED = 35, "rejected because of its vendor options (ECE)";
}

impl fmt::Display for RejectCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.text() {
            Some(text) => write!(f, "reason {}, {text}", self.0),
            None => write!(f, "reason {}", self.0),
        }
    }
}
