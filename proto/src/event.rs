//! Events as the device reports them (`RawEvent`) and as the core delivers them to the application (`Event`).

use core::fmt;
use core::ops::Deref;

use crate::cm_event::CmEvent;
use crate::errno::Errno;
use crate::key::{GroupKey, IdKey};
use crate::private_data::PrivateData;
use crate::request_kind::RequestKind;
use crate::stored::{Of, Stored};

/// Connection parameters (`struct rdma_conn_param`), as sent by connect and accept and as received with
/// CONNECT_REQUEST and CONNECT_RESPONSE or ESTABLISHED. Received depths are mirrored: the peer's `initiator_depth` is
/// this side's `responder_resources` (rdma_get_cm_event(3)).
#[doc(alias = "rdma_conn_param")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
pub struct ConnParam {
    /// The maximum number of outstanding RDMA reads and atomics of the peer; [`ConnParam::DEVICE_MAX`] is the device's
    /// maximum.
    pub responder_resources: u8,
    /// The maximum number of outstanding RDMA reads and atomics of this side; [`ConnParam::DEVICE_MAX`] is the device's
    /// maximum.
    pub initiator_depth: u8,
    /// Whether hardware flow control is on.
    pub flow_control: bool,
    /// The number of retransmissions before a send fails, 0 to 7. On soft-RoCE 7 means no limit: if the peer loses its
    /// power, sends never complete (`rxe_completer`).
    pub retry_count: u8,
    /// The number of retransmissions after "receiver not ready", 0 to 7; 7 means no limit.
    pub rnr_retry_count: u8,
    /// Whether the QP uses a shared receive queue. Ignored if the id has a QP: librdmacm then uses the QP's property.
    pub srq: bool,
    /// The QP number, for ids without a QP; otherwise librdmacm uses the QP's number. It must differ from that of every
    /// live connection of the host. Otherwise the peer's kernel rejects the new connection as stale (reason 10) and
    /// ends the old one.
    pub qp_num: u32,
}

impl ConnParam {
    /// `RDMA_MAX_RESP_RES` and `RDMA_MAX_INIT_DEPTH`: as much as the device allows.
    #[doc(alias("RDMA_MAX_RESP_RES", "RDMA_MAX_INIT_DEPTH"))]
    pub const DEVICE_MAX: u8 = 0xff;
}

impl Default for ConnParam {
    /// Returns the parameters of `rdma_connect(id, NULL)`: depths of the device, all retries, no flow control.
    fn default() -> Self {
        ConnParam {
            responder_resources: ConnParam::DEVICE_MAX,
            initiator_depth: ConnParam::DEVICE_MAX,
            flow_control: false,
            retry_count: 7,
            rnr_retry_count: 7,
            srq: false,
            qp_num: 0,
        }
    }
}

/// The options of one side for enhanced connection establishment (ECE, `struct ibv_ece`). The vendor defines their
/// meaning.
#[doc(alias = "ibv_ece")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
pub struct Ece {
    /// The vendor; 0 means no options.
    pub vendor_id: u32,
    /// The options.
    pub options: u32,
}

/// The destination of datagrams: a QP or a multicast group (`struct rdma_ud_param`).
#[doc(alias = "rdma_ud_param")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
pub struct Datagram {
    /// The QP to send to; 0xFFFFFF for a multicast group.
    pub qp_num: u32,
    /// The Q_Key that the QP requires.
    pub qkey: u32,
    /// The address vector.
    pub path: AhAttr,
}

/// The attributes of an address handle (`struct ibv_ah_attr`).
#[doc(alias = "ibv_ah_attr")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
pub struct AhAttr {
    /// The global route, if there is one; always on RoCE.
    pub grh: Option<GlobalRoute>,
    /// The LID of the destination; 0 on RoCE.
    pub dlid: u16,
    /// Service level.
    pub sl: u8,
    /// Source path bits.
    pub src_path_bits: u8,
    /// Static rate.
    pub static_rate: u8,
    /// The port of the device to send from.
    pub port_num: u8,
}

/// The global route header (`struct ibv_global_route`).
#[doc(alias = "ibv_global_route")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
pub struct GlobalRoute {
    /// The destination: a GID, or the MGID of a multicast group.
    pub dgid: [u8; 16],
    /// Flow label.
    pub flow_label: u32,
    /// Index of the source GID in the port's table.
    pub sgid_index: u8,
    /// Hops allowed.
    pub hop_limit: u8,
    /// Traffic class.
    pub traffic_class: u8,
}

