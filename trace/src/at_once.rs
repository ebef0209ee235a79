//! Replays a request, its calls and their outcomes a second time, as one step on a copy of the core
//! ([`Core::perform`], [`Core::perform_sync`], [`Core::perform_create`]). A driver that is not observed uses these
//! short paths.

use cmid_proto::{Call, ChannelKey, Core, Errno, IdKey, Outcome, PortSpace, Request, Time};

use crate::line::Line;
use crate::values::{As, Bytes};

/// A core that has performed the request of a line, with the recorded outcomes.
#[derive(Debug)]
pub(crate) struct AtOnce {
    core: Core,
    /// The number of lines that this core is ahead of the replay.
    lines: usize,
}

/// The calls and outcomes that are recorded after a request.
struct Calls<'a> {
    lines: &'a [Line],
    /// The number of lines read.
    done: usize,
    /// The first difference from the recorded calls.
    wrong: Option<String>,
    /// Whether the recording ends, or an outcome is missing.
    cut: bool,
    failed: Option<Errno>,
}

impl<'a> Calls<'a> {
    fn new(lines: &'a [Line]) -> Self {
        Calls { lines, done: 0, wrong: None, cut: false, failed: None }
    }

    /// Returns the recorded outcome of the next call.
    fn make(&mut self, call: &Call, private_data: &[u8]) -> Outcome {
        let [Line::Call { call: recorded, data }, Line::Outcome { errno, .. }, ..] = &self.lines[self.done..] else {
            self.cut = true;
            return Ok(());
        };
        self.done += 2;
        let (name, sent) = (format!("{call:?}"), Bytes::from(private_data));
        if (&name, &sent) != (recorded, data) {
            let what =
                format!("performed at once, the call is {name} with {sent:?}; recorded was {recorded} with {data:?}");
            self.wrong.get_or_insert(what);
        }
        self.failed = errno.map(|As(errno)| errno);
        self.failed.map_or(Ok(()), Err)
    }

    /// Compares the result with the last outcome.
    fn end(self, core: Core, failed: Option<Errno>) -> Result<Option<AtOnce>, String> {
        if self.cut {
            return Ok(None);
        }
        match self.wrong {
            Some(wrong) => Err(wrong),
            None if failed != self.failed => {
                Err(format!("performed at once, the failure is {failed:?}; recorded was {:?}", self.failed))
            }
            None => Ok(Some(AtOnce { core, lines: self.done })),
        }
    }
}

impl AtOnce {
    /// Performs a request with the calls and outcomes of `lines`, the lines after it. `None` if the request has no
    /// short path, or if the recording ends before the last outcome.
    ///
    /// # Errors
    /// A call or the result is not that of the recording.
    pub(crate) fn request(
        core: &Core,
        now: Time,
        id: IdKey,
        request: &Request<'_>,
        deadline: Time,
        lines: &[Line],
    ) -> Result<Option<AtOnce>, String> {
        let (mut core, mut calls) = (core.clone(), Calls::new(lines));
        let mut make = |call: &Call, private_data: &[u8]| calls.make(call, private_data);
        let performed = core
            .perform(now, id, request, deadline, &mut make)
            .or_else(|| core.perform_sync(now, id, request, deadline, &mut make));
        match performed {
            Some(result) => calls.end(core, result.err().map(|failure| failure.errno)),
            None => Ok(None),
        }
    }

    /// As [`request`](AtOnce::request), for the creation of an id.
    ///
    /// # Errors
    /// A call or the result is not that of the recording.
    pub(crate) fn create(
        core: &Core,
        channel: ChannelKey,
        port_space: PortSpace,
        lines: &[Line],
    ) -> Result<Option<AtOnce>, String> {
        let (mut core, mut calls) = (core.clone(), Calls::new(lines));
        match core.perform_create(channel, port_space, |call| calls.make(call, &[])) {
            Some(result) => calls.end(core, result.err().map(|failure| failure.errno)),
            None => Ok(None),
        }
    }

    /// Counts a line that the other core has replayed. Returns whether this was the last one.
    ///
    /// # Errors
    /// The line was the last one, and the cores differ.
    pub(crate) fn follow(&mut self, core: &Core) -> Result<bool, String> {
        if self.lines > 0 {
            self.lines -= 1;
            return Ok(false);
        }
        if self.core == *core { Ok(true) } else { Err("performed at once, the request leads to another core".into()) }
    }
}
