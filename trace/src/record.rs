//! The recorder: device middleware.

use std::fmt;
use std::io::{self, Write};
use std::ops::{Deref, DerefMut};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cmid_proto::{
    ChannelKey, Core, Device, DeviceLayer, Error, Fault, IdKey, Outcome, Pollable, Refused, Step, StepRecord, Time,
};

use crate::line::{FORMAT, Line};
use crate::sink::{Stream, TraceSink};
use crate::snapshot::{Snapshot, Sum, admission, event, state};
use crate::values::As;

/// The number of the next release in this process.
static TICKETS: AtomicU64 = AtomicU64::new(1);

/// Device middleware that records the input of the core of its driver. Forwards all calls to the inner device.
///
/// If writing fails, the trace ends and the program continues. [`Trace::error`] returns the error, and
/// [`TraceSink::on_error`] is called with it.
pub struct Trace<D> {
    device: D,
    sink: Arc<dyn TraceSink>,
    stream: Option<usize>,
    writer: Option<Box<dyn Write + Send>>,
    error: Option<io::Error>,
    now: Time,
    /// Whether a line was written since the last `Yield`.
    stirred: bool,
    /// The ticket of the id that is being released or adopted.
    ticket: Option<String>,
}

/// A handle of a released id, with its ticket in the traces.
#[derive(Debug)]
pub struct Ticketed<H> {
    ticket: String,
    handle: H,
}

impl<D> Trace<D> {
    /// Records a driver on this device, in the next stream of the sink.
    ///
    /// # Errors
    /// The error of creating the stream.
    pub fn new(device: D, sink: Arc<dyn TraceSink>) -> io::Result<Self> {
        let stream = sink.next()?;
        Ok(Trace::at(Some(stream), device, sink))
    }

    fn at(stream: Option<Stream>, device: D, sink: Arc<dyn TraceSink>) -> Self {
        let (stream, writer) = stream.map(|Stream { number, writer }| (number, writer)).unzip();
        Trace { device, sink, stream, writer, error: None, now: Time::ZERO, stirred: false, ticket: None }
    }

    /// Returns the number of its stream, from 0. `None` for a [sibling](Pollable::sibling) without a stream.
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

impl<D> fmt::Debug for Trace<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace").field("sink", &self.sink).field("error", &self.error).finish_non_exhaustive()
    }
}

impl<D> Deref for Trace<D> {
    type Target = D;
    fn deref(&self) -> &D {
        &self.device
    }
}

impl<D> DerefMut for Trace<D> {
    fn deref_mut(&mut self) -> &mut D {
        &mut self.device
    }
}

impl<D: Device> DeviceLayer for Trace<D> {
    type Inner = D;
    type Handle = Ticketed<D::Handle>;

    const LAYER_OBSERVES: bool = true;

    fn inner(&self) -> &D {
        &self.device
    }

    fn inner_mut(&mut self) -> &mut D {
        &mut self.device
    }

    fn on_release(&mut self, id: IdKey, channel: ChannelKey) -> Result<Self::Handle, cmid_proto::Errno> {
        let handle = self.device.release(id, channel)?;
        let ticket = format!("release {}", TICKETS.fetch_add(1, Ordering::Relaxed));
        self.ticket = Some(ticket.clone());
        Ok(Ticketed { ticket, handle })
    }

    fn on_adopt(&mut self, id: IdKey, channel: ChannelKey, handle: Self::Handle) -> Outcome {
        let Ticketed { ticket, handle } = handle;
        self.ticket = Some(ticket);
        self.device.adopt(id, channel, handle)
    }

    fn on_observe(&mut self, record: &StepRecord<'_>) {
        if self.writer.is_some() {
            let is_rest = matches!(record.step, Step::Yield);
            if !is_rest || self.stirred {
                let is_begin = matches!(record.step, Step::Begin { .. });
                if record.now > self.now && !is_begin {
                    self.write(&Line::Time(record.now.0));
                    self.now = record.now;
                }
                let ticket = self.ticket.take();
                self.write(&line(record.core, &record.step, ticket));
            }
            self.stirred = !is_rest;
        }
        self.device.observe(record);
    }
}

impl<D: Pollable> Pollable for Trace<D> {
    fn fd(&self, on: ChannelKey) -> Option<BorrowedFd<'_>> {
        self.device.fd(on)
    }

    /// Creates another device, which is recorded in the next stream of the sink.
    fn sibling(&self) -> Self {
        let (device, sink) = (self.device.sibling(), Arc::clone(&self.sink));
        match self.sink.next() {
            Ok(stream) => Trace::at(Some(stream), device, sink),
            Err(error) => {
                let mut sibling = Trace::at(None, device, sink);
                sibling.fail(error);
                sibling
            }
        }
    }
}

/// Converts a step to a line.
fn line(core: &Core, step: &Step<'_>, ticket: Option<String>) -> Line {
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
        Step::Release { id, ref result } => {
            let (refused, errno) = match *result {
                Ok(()) => (None, None),
                Err(Error::Fault(Fault::Leak { errno, .. })) => (None, Some(As(errno))),
                Err(Error::Refused(refused)) => (Some(refused.to_string()), None),
                // `Failed` cannot occur, because a release makes no call of the core.
                Err(error @ (Error::Failed(_) | Error::Fault(_))) => (Some(error.to_string()), None),
            };
            Line::Release { id: As(id), ticket, refused, errno }
        }
        Step::Adopt { id, channel, outcome } => Line::Adopt {
            // The preceding call of `adopt` has set the ticket.
            ticket: ticket.unwrap_or_default(),
            id: As(id),
            channel: As(channel),
            errno: outcome.err().map(As),
        },
        Step::Yield => Line::Yield(Sum::of(core)),
        Step::End => Line::End(Snapshot::of(core)),
    }
}

fn refusal<T>(result: Result<T, Refused>) -> Option<String> {
    result.err().map(|refused| refused.to_string())
}

/// Converts a deadline; `None` for [`Time::NEVER`].
fn ends(deadline: Time) -> Option<u64> {
    (deadline != Time::NEVER).then_some(deadline.0)
}
