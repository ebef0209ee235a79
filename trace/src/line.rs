//! The lines of a trace. `docs/trace.md` documents them.

use cmid_proto::{Acks, ChannelKey, CmEvent, Errno, GroupKey, IdKey, Limits, PortSpace, RawEvent};
use serde::{Deserialize, Serialize};

use crate::request::{Param, Path, RequestFields, received};
use crate::snapshot::{Snapshot, Sum};
use crate::values::{As, Bytes};

/// The name in the first line, and the version of the format.
pub(crate) const FORMAT: (&str, u32) = ("cmid-trace", 3);

/// One line: the input of the core, and its result. Results that are only compared are stored as text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Line {
    Begin {
        format: String,
        version: u32,
        limits: Bounds,
    },
    /// The current time in nanoseconds, valid until the next such line.
    Time(u64),
    OpenChannel {
        acks: As<Acks>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        is: Option<As<ChannelKey>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refused: Option<String>,
    },
    CloseChannel {
        channel: As<ChannelKey>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refused: Option<String>,
    },
    CreateId {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        on: Option<As<ChannelKey>>,
        port_space: As<PortSpace>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        is: Option<As<IdKey>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refused: Option<String>,
    },
    Submit {
        id: As<IdKey>,
        request: RequestFields,
        /// `None`: no deadline.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline: Option<u64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refused: Option<String>,
    },
    Ack {
        owner: As<IdKey>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        group: Option<As<GroupKey>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refused: Option<String>,
    },
    /// A device call of the preceding request, or one that follows from earlier steps.
    Call {
        call: String,
        #[serde(default, skip_serializing_if = "Bytes::is_empty")]
        data: Bytes,
    },
    /// The outcome of the call.
    Outcome {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        errno: Option<As<Errno>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fault: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        state: Option<String>,
    },
    Readable(As<ChannelKey>),
    /// The core returns a channel to read, and the key for a child. `None`: the core takes no event now.
    Look {
        on: As<ChannelKey>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        child: Option<As<IdKey>>,
    },
    Event {
        on: As<ChannelKey>,
        raw: Raw,
        is: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        state: Option<String>,
        /// The channel whose next event was asked for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to: Option<As<ChannelKey>>,
        /// Whether the channel is read only once: a remaining event makes it readable again.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        once: bool,
    },
    Unreadable {
        on: As<ChannelKey>,
        errno: As<Errno>,
    },
    WaitForRoom(As<ChannelKey>),
    /// Destroys the next id of an undelivered request after its listener.
    Child(As<IdKey>),
    /// The device of the id has iWARP's transport.
    Iwarp(As<IdKey>),
    PauseChannel {
        channel: As<ChannelKey>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refused: Option<String>,
    },
    ResumeChannel {
        channel: As<ChannelKey>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refused: Option<String>,
    },
    /// Deadlines have passed.
    Timeout,
    Deliver {
        on: As<ChannelKey>,
        event: String,
    },
    Release {
        id: As<IdKey>,
        /// Identifies the id in an adoption, in this trace or another one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ticket: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refused: Option<String>,
        /// The errno of the device; the id is lost.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        errno: Option<As<Errno>>,
    },
    Adopt {
        ticket: String,
        id: As<IdKey>,
        channel: As<ChannelKey>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        errno: Option<As<Errno>>,
    },
    /// The driver returns control to the application.
    Yield(Sum),
    End(Snapshot),
}

/// [`Limits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Bounds {
    ids: u32,
    channels: u32,
    events: u32,
    groups: u32,
    #[serde(default)]
    reserved_ids: u32,
    #[serde(default)]
    reserved_events: u32,
    /// Defaults to unlimited.
    #[serde(default = "unlimited")]
    channel_events: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    core: Option<u16>,
}

fn unlimited() -> u32 {
    u32::MAX
}

impl From<Limits> for Bounds {
    fn from(limits: Limits) -> Self {
        let Limits { ids, channels, events, groups, reserved_ids, reserved_events, channel_events, core } = limits;
        Bounds { ids, channels, events, groups, reserved_ids, reserved_events, channel_events, core }
    }
}

impl From<Bounds> for Limits {
    fn from(bounds: Bounds) -> Self {
        let Bounds { ids, channels, events, groups, reserved_ids, reserved_events, channel_events, core } = bounds;
        Limits { ids, channels, events, groups, reserved_ids, reserved_events, channel_events, core }
    }
}

/// A [`RawEvent`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Raw {
    pub(crate) kind: As<CmEvent>,
    pub(crate) id: As<IdKey>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    listener: Option<As<IdKey>>,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) status: i32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    param: Option<Param>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    datagram: Option<Path>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    group: Option<As<GroupKey>>,
    #[serde(default, skip_serializing_if = "Bytes::is_empty")]
    data: Bytes,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "required by serde")]
fn is_zero(status: &i32) -> bool {
    *status == 0
}

impl From<&RawEvent<&[u8]>> for Raw {
    fn from(raw: &RawEvent<&[u8]>) -> Self {
        let RawEvent { id, listener, kind, status, param, datagram, group, private_data } = *raw;
        Raw {
            kind: As(kind),
            id: As(id),
            listener: listener.map(As),
            status,
            param: received(param),
            datagram: datagram.map(Into::into),
            group: group.map(As),
            data: private_data.into(),
        }
    }
}

impl Raw {
    /// Converts to the type of the core.
    pub(crate) fn event(&self) -> RawEvent<&[u8]> {
        RawEvent {
            listener: self.listener.map(|As(listener)| listener),
            status: self.status,
            param: self.param.map(|param| cmid_proto::ReceivedParam(param.into())).unwrap_or_default(),
            datagram: self.datagram.as_ref().map(Path::datagram),
            group: self.group.map(|As(group)| group),
            private_data: &self.data.0,
            ..RawEvent::new(self.id.0, self.kind.0)
        }
    }
}
