//! Two drivers on a link, and a record of all events and results.

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use cmid_harness::{Acked, Check, Env, Failure, Fixture, Side, TestDevice};
use cmid_proto::{Acks, Drive, Errno, Error, Event, IdKey, Observer, Poller, PortSpace, Time};

use crate::{Link, Usage};

/// The deadline that scenarios give to an operation.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);
/// How long to watch the result of an operation. Longer than `PATIENCE`, because the machine may be busy.
const AFTERMATH: Duration = Duration::from_millis(3500);
/// The upper limit of a watch, also when expected lines are missing.
const LATEST: Duration = Duration::from_secs(12);
/// Grace period for unexpected events, after all expected ones.
const QUIET: Duration = Duration::from_millis(500);
/// Time limit of a connection that only has to be made, on a busy machine.
const AT_LAST: Duration = Duration::from_secs(30);
/// Time limit for what happens immediately.
pub(crate) const AT_ONCE: Duration = Duration::from_millis(700);
/// Time limit of an expected event for which the kernel has no timer to wait for. The emulated machine is slow.
pub(crate) const SOON: Duration = Duration::from_secs(10);
/// Grace period for unexpected events at the end of a scenario.
const REST: Duration = Duration::from_millis(700);
/// Time limit to destroy all ids of a driver. The kernel never waits for a peer in it.
const TO_DESTROY: Duration = Duration::from_secs(5);
/// Interval between two polls. Many fixtures share a processor.
pub(crate) const MOMENT: Duration = Duration::from_millis(25);

/// A new connection has been made.
pub(crate) const STANDS: &str = "a new connection: stands";

/// A fixture, its link, and the observed lines.
pub struct FaultFixture<'env, L: Env> {
    /// The two drivers.
    pub b: Fixture<'env, L>,
    /// The link.
    pub link: Link,
    before: Usage,
    observed: Vec<String>,
    /// The allowed texts of each expected line. A watch ends soon after the last one.
    wanted: Vec<Vec<&'static str>>,
    /// When the operation began that the next event reports.
    begun: Option<Instant>,
}

impl<L: Env> std::fmt::Debug for FaultFixture<'_, L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fixture").field("link", &self.link).field("observed", &self.observed).finish_non_exhaustive()
    }
}

impl<'env, L: Env> FaultFixture<'env, L> {
    /// Two fresh drivers.
    ///
    /// # Errors
    /// A driver cannot be made.
    pub fn new(env: &'env L, link: &Link, wanted: Vec<Vec<&'static str>>) -> Check<Self> {
        // Opens a context for each device first: librdmacm opens each once and keeps it, so it must not count as a
        // leak.
        let mut warm_up = Fixture::new(env, Acks::OnDelivery)?;
        for side in Link::ENDS {
            let (ip, channel) = (link.ip(side), warm_up.endpoint(side).channel);
            let drive = warm_up.endpoint(side).drive();
            let id = drive.create_id(Some(channel), PortSpace::Tcp)?;
            drive.bind(id, (ip, 0).into())?;
        }
        drop(warm_up);
        let before = Usage::now(*link)?;
        let b = Fixture::new(env, Acks::OnDelivery)?;
        Ok(FaultFixture { b, link: *link, before, observed: Vec::new(), wanted, begun: None })
    }

    /// Starts the clock for the next event.
    pub fn from_now(&mut self) {
        self.begun = Some(Instant::now());
    }

    /// Notes a line.
    pub fn note(&mut self, line: impl Into<String>) {
        self.observed.push(line.into());
    }

    /// Notes the result of a request. Returns its value if it succeeded.
    pub fn tries<T>(&mut self, what: &str, result: Result<T, Error>) -> Option<T> {
        match result {
            Ok(value) => {
                self.note(format!("{what}: ok"));
                Some(value)
            }
            Err(error) => {
                self.note(format!("{what}: {}", in_words(&error)));
                None
            }
        }
    }

    /// Returns the next event of a side, or `None` if none arrives in this time.
    pub fn next(&mut self, side: Side, at_most: Duration) -> Check<Option<Event>> {
        let (end, channel) = (Instant::now() + at_most, self.b.endpoint(side).channel);
        loop {
            if let Some(event) = self.b.endpoint(side).drive().next_event(channel) {
                return Ok(Some(event));
            }
            if Instant::now() >= end {
                return Ok(None);
            }
            self.b.pump(MOMENT)?;
        }
    }

    /// Notes the next event of a side, which must be of this id and arrive after this many seconds.
    ///
    /// # Errors
    /// The event is too early, too late or of another id.
    pub fn sees(&mut self, side: Side, id: IdKey, seconds: RangeInclusive<u64>) -> Check<Acked> {
        self.sees_of(side, Some(id), seconds)
    }

