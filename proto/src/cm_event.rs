//! The types of connection manager events.

use alloc::string::ToString;
use core::fmt;
use core::str::FromStr;

use crate::text::ParseError;

macro_rules! cm_events {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $text:literal;)+) => {
        /// The type of a connection manager event (`enum rdma_cm_event_type` of `rdma/rdma_cma.h`).
        #[doc(alias = "rdma_cm_event_type")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum CmEvent {
            $( $(#[$doc])* $name, )+
            /// A code without a name in this version. The event is delivered unchanged.
            Unknown(u32),
        }

        impl CmEvent {
            /// Every known type, by its code.
            pub const ALL: &[CmEvent] = &[$(CmEvent::$name),+];

            /// Returns the type with this number in `enum rdma_cm_event_type`.
            #[must_use]
            pub const fn from_code(code: u32) -> Self {
                match code {
                    $( $code => CmEvent::$name, )+
                    other => CmEvent::Unknown(other),
                }
            }

            /// Returns the number in `enum rdma_cm_event_type`.
            #[must_use]
            pub const fn code(self) -> u32 {
                match self {
                    $( CmEvent::$name => $code, )+
                    CmEvent::Unknown(code) => code,
                }
            }

            /// Returns the name of rdma_get_cm_event(3) without its prefix.
            #[doc(alias = "rdma_event_str")]
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $( CmEvent::$name => $text, )+
                    CmEvent::Unknown(_) => "UNKNOWN",
                }
            }
        }
    };
}

cm_events! {
    /// The address is found and the id has a device.
    #[doc(alias = "RDMA_CM_EVENT_ADDR_RESOLVED")]
    AddrResolved = 0, "ADDR_RESOLVED";
    /// The address was not found; `rdma_resolve_addr` may be called again.
    #[doc(alias = "RDMA_CM_EVENT_ADDR_ERROR")]
    AddrError = 1, "ADDR_ERROR";
    /// A route is known.
    #[doc(alias = "RDMA_CM_EVENT_ROUTE_RESOLVED")]
    RouteResolved = 2, "ROUTE_RESOLVED";
    /// No route was found (InfiniBand only); `rdma_resolve_route` may be called again.
    #[doc(alias = "RDMA_CM_EVENT_ROUTE_ERROR")]
    RouteError = 3, "ROUTE_ERROR";
    /// A peer requests a connection; the event names a new id and its listener.
    #[doc(alias = "RDMA_CM_EVENT_CONNECT_REQUEST")]
    ConnectRequest = 4, "CONNECT_REQUEST";
    /// The peer accepted and the id has no QP: `rdma_establish` is due.
    #[doc(alias = "RDMA_CM_EVENT_CONNECT_RESPONSE")]
    ConnectResponse = 5, "CONNECT_RESPONSE";
    /// librdmacm could not complete a connection that the peer accepted.
    #[doc(alias = "RDMA_CM_EVENT_CONNECT_ERROR")]
    ConnectError = 6, "CONNECT_ERROR";
    /// No answer arrived; or, in any state, the peer's link address changed.
    #[doc(alias = "RDMA_CM_EVENT_UNREACHABLE")]
    Unreachable = 7, "UNREACHABLE";
    /// The peer rejected the request; the status is the IB CM's reason.
    #[doc(alias = "RDMA_CM_EVENT_REJECTED")]
    Rejected = 8, "REJECTED";
    /// The connection is established.
    #[doc(alias = "RDMA_CM_EVENT_ESTABLISHED")]
    Established = 9, "ESTABLISHED";
    /// The connection ended; status −110 if the peer never answered.
    #[doc(alias = "RDMA_CM_EVENT_DISCONNECTED")]
    Disconnected = 10, "DISCONNECTED";
    /// The id's device is gone.
    #[doc(alias = "RDMA_CM_EVENT_DEVICE_REMOVAL")]
    DeviceRemoval = 11, "DEVICE_REMOVAL";
    /// A multicast group was joined.
    #[doc(alias = "RDMA_CM_EVENT_MULTICAST_JOIN")]
    MulticastJoin = 12, "MULTICAST_JOIN";
    /// A join failed or a group was lost.
    #[doc(alias = "RDMA_CM_EVENT_MULTICAST_ERROR")]
    MulticastError = 13, "MULTICAST_ERROR";
    /// The link address under the id changed (bonding).
    #[doc(alias = "RDMA_CM_EVENT_ADDR_CHANGE")]
    AddrChange = 14, "ADDR_CHANGE";
    /// No packet of the old connection can arrive any more.
    #[doc(alias = "RDMA_CM_EVENT_TIMEWAIT_EXIT")]
    TimewaitExit = 15, "TIMEWAIT_EXIT";
    /// `rdma_resolve_addrinfo` finished (librdmacm 60 and newer).
    #[doc(alias = "RDMA_CM_EVENT_ADDRINFO_RESOLVED")]
    AddrinfoResolved = 16, "ADDRINFO_RESOLVED";
    /// `rdma_resolve_addrinfo` failed (librdmacm 60 and newer).
    #[doc(alias = "RDMA_CM_EVENT_ADDRINFO_ERROR")]
    AddrinfoError = 17, "ADDRINFO_ERROR";
    /// Written by `rdma_write_cm_event` (librdmacm 60 and newer).
    #[doc(alias = "RDMA_CM_EVENT_USER")]
    User = 18, "USER";
    /// Internal to librdmacm (60 and newer), which never returns it to an application.
    #[doc(alias = "RDMA_CM_EVENT_INTERNAL")]
    Internal = 19, "INTERNAL";
}

impl CmEvent {
    /// Whether the event is of a membership in a multicast group.
    #[must_use]
    pub const fn is_of_group(self) -> bool {
        matches!(self, CmEvent::MulticastJoin | CmEvent::MulticastError)
    }
}

impl fmt::Display for CmEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        if let CmEvent::Unknown(code) = self { write!(f, "({code})") } else { Ok(()) }
    }
}

impl FromStr for CmEvent {
    type Err = ParseError;
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let code = || text.strip_prefix("UNKNOWN(")?.strip_suffix(')')?.parse().ok();
        let named = CmEvent::ALL.iter().copied().find(|event| event.name() == text);
        let event = named.or_else(|| code().map(CmEvent::from_code));
        event.filter(|event| event.to_string() == text).ok_or(ParseError("an event type"))
    }
}