/// One event as the device reports it.
///
/// The device has acknowledged the event already, so its private data is a copy: borrowed from the device (`B` is
/// `&[u8]`) or owned by the event (`B` is a `Vec<u8>`, for example). The feature `serde` leaves it out: it may be secret.
#[derive(Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
pub struct RawEvent<B> {
    /// The id of the event. For CONNECT_REQUEST it is the new id, under the key that the driver passed to
    /// [`Device::fetch`](crate::Device::fetch).
    pub id: IdKey,
    /// For CONNECT_REQUEST, the listening id.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "crate::text::is_default"))]
    pub listener: Option<IdKey>,
    /// The type.
    pub kind: CmEvent,
    /// 0, a negative errno, or for REJECTED the IB CM's reason (rdma_get_cm_event(3)).
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "crate::text::is_default"))]
    pub status: i32,
    /// Connection parameters; all zero where the event has none.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "crate::text::is_default"))]
    pub param: ReceivedParam,
    /// For ESTABLISHED of a lookup and for MULTICAST_JOIN: the destination of datagrams.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "crate::text::is_default"))]
    pub datagram: Option<Datagram>,
    /// For MULTICAST_JOIN and MULTICAST_ERROR: the membership, under the key of its [`Call::Join`](crate::Call::Join).
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "crate::text::is_default"))]
    pub group: Option<GroupKey>,
    /// The whole private data field of the message, zero padded. Its length is not that of the data sent. For USER, the
    /// argument in the byte order of the host: 8 bytes.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub private_data: B,
}

/// Writes the length of the private data, as [`PrivateData`] does.
impl<B: AsRef<[u8]>> fmt::Debug for RawEvent<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RawEvent { id, listener, kind, status, param, datagram, group, private_data } = self;
        f.debug_struct("RawEvent")
            .field("id", id)
            .field("listener", listener)
            .field("kind", kind)
            .field("status", status)
            .field("param", param)
            .field("datagram", datagram)
            .field("group", group)
            .field("private_data", &format_args!("{} bytes", private_data.as_ref().len()))
            .finish()
    }
}

impl RawEvent<&[u8]> {
    /// Creates an event with only a type. Set the other fields where the type has them.
    #[must_use]
    pub fn new(id: IdKey, kind: CmEvent) -> Self {
        RawEvent {
            id,
            listener: None,
            kind,
            status: 0,
            param: ReceivedParam::default(),
            datagram: None,
            group: None,
            private_data: &[],
        }
    }

    /// Returns the event for the application, if it is [bare](RawEvent::is_bare).
    pub(crate) fn bare(&self, of: Of, ack_token: Option<AckToken>) -> Event {
        Stored::of(self, of, None).bare(ack_token)
    }

    /// Returns the event for the application, with the data that it has.
    pub(crate) fn whole(&self, of: Of, ack_token: Option<AckToken>) -> Option<Event> {
        // Filled in place: an event is large.
        let mut event = Some(self.bare(of, ack_token));
        if let Some(event) = &mut event {
            event.private_data.set(self.private_data);
            event.datagram = self.datagram;
        }
        event
    }

    /// Whether the event has neither private data nor a destination of datagrams, as most events.
    pub(crate) fn is_bare(&self) -> bool {
        self.private_data.is_empty() && self.datagram.is_none()
    }
}

impl<B> RawEvent<B> {
    /// Returns the event with its private data converted by `convert`, for example copied.
    #[must_use]
    pub fn map_private_data<C>(self, convert: impl FnOnce(B) -> C) -> RawEvent<C> {
        let RawEvent { id, listener, kind, status, param, datagram, group, private_data } = self;
        RawEvent { id, listener, kind, status, param, datagram, group, private_data: convert(private_data) }
    }
}

impl<B: Deref<Target = [u8]>> RawEvent<B> {
    /// Returns the event with its private data borrowed.
    #[must_use]
    pub fn as_deref(&self) -> RawEvent<&[u8]> {
        let RawEvent { id, listener, kind, status, param, datagram, group, ref private_data } = *self;
        RawEvent { id, listener, kind, status, param, datagram, group, private_data }
    }
}

/// Connection parameters of an event, all zero where it carries none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ReceivedParam(pub ConnParam);

impl Default for ReceivedParam {
    fn default() -> Self {
        ReceivedParam(ConnParam {
            responder_resources: 0,
            initiator_depth: 0,
            flow_control: false,
            retry_count: 0,
            rnr_retry_count: 0,
            srq: false,
            qp_num: 0,
        })
    }
}

impl Deref for ReceivedParam {
    type Target = ConnParam;
    fn deref(&self) -> &ConnParam {
        &self.0
    }
}

/// The type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// An event of the connection manager.
    Cm(CmEvent),
    /// A migration that waited for acks has ended; status 0, or a negative errno if it failed. Delivered on the new
    /// channel, before the events that moved to it from another one; on the old channel if it failed.
    Migrated,
    /// A destroy that waited for acks has ended; status 0, or a negative errno if it failed (the id then still
    /// exists).
    Destroyed,
    /// A leave that waited for acks has ended; status 0, or a negative errno if it failed (the membership is gone in
    /// both cases).
    Left,
    /// The request's deadline has passed. Later events of the request are counted as late and not delivered. For a
    /// join, [`Event::group`] names the membership: it still has to be left.
    DeadlinePassed(RequestKind),
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EventKind::Cm(kind) => write!(f, "{kind}"),
            EventKind::Migrated => f.write_str("MIGRATED"),
            EventKind::Destroyed => f.write_str("DESTROYED"),
            EventKind::Left => f.write_str("LEFT"),
            EventKind::DeadlinePassed(request_kind) => write!(f, "DEADLINE_PASSED({request_kind})"),
        }
    }
}

