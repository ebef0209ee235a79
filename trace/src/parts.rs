//! The id, request, event and failure of a step.

use cmid_proto::{ChannelKey, Errno, Error, EventKind, Fault, IdKey, Refused, RequestKind, Status, Step};

/// The parts of a step; `None` for a part that the step does not have.
#[cfg_attr(not(feature = "tracing"), allow(dead_code, reason = "for `Tracing`"))]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Parts {
    /// The id. For an ack, the id that the ack is owed for.
    pub(crate) id: Option<IdKey>,
    pub(crate) channel: Option<ChannelKey>,
    /// The request on an id that the step makes.
    pub(crate) request: Option<RequestKind>,
    /// The event that is read or delivered.
    pub(crate) event: Option<EventKind>,
    pub(crate) problem: Option<Problem>,
}

/// The failure that a step reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) enum Problem {
    Refused(Refused),
    /// Of a device call, or of a deadline.
    Errno(Errno),
    /// Of a read.
    Unreadable(Errno),
    Fault(Fault),
    /// Of an event.
    Status(Status),
}

impl Parts {
    pub(crate) fn of(step: &Step<'_>) -> Self {
        let none = Parts::default();
        match *step {
            Step::OpenChannel { result, .. } => Parts { channel: result.ok(), problem: refusal(result), ..none },
            Step::CreateId { channel, result, .. } => {
                Parts { id: result.ok(), channel, problem: refusal(result), ..none }
            }
            Step::Submit { id, ref request, result, .. } => {
                Parts { id: Some(id), request: Some(request.request_kind()), problem: refusal(result), ..none }
            }
            Step::Release { id, result, .. } => {
                let problem = result.err().map(|error| match error {
                    Error::Refused(refused) => Problem::Refused(refused),
                    Error::Fault(fault) => Problem::Fault(fault),
                    Error::Failed(failure) => Problem::Errno(failure.errno),
                });
                Parts { id: Some(id), request: Some(RequestKind::Release), problem, ..none }
            }
            Step::Ack { owner, result, .. } => Parts { id: Some(owner), problem: refusal(result), ..none },
            Step::CloseChannel { channel, result }
            | Step::PauseChannel { channel, result }
            | Step::ResumeChannel { channel, result } => {
                Parts { channel: Some(channel), problem: refusal(result), ..none }
            }
            Step::Iwarp { id } => Parts { id: Some(id), ..none },
            Step::Call { call, .. } => Parts { id: call.id(), ..none },
            Step::Outcome { call, outcome, fault } => {
                let problem = fault.map(Problem::Fault).or(outcome.err().map(Problem::Errno));
                Parts { id: call.id(), problem, ..none }
            }
            Step::Event { channel, ref event, result, .. } => Parts {
                id: Some(event.id),
                channel: Some(channel),
                event: Some(EventKind::Cm(event.kind)),
                problem: result.err().map(Problem::Fault),
                ..none
            },
            Step::Deliver { channel, event } => {
                let problem = event.result().err().map(|errno| match event.status {
                    // The deadline of a request.
                    0 => Problem::Errno(errno),
                    _ => Problem::Status(event.meaning()),
                });
                Parts { id: Some(event.id), channel: Some(channel), event: Some(event.kind), problem, ..none }
            }
            Step::Adopt { id, channel, outcome, .. } => {
                Parts { id: Some(id), channel: Some(channel), problem: outcome.err().map(Problem::Errno), ..none }
            }
            Step::Unreadable { channel, errno } => {
                Parts { channel: Some(channel), problem: Some(Problem::Unreadable(errno)), ..none }
            }
            Step::Readable { channel } | Step::BeginRead { channel, .. } | Step::WaitForRoom { channel } => {
                Parts { channel: Some(channel), ..none }
            }
            Step::Child { id } => Parts { id: Some(id), ..none },
            Step::Begin { .. } | Step::Timeout | Step::Yield | Step::End => none,
        }
    }
}

fn refusal<T>(result: Result<T, Refused>) -> Option<Problem> {
    result.err().map(Problem::Refused)
}
