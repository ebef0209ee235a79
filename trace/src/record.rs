//! The recorder: an observer.

use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;

use cmid_proto::Time;
use cmid_proto::drive::{Observer, Step, StepRecord};
use serde::Serialize;

use crate::line::{Begin, FORMAT, Header, Line, VERSION};
use crate::sink::{Stream, TraceSink};

/// Records the input of the core of a drive.
///
/// If writing fails, the trace ends and the program continues. [`Trace::error`] returns the error, and
/// [`TraceSink::on_error`] is called with it.
///
/// ```
/// use cmid_proto::{Acks, Drive, Limits};
/// use cmid_trace::{Memory, Recording, Trace, replay};
/// use std::sync::Arc;
/// # let fabric = cmid_sim::Fabric::new(cmid_sim::Config::default());
/// # let device = fabric.host(&["10.0.0.1".parse()?]).device();
///
/// let memory = Arc::new(Memory::default()); // or Files::at("server.trace")
/// let trace = Trace::new(Arc::clone(&memory) as _)?;
/// let mut drive = Drive::with(device, (), trace, Limits::default()); // or Epoll::observed, Mio::observed, ...
/// drive.open_channel(Acks::OnDelivery)?;
/// drop(drive); // the end of the recording
///
/// let recording = Recording::read(&memory.texts()[0][..])?;
/// let mut steps = Vec::new();
/// replay(&[recording], |_, step| steps.push(step.to_string()))?;
/// assert!(steps[0].ends_with("open channel: ch0"), "{steps:?}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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

    fn write(&mut self, line: &impl Serialize) {
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
        if let Step::Begin { limits } = record.step {
            self.write(&Header { begin: Begin { format: FORMAT.into(), version: VERSION, limits } });
        } else if !is_rest || self.stirred {
            if record.now > self.now {
                self.write(&Line::time(record.now));
                self.now = record.now;
            }
            if let Some(line) = Line::of(record.core, &record.step) {
                self.write(&line);
            }
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
