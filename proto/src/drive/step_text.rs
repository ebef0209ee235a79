//! Steps as text.

use core::fmt::{Display, Formatter, Result as Formatted};

use super::Step;
use crate::error::Refused;
use crate::machine::Admission;
use crate::time::Time;

/// One line: `connect on id1, deadline 5.000000000 s`, `event id1: ESTABLISHED`, `refused: bind_addr on id0 while
/// bound: not in this state`.
impl Display for Step<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Formatted {
        match *self {
            Step::Begin { limits } => {
                write!(f, "begin with {} ids, {} channels, {} events", limits.ids, limits.channels, limits.events)
            }
            Step::OpenChannel { result, .. } => ended(f, format_args!("open channel"), result),
            Step::CloseChannel { channel, result } => done(f, format_args!("close {channel}"), result),
            Step::CreateId { channel: Some(channel), port_space, result } => {
                ended(f, format_args!("create id, {port_space} on {channel}"), result)
            }
            Step::CreateId { channel: None, port_space, result } => {
                ended(f, format_args!("create id, {port_space} in synchronous mode"), result)
            }
            // The refusal names id and request.
            Step::Submit { result: Err(refused), .. } => write!(f, "refused: {refused}"),
            Step::Submit { id, ref request, deadline, result: Ok(()) } => {
                write!(f, "{} on {id}", request.request_kind())?;
                until(f, deadline)
            }
            Step::Ack { owner, group: Some(group), result } => done(f, format_args!("ack of {owner}, {group}"), result),
            Step::Ack { owner, group: None, result } => done(f, format_args!("ack of {owner}"), result),
            Step::Call { call, .. } => write!(f, "call {call}"),
            Step::Outcome { call, outcome, fault } => {
                match outcome {
                    Ok(()) => write!(f, "done: {call}")?,
                    Err(errno) => write!(f, "failed: {call}: {errno}")?,
                }
                fault.map_or(Ok(()), |fault| write!(f, ", fault: {fault}"))
            }
            Step::Readable { channel } => write!(f, "{channel} is readable"),
            Step::BeginRead { channel, child: Some(_) } => write!(f, "read {channel}"),
            Step::BeginRead { channel, child: None } => write!(f, "{channel} takes no event"),
            Step::Event { ref event, ref result, .. } => {
                write!(f, "event {event}")?;
                match result {
                    Ok(Admission::Known | Admission::Child(_)) => Ok(()),
                    Ok(Admission::Late) => f.write_str(", late"),
                    Ok(Admission::Stray) => f.write_str(", of no id here"),
                    Err(fault) => write!(f, ", fault: {fault}"),
                }
            }
            Step::Child { id } => write!(f, "destroy {id}: its request was not delivered"),
            Step::Iwarp { id } => write!(f, "{id} is on an iWARP device"),
            Step::PauseChannel { channel, result } => done(f, format_args!("pause {channel}"), result),
            Step::ResumeChannel { channel, result } => done(f, format_args!("resume {channel}"), result),
            Step::Unreadable { channel, errno } => write!(f, "reading {channel} failed: {errno}"),
            Step::WaitForRoom { channel } => write!(f, "{channel} waits for room"),
            Step::Timeout => f.write_str("timeout"),
            Step::Deliver { channel, event } => write!(f, "deliver on {channel}: {event}"),
            Step::Release { id, ref result, .. } => match result {
                Ok(()) => write!(f, "release {id}"),
                Err(error) => write!(f, "release {id}: {error}"),
            },
            Step::Adopt { id, channel, outcome: Ok(()), .. } => write!(f, "adopt {id} on {channel}"),
            Step::Adopt { id, channel, outcome: Err(errno), .. } => {
                write!(f, "adopt {id} on {channel}: failed: {errno}")
            }
            Step::Yield => f.write_str("end of turn"),
            Step::End => f.write_str("end"),
        }
    }
}

/// Writes a step that returns nothing.
fn done(f: &mut Formatter<'_>, step: impl Display, result: Result<(), Refused>) -> Formatted {
    match result {
        Ok(()) => write!(f, "{step}"),
        Err(refused) => write!(f, "{step}: refused: {refused}"),
    }
}

/// Writes a step that returns a key.
fn ended(f: &mut Formatter<'_>, step: impl Display, result: Result<impl Display, Refused>) -> Formatted {
    match result {
        Ok(key) => write!(f, "{step}: {key}"),
        Err(refused) => write!(f, "{step}: refused: {refused}"),
    }
}

fn until(f: &mut Formatter<'_>, deadline: Time) -> Formatted {
    if deadline == Time::NEVER { Ok(()) } else { write!(f, ", deadline {deadline}") }
}
