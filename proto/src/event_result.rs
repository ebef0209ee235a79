//! Events in words, and as results.

use core::fmt;

use crate::cm_event::CmEvent;
use crate::errno::Errno;
use crate::event::{Event, EventKind, RawEvent};
use crate::key::{GroupKey, IdKey};
use crate::reject_code::RejectCode;
use crate::words::debug_in_words;

/// The status of an event by its meaning (rdma_get_cm_event(3)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Status {
    /// 0: no error.
    Success,
    /// Negative: an errno.
    Errno(Errno),
    /// Positive, of a REJECTED: the reason in the peer's message.
    Reject(RejectCode),
    /// Positive, of another event, such as the SIDR status of an UNREACHABLE.
    Other(i32),
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Status::Success => f.write_str("success"),
            Status::Errno(errno) => write!(f, "{errno}"),
            Status::Reject(code) => write!(f, "{code}"),
            Status::Other(status) => write!(f, "status {status}"),
        }
    }
}

impl Status {
    const fn of(kind: EventKind, status: i32) -> Status {
        match status {
            0 => Status::Success,
            ..0 => Status::Errno(Errno(status.saturating_neg())),
            1.. if matches!(kind, EventKind::Cm(CmEvent::Rejected)) && status <= u16::MAX as i32 => {
                Status::Reject(RejectCode(status as u16))
            }
            1.. => Status::Other(status),
        }
    }
}

/// An event that reports a failure, as an error.
#[derive(PartialEq, Eq)]
pub struct EventError {
    /// The errno that librdmacm's synchronous mode returns.
    pub errno: Errno,
    /// The event. If it has an [ack token](Event::ack_token), the ack is still owed.
    pub event: Event,
}

impl EventError {
    /// Returns the private data with which the peer has rejected the connection; none if it was not rejected. The transport
    /// pads it with zeros (`rdma_reject`).
    #[must_use]
    pub fn reject_data(&self) -> Option<&[u8]> {
        (self.event.cm() == Some(CmEvent::Rejected)).then_some(&*self.event.private_data)
    }
}

/// The event, the length of the private data of a REJECTED without its padding, and the errno.
impl fmt::Display for EventError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.event)?;
        if let Some(last) = self.reject_data().and_then(|data| data.iter().rposition(|&byte| byte != 0)) {
            write!(f, " with {} bytes of private data", last + 1)?;
        }
        match self.event.meaning() {
            Status::Errno(errno) if errno == self.errno => Ok(()),
            Status::Success | Status::Errno(_) | Status::Reject(_) | Status::Other(_) => write!(f, ": {}", self.errno),
        }
    }
}

debug_in_words!(EventError);

impl core::error::Error for EventError {}

impl Event {
    /// Returns the [status](Event::status) by its meaning.
    #[must_use]
    pub const fn meaning(&self) -> Status {
        Status::of(self.kind, self.status)
    }

    /// Returns the reason of a REJECTED. `None` for other events, and on an iWARP device, where the status of a
    /// REJECTED is an errno.
    #[must_use]
    pub const fn reject_code(&self) -> Option<RejectCode> {
        match self.meaning() {
            Status::Reject(code) => Some(code),
            Status::Success | Status::Errno(_) | Status::Other(_) => None,
        }
    }

    /// Returns the event if its [`result`](Event::result) is a success.
    ///
    /// # Errors
    /// The event, and its errno.
    #[allow(clippy::result_large_err, reason = "the error is the event; nothing is allocated")]
    pub fn into_result(self) -> Result<Event, EventError> {
        match self.result() {
            Ok(()) => Ok(self),
            Err(errno) => Err(EventError { errno, event: self }),
        }
    }
}

/// The id, the type, the listener or group, and the status: `id2: CONNECT_REQUEST on id0`, `id1: REJECTED (reason 28,
/// rejected by the application)`.
impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(f, self.id, self.kind, self.listener, self.group, self.meaning())
    }
}

/// As [`Event`].
impl<B> fmt::Display for RawEvent<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = EventKind::Cm(self.kind);
        write(f, self.id, kind, self.listener, self.group, Status::of(kind, self.status))
    }
}

fn write(
    f: &mut fmt::Formatter<'_>,
    id: IdKey,
    kind: EventKind,
    listener: Option<IdKey>,
    group: Option<GroupKey>,
    meaning: Status,
) -> fmt::Result {
    write!(f, "{id}: {kind}")?;
    if let Some(listener) = listener {
        write!(f, " on {listener}")?;
    }
    if let Some(group) = group {
        write!(f, " of {group}")?;
    }
    match meaning {
        Status::Success => Ok(()),
        Status::Errno(_) | Status::Reject(_) | Status::Other(_) => write!(f, " ({meaning})"),
    }
}