/// An event for the application.
#[doc(alias = "rdma_cm_event")]
#[derive(Debug, PartialEq, Eq)]
#[must_use = "dropping an event drops its ack token: its id can then not migrate, and only `destroy_now` destroys it"]
pub struct Event {
    /// The id of the event; for CONNECT_REQUEST the new one.
    pub id: IdKey,
    /// For CONNECT_REQUEST, the listening id.
    pub listener: Option<IdKey>,
    /// The type.
    pub kind: EventKind,
    /// 0, a negative errno, or for REJECTED the IB CM's reason.
    pub status: i32,
    /// Connection parameters; all zero where the event has none.
    pub param: ReceivedParam,
    /// For ESTABLISHED of a lookup and for MULTICAST_JOIN: the destination of datagrams.
    pub datagram: Option<Datagram>,
    /// For events of a multicast membership: the membership.
    pub group: Option<GroupKey>,
    /// Private data, zero padded by the transport. For USER, see [`Event::argument`].
    pub private_data: PrivateData,
    /// The token for [`Core::ack`](crate::Core::ack), on a channel with explicit acks. `None` on other channels, for
    /// events that the core itself made, and after a [`DestroyNow`](crate::Request::DestroyNow) that failed.
    pub ack_token: Option<AckToken>,
}

impl Event {
    /// Returns the result of the request of kind `request` that this event has ended, as in librdmacm's synchronous
    /// mode. Two events are failures although their status is 0: DISCONNECTED, unless the request is a disconnect
    /// (`ECONNRESET`), and DEVICE_REMOVAL (`ENODEV`).
    ///
    /// # Errors
    /// The errno of the failed request.
    pub const fn result_of(&self, request: RequestKind) -> Result<(), Errno> {
        let disconnects = matches!(request, RequestKind::Disconnect | RequestKind::Teardown);
        if matches!(self.kind, EventKind::Cm(CmEvent::DeviceRemoval)) {
            Err(Errno::ENODEV)
        } else if matches!(self.kind, EventKind::Cm(CmEvent::Disconnected)) && !disconnects {
            Err(Errno::ECONNRESET)
        } else {
            self.result()
        }
    }

    /// Returns the connection manager's event type; `None` for an event that the core made.
    #[must_use]
    pub const fn cm(&self) -> Option<CmEvent> {
        match self.kind {
            EventKind::Cm(kind) => Some(kind),
            EventKind::Migrated | EventKind::Destroyed | EventKind::Left | EventKind::DeadlinePassed(_) => None,
        }
    }

    /// Returns the argument of a USER event (`rdma_write_cm_event` of librdmacm 60); `None` for another type.
    #[must_use]
    pub fn argument(&self) -> Option<u64> {
        if self.cm() != Some(CmEvent::User) {
            return None;
        }
        self.private_data.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes))
    }

    /// Returns the result that librdmacm's synchronous mode reports for the event (`ucma_complete` of librdmacm).
    ///
    /// # Errors
    /// The event reports a failure: `ECONNREFUSED` for REJECTED, `ETIMEDOUT` for a deadline, otherwise the errno
    /// of its status.
    pub const fn result(&self) -> Result<(), Errno> {
        match self.kind {
            EventKind::Cm(CmEvent::Rejected) => Err(Errno::ECONNREFUSED),
            EventKind::Cm(_) | EventKind::Migrated | EventKind::Destroyed | EventKind::Left => match self.status {
                0 => Ok(()),
                // `i32::MIN` has no positive counterpart and is no errno.
                i32::MIN => Err(Errno::EINVAL),
                status => Err(Errno(status.abs())),
            },
            EventKind::DeadlinePassed(_) => Err(Errno::ETIMEDOUT),
        }
    }
}

/// The ack that is owed for a delivered event. Not `Clone`: an event is acked once.
#[derive(Debug, PartialEq, Eq, Hash)]
#[must_use = "an unacked event blocks the migration and the destruction of its id, or the leave of its group"]
pub struct AckToken {
    /// The id for which the ack is counted: for CONNECT_REQUEST the listener, as in the kernel.
    pub(crate) owner: IdKey,
    /// For events of a multicast membership: the membership, for which the ack is counted as well.
    pub(crate) group: Option<GroupKey>,
}

impl AckToken {
    /// The id that the ack is owed for; for CONNECT_REQUEST the listener.
    #[must_use]
    pub const fn owner(&self) -> IdKey {
        self.owner
    }

    /// The membership that the ack is owed for as well.
    #[must_use]
    pub const fn group(&self) -> Option<GroupKey> {
        self.group
    }
}