    fn sees_of(&mut self, side: Side, id: Option<IdKey>, seconds: RangeInclusive<u64>) -> Check<Acked> {
        let (begun, name) = (self.begun.take().unwrap_or_else(Instant::now), self.b.endpoint(side).name);
        let at_most = Duration::from_secs(seconds.end() + 1);
        let event = self.next(side, at_most)?;
        let event = event.ok_or_else(|| Failure(format!("{name}: no event in {at_most:?}")))?;
        let took = begun.elapsed().as_secs();
        if id.is_some_and(|id| event.id != id) || !seconds.contains(&took) {
            let seen = in_brief(&event);
            return Err(Failure(format!(
                "{name}: {seen} of {} after {took} s, expected {id:?}, {seconds:?} s",
                event.id
            )));
        }
        let when = if *seconds.start() == 0 {
            String::new()
        } else {
            format!(", after {} to {} s", seconds.start(), seconds.end() + 1)
        };
        self.note(format!("{name}: {}{when}", in_brief(&event)));
        Ok(Acked(event))
    }

    /// Notes the next event of a side, of any id, which must arrive after this many seconds.
    ///
    /// # Errors
    /// The event is too early or too late.
    pub fn sees_any(&mut self, side: Side, seconds: RangeInclusive<u64>) -> Check<IdKey> {
        self.sees_of(side, None, seconds).map(|event| event.id)
    }

    /// Notes all events of both sides, in order for each side. Lasts for `span`. With a list of expected lines, it
    /// ends when all have been observed and a grace period for unexpected events is over.
    pub fn watch(&mut self, span: Duration) -> Check {
        let begun = Instant::now();
        let channels = Link::ENDS.map(|side| self.b.endpoint(side).channel);
        let mut seen = [Vec::new(), Vec::new()];
        // Without a list, collects all events until `span` is over.
        let (mut end, known) = (begun + if self.wanted.is_empty() { span } else { LATEST }, !self.wanted.is_empty());
        let mut complete = false;
        loop {
            for ((side, channel), seen) in Link::ENDS.into_iter().zip(channels).zip(&mut seen) {
                while let Some(event) = self.b.endpoint(side).drive().next_event(channel) {
                    seen.push(in_brief(&event));
                }
            }
            let lines = self.lines(&seen);
            if known && !complete && self.completes(&lines) {
                (complete, end) = (true, Instant::now() + QUIET.min(span));
            }
            if Instant::now() >= end {
                self.observed.extend(lines);
                return Ok(());
            }
            self.b.pump(MOMENT)?;
        }
    }

    fn lines(&mut self, seen: &[Vec<String>; 2]) -> Vec<String> {
        let mut lines = Vec::new();
        for (side, seen) in Link::ENDS.into_iter().zip(seen).filter(|(_, seen)| !seen.is_empty()) {
            lines.push(format!("{}: {}", self.b.endpoint(side).name, seen.join(", ")));
        }
        lines
    }

    /// Whether these lines are the next expected ones, and the expected line after them is no event.
    fn completes(&self, lines: &[String]) -> bool {
        let wanted = |at: usize| self.wanted.get(self.observed.len() + at);
        let as_wanted = lines
            .iter()
            .enumerate()
            .all(|(at, line)| wanted(at).is_some_and(|allowed| allowed.contains(&line.as_str())));
        as_wanted && !wanted(lines.len()).is_some_and(|allowed| allowed.iter().any(|line| is_event(line)))
    }

    /// Notes the events after an operation with a deadline.
    pub fn aftermath(&mut self) -> Check {
        self.watch(AFTERMATH)
    }

    /// The deadline of an operation that starts now.
    pub fn patience(&mut self, side: Side) -> Time {
        self.b.endpoint(side).drive().within(PATIENCE)
    }

    /// Makes a new connection and sends on it. Uses fresh drivers and another port, so that nothing left from before
    /// can be mistaken for it.
    ///
    /// # Errors
    /// The connection fails.
    pub fn anew(&mut self) -> Check {
        let mut b = Fixture::new(self.b.env, Acks::OnDelivery)?;
        b.be_patient(AT_LAST);
        b.listen()?;
        let made = b.connected();
        let (client, server) = match made {
            Ok(ids) => ids,
            Err(failure) => {
                let mut observed = String::new();
                for side in Link::ENDS {
                    let (name, channel) = (b.endpoint(side).name, b.endpoint(side).channel);
                    while let Some(event) = b.endpoint(side).drive().next_event(channel) {
                        observed += &format!("; {name} of it: {}", in_brief(&event));
                    }
                }
                let can = Link::ENDS.map(|end| self.link.can_send(end));
                return Err(Failure(format!("a new connection: {failure}{observed}; the devices can send: {can:?}")));
            }
        };
        b.destroy(Side::Client, client)?;
        b.destroy(Side::Server, server)?;
        b.clean()?;
        self.note(STANDS);
        Ok(())
    }

