//! The lines of a trace, and the line of a step. `docs/trace.md` documents them.

use std::fmt::Display;

use cmid_proto::{
    Acks, ChannelKey, Core, Errno, Error, Fault, GroupKey, IdKey, PortSpace, RawEvent, Request, Step, Time,
};
use serde::{Deserialize, Serialize};

use crate::bytes::Bytes;
use crate::words::{admission, call, event, hex, snapshot, state, summary};

/// The name in the first line.
pub(crate) const FORMAT: &str = "cmid-trace";
/// The version of the format in the first line.
pub(crate) const VERSION: u32 = 5;

/// The first line.
#[derive(Serialize, Deserialize)]
pub(crate) struct Header<L> {
    pub(crate) begin: Begin<L>,
}

/// The format, and the limits of the core. Their form depends on the version.
#[derive(Serialize, Deserialize)]
pub(crate) struct Begin<L> {
    pub(crate) format: String,
    pub(crate) version: u32,
    pub(crate) limits: L,
}

/// Any other line: an input of the core, and its answer in words.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Line<'a> {
    #[serde(rename = "in")]
    pub(crate) input: Input<'a>,
    #[serde(rename = "out", default, skip_serializing_if = "Option::is_none")]
    pub(crate) answer: Option<String>,
}

/// An input, with all that a core needs to repeat it. Private data is not part of requests and events.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Input<'a> {
    /// The current time, until the next such line.
    Time(Time),
    OpenChannel(Acks),
    CloseChannel(ChannelKey),
    PauseChannel(ChannelKey),
    ResumeChannel(ChannelKey),
    CreateId {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        on: Option<ChannelKey>,
        port_space: PortSpace,
    },
    Submit {
        id: IdKey,
        request: Request<'a>,
        #[serde(default, skip_serializing_if = "Bytes::is_empty")]
        data: Bytes,
        /// `None`: no deadline.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline: Option<Time>,
    },
    Ack {
        owner: IdKey,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        group: Option<GroupKey>,
    },
    /// The next call of the preceding request, or one that follows from earlier steps.
    Call,
    Outcome {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        errno: Option<Errno>,
    },
    Readable(ChannelKey),
    Iwarp(IdKey),
    /// Whether the channel is to be read. The answer is the key for a child.
    Read(ChannelKey),
    Event {
        on: ChannelKey,
        raw: RawEvent<&'static [u8]>,
        #[serde(default, skip_serializing_if = "Bytes::is_empty")]
        data: Bytes,
        /// The channel whose next event was asked for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to: Option<ChannelKey>,
        /// Whether the channel is read only once: a remaining event makes it readable again.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        once: bool,
    },
    Unreadable {
        on: ChannelKey,
        errno: Errno,
    },
    /// The destruction of the next id of an undelivered request, after its listener.
    Child,
    WaitForRoom(ChannelKey),
    Timeout,
    Deliver(ChannelKey),
    Release {
        id: IdKey,
        /// Identifies the id in an adoption, in this trace or another one.
        number: u64,
        /// Of the device; the id is lost.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        errno: Option<Errno>,
    },
    Adopt {
        number: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        errno: Option<Errno>,
    },
    Yield,
    End,
}

impl<'a> Line<'a> {
    /// Returns the line of a step, after which `core` is as it is. `None` for the first step.
    pub(crate) fn of(core: &Core, step: &Step<'a>) -> Option<Self> {
        let (input, answer) = match *step {
            Step::Begin { .. } => return None,
            Step::OpenChannel { acks, ref result } => (Input::OpenChannel(acks), Some(words(result))),
            Step::CloseChannel { channel, ref result } => (Input::CloseChannel(channel), error(result)),
            Step::PauseChannel { channel, ref result } => (Input::PauseChannel(channel), error(result)),
            Step::ResumeChannel { channel, ref result } => (Input::ResumeChannel(channel), error(result)),
            Step::CreateId { channel: on, port_space, ref result } => {
                (Input::CreateId { on, port_space }, Some(words(result)))
            }
            Step::Submit { id, ref request, deadline, ref result } => {
                let data = request.private_data().into();
                let deadline = (deadline != Time::NEVER).then_some(deadline);
                (Input::Submit { id, request: with_data(*request, &[]), data, deadline }, error(result))
            }
            Step::Ack { owner, group, ref result } => (Input::Ack { owner, group }, error(result)),
            Step::Call { call: it, private_data } => (Input::Call, Some(call(it, private_data, hex))),
            Step::Outcome { call, outcome, fault } => {
                let state = call.id().and_then(|id| state(core, id));
                let parts = [state, fault.map(|fault| format!("fault: {fault}"))];
                let parts: Vec<_> = parts.into_iter().flatten().collect();
                (Input::Outcome { errno: outcome.err() }, (!parts.is_empty()).then(|| parts.join(", ")))
            }
            Step::Readable { channel } => (Input::Readable(channel), None),
            Step::Iwarp { id } => (Input::Iwarp(id), None),
            Step::BeginRead { channel, child } => (Input::Read(channel), child.map(|child| child.to_string())),
            Step::Event { channel: on, event: raw, to, ref result, reads_on } => {
                let data = raw.private_data.into();
                let answer = [Some(admission(result)), state(core, raw.id)];
                let raw = raw.map_private_data(|_| &[][..]);
                let answer = answer.into_iter().flatten().collect::<Vec<_>>().join(", ");
                (Input::Event { on, raw, data, to, once: !reads_on }, Some(answer))
            }
            Step::Unreadable { channel: on, errno } => (Input::Unreadable { on, errno }, None),
            Step::Child { id } => (Input::Child, Some(id.to_string())),
            Step::WaitForRoom { channel } => (Input::WaitForRoom(channel), None),
            Step::Timeout => (Input::Timeout, None),
            Step::Deliver { channel, event: taken } => (Input::Deliver(channel), Some(event(taken, hex))),
            Step::Release { id, number, ref result } => {
                let lost = result.err().and_then(|error| match error {
                    Error::Fault(Fault::Leak { errno, .. }) => Some(errno),
                    Error::Refused(_) | Error::Failed(_) | Error::Fault(_) => None,
                });
                (Input::Release { id, number, errno: lost }, error(result))
            }
            Step::Adopt { id, number, channel, outcome } => {
                (Input::Adopt { number, errno: outcome.err() }, Some(format!("{id} on {channel}")))
            }
            Step::Yield => (Input::Yield, Some(summary(core))),
            Step::End => (Input::End, Some(snapshot(core))),
        };
        Some(Line { input, answer })
    }

    /// The line of a new time.
    pub(crate) fn time(now: Time) -> Self {
        Line { input: Input::Time(now), answer: None }
    }
}

/// Returns a request with other private data, if it has any.
pub(crate) fn with_data<'a>(mut request: Request<'a>, data: &'a [u8]) -> Request<'a> {
    if let Request::Connect { private_data, .. }
    | Request::Accept { private_data, .. }
    | Request::Reject { private_data, .. } = &mut request
    {
        *private_data = data;
    }
    request
}

/// The error in words.
fn error<E: Copy + Into<Error>>(result: &Result<(), E>) -> Option<String> {
    result.err().map(|error| error.into().to_string())
}

/// The key or the error in words.
fn words<K: Copy + Display, E: Copy + Into<Error>>(result: &Result<K, E>) -> String {
    result.map_or_else(|error| error.into().to_string(), |key| key.to_string())
}
