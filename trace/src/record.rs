//! The recorder: an observer.

use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;

use cmid_proto::{Core, Error, Fault, Observer, Refused, Step, StepRecord, Time};

use crate::line::{FORMAT, Line};
use crate::sink::{Stream, TraceSink};
use crate::snapshot::{Snapshot, Sum, admission, event, state};
use crate::values::As;

/// Records the input of the core of a drive.
///
/// If writing fails, the trace ends and the program continues. [`Trace::error`] returns the error, and
/// [`TraceSink::on_error`] is called with it.
pub struct Trace {
    sink: Arc<dyn TraceSink>,
    stream: Option<usize>,
    writer: Option<Box<dyn Write + Send>>,
    error: Option<io::Error>,
    now: Time,
    /// Whether a line was written since the last `Yield`.
    stirred: bool,
}

impl Trace {
    /// Records a drive in the next stream of the sink.
    ///
    /// # Errors
    /// The error of creating the stream.
    pub fn new(sink: Arc<dyn TraceSink>) -> io::Result<Self> {
        let stream = sink.next()?;
        Ok(Trace::at(Some(stream), sink))
    }

    fn at(stream: Option<Stream>, sink: Arc<dyn TraceSink>) -> Self {
        let (stream, writer) = stream.map(|Stream { number, writer }| (number, writer)).unzip();
        Trace { sink, stream, writer, error: None, now: Time::ZERO, stirred: false }
    }

    /// Returns the number of its stream, from 0. `None` for a [sibling](Observer::sibling) without a stream.
    pub fn stream(&self) -> Option<usize> {
        self.stream
    }

    /// Returns the first error, if the trace is not complete.
    pub fn error(&self) -> Option<&io::Error> {
        self.error.as_ref()
    }

    fn write(&mut self, line: &Line) {
        let Some(writer) = &mut self.writer else { return };
        let mut text = match serde_json::to_vec(line) {
            Ok(text) => text,
            Err(error) => return self.fail(error.into()),
        };
        text.push(b'\n');
        // One write per line, so that lines of other threads cannot interleave.
        if let Err(error) = writer.write_all(&text) {
            self.fail(error);
        }
    }

    fn fail(&mut self, error: io::Error) {
        self.writer = None;
        self.sink.on_error(self.stream, &error);
        self.error = Some(error);
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace").field("sink", &self.sink).field("error", &self.error).finish_non_exhaustive()
    }
}

impl Observer for Trace {
    fn step(&mut self, record: &StepRecord<'_>) {
        if self.writer.is_none() {
            return;
        }
        let is_rest = matches!(record.step, Step::Yield);
        if !is_rest || self.stirred {
            let is_begin = matches!(record.step, Step::Begin { .. });
            if record.now > self.now && !is_begin {
                self.write(&Line::Time(record.now.0));
                self.now = record.now;
            }
            self.write(&line(record.core, &record.step));
        }
        self.stirred = !is_rest;
    }

    /// Records another drive, in the next stream of the sink.
    fn sibling(&self) -> Self {
        let sink = Arc::clone(&self.sink);
        match self.sink.next() {
            Ok(stream) => Trace::at(Some(stream), sink),
            Err(error) => {
                let mut sibling = Trace::at(None, sink);
                sibling.fail(error);
                sibling
            }
        }
    }
}

/// Converts a step to a line.
fn line(core: &Core, step: &Step<'_>) -> Line {
    match *step {
        Step::Begin { limits } => Line::Begin { format: FORMAT.0.into(), version: FORMAT.1, limits: limits.into() },
        Step::OpenChannel { acks, result } => {
            Line::OpenChannel { acks: As(acks), is: result.ok().map(As), refused: refusal(result) }
        }
        Step::CloseChannel { channel, result } => Line::CloseChannel { channel: As(channel), refused: refusal(result) },
        Step::CreateId { channel, port_space, result } => Line::CreateId {
            on: channel.map(As),
            port_space: As(port_space),
            is: result.ok().map(As),
            refused: refusal(result),
        },
        Step::Submit { id, ref request, deadline, result } => {
            Line::Submit { id: As(id), request: request.into(), deadline: ends(deadline), refused: refusal(result) }
        }
        Step::Ack { owner, group, result } => {
            Line::Ack { owner: As(owner), group: group.map(As), refused: refusal(result) }
        }
        Step::Call { call, private_data } => Line::Call { call: format!("{call:?}"), data: private_data.into() },
        Step::Outcome { call, outcome, fault } => Line::Outcome {
            errno: outcome.err().map(As),
            fault: fault.map(|fault| fault.to_string()),
            state: call.id().and_then(|id| state(core, id)),
        },
        Step::Readable { channel } => Line::Readable(As(channel)),
        Step::WantsEvent { channel, child } => Line::Look { on: As(channel), child: child.map(As) },
        Step::Event { channel, event: ref raw, to, ref result, reads_on } => {
            let (is, state, once) = (admission(result), state(core, raw.id), !reads_on);
            Line::Event { on: As(channel), raw: raw.into(), to: to.map(As), is, state, once }
        }
        Step::Child { id } => Line::Child(As(id)),
        Step::Iwarp { id } => Line::Iwarp(As(id)),
        Step::PauseChannel { channel, result } => Line::PauseChannel { channel: As(channel), refused: refusal(result) },
        Step::ResumeChannel { channel, result } => {
            Line::ResumeChannel { channel: As(channel), refused: refusal(result) }
        }
        Step::Unreadable { channel, errno } => Line::Unreadable { on: As(channel), errno: As(errno) },
        Step::WaitForRoom { channel } => Line::WaitForRoom(As(channel)),
        Step::Timeout => Line::Timeout,
        Step::Deliver { channel, event: taken } => Line::Deliver { on: As(channel), event: event(taken) },
        Step::Release { id, number, ref result } => {
            let (refused, errno) = match *result {
                Ok(()) => (None, None),
                Err(Error::Fault(Fault::Leak { errno, .. })) => (None, Some(As(errno))),
                Err(Error::Refused(refused)) => (Some(refused.to_string()), None),
                // `Failed` cannot occur, because a release makes no call of the core.
                Err(error @ (Error::Failed(_) | Error::Fault(_))) => (Some(error.to_string()), None),
            };
            let ticket = result.is_ok().then(|| ticket(number));
            Line::Release { id: As(id), ticket, refused, errno }
        }
        Step::Adopt { id, number, channel, outcome } => {
            Line::Adopt { ticket: ticket(number), id: As(id), channel: As(channel), errno: outcome.err().map(As) }
        }
        Step::Yield => Line::Yield(Sum::of(core)),
        Step::End => Line::End(Snapshot::of(core)),
    }
}

/// The word that a release and its adoption have in common.
fn ticket(number: u64) -> String {
    format!("release {number}")
}

fn refusal<T>(result: Result<T, Refused>) -> Option<String> {
    result.err().map(|refused| refused.to_string())
}

/// Converts a deadline; `None` for [`Time::NEVER`].
fn ends(deadline: Time) -> Option<u64> {
    (deadline != Time::NEVER).then_some(deadline.0)
}