    /// Destroys all ids, so that nothing of a deleted device stays in use.
    pub(crate) fn destroy_all(&mut self) -> Check {
        for side in Link::ENDS {
            let channel = self.b.endpoint(side).channel;
            destroy_all(self.b.endpoint(side).drive())?;
            // Drops the events that arrived meanwhile.
            while self.b.endpoint(side).drive().next_event(channel).is_some() {}
        }
        Ok(())
    }

    /// Counts what is open again. Called after librdmacm has opened a device, which it keeps.
    pub(crate) fn recount(&mut self) -> Check {
        self.before = Usage::now(self.link)?;
        Ok(())
    }

    /// Notes the undelivered events of both sides.
    pub(crate) fn notes_what_is_there(&mut self) {
        for side in Link::ENDS {
            let (name, channel) = (self.b.endpoint(side).name, self.b.endpoint(side).channel);
            while let Some(event) = self.b.endpoint(side).drive().next_event(channel) {
                self.observed.push(format!("{name}: {}", in_brief(&event)));
            }
        }
    }

    /// Watches a last time for unexpected events. TIMEWAIT_EXIT of a disconnected id is not one.
    fn rest(&mut self) -> Check {
        let end = Instant::now() + REST;
        while Instant::now() < end {
            self.b.pump(MOMENT)?;
        }
        let before = self.observed.len();
        self.notes_what_is_there();
        let last = self.observed.split_off(before);
        let is_news = |line: &String| !line.ends_with(": TIMEWAIT_EXIT");
        self.observed.extend(last.into_iter().filter(is_news).map(|line| format!("{line}, when all was over")));
        Ok(())
    }

    /// Destroys all ids. Checks the time that takes, the core's bookkeeping, and leaks. Returns the observed lines.
    ///
    /// # Errors
    /// The destruction takes too long, or something is left.
    pub fn end(mut self) -> Check<Vec<String>> {
        self.b.frozen = None;
        self.rest()?;
        let begun = Instant::now();
        for side in Link::ENDS {
            self.b.clean()?;
            destroy_all(self.b.endpoint(side).drive())?;
        }
        self.b.clean()?;
        let FaultFixture { b, link, before, observed, .. } = self;
        drop(b);
        let took = begun.elapsed();
        if took > TO_DESTROY {
            return Err(Failure(format!("destroying all took {took:?}")));
        }
        // The kernel removes an id from its count a moment after the destruction.
        let mut last = Failure(String::new());
        for _ in 0..20 {
            match Usage::now(link)?.is_no_more_than(&before) {
                Ok(()) => return Ok(observed),
                Err(failure) => last = failure,
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Err(last)
    }
}

fn destroy_all<D: TestDevice, P: Poller<D>, O: Observer>(drive: &mut Drive<D, P, O>) -> Check {
    for id in drive.core().ids().collect::<Vec<_>>() {
        // Destroying a listener destroys the ids of its unread requests too.
        if drive.core().state(id).is_none() {
            continue;
        }
        if drive.core().id_info(id).is_some_and(|it| it.has_qp) {
            drive.detach_qp(id, |device, id| device.destroy_qp(id))?;
        }
        drive.destroy(id, Time::NEVER)?;
    }
    let left = drive.core().ids().count();
    if left == 0 { Ok(()) } else { Err(Failure(format!("{left} ids could not be destroyed"))) }
}

/// Whether a line is an event. Events are in capitals, requests are not.
fn is_event(line: &str) -> bool {
    line.split_once(": ").is_some_and(|(_, what)| what.starts_with(|first: char| first.is_ascii_uppercase()))
}

/// Formats an event with its status, if it has one.
pub(crate) fn in_brief(event: &Event) -> String {
    match event.status {
        0 => event.kind.to_string(),
        status if status < 0 => format!("{} (-{})", event.kind, Errno(-status)),
        reason => format!("{} (reason {reason})", event.kind),
    }
}

/// Formats an error: whether the core refused the request, and the errno.
pub(crate) fn in_words(error: &Error) -> String {
    match error {
        Error::Refused(_) => format!("refused, {}", error.errno()),
        Error::Failed(_) => format!("{}", error.errno()),
        Error::Fault(fault) => format!("fault: {fault}"),
    }
}
