//! Two drivers on a wire, and a record of all that their application is told.

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use cmid_conformance::{Acked, Check, Driver, Env, Failure, Fixture, Side, TestDevice};
use cmid_proto::{Acks, Device, Drive, Error, Event, IdKey, PortSpace, Time};

use crate::devices::STANDS;
use crate::{Link, Usage};

/// What an application does with the deadlines of the core: it gives an operation so long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);
/// How long to look at what comes of it: longer than that, on a machine with much else to do.
const AFTERMATH: Duration = Duration::from_millis(3500);
/// A watch ends then, whatever is still to be told.
const LATEST: Duration = Duration::from_secs(12);
/// How long to look for what is not to be told, once all is told that is.
const QUIET: Duration = Duration::from_millis(500);
/// How long a connection may take on which nothing depends but that it stands, on a machine with much else to do.
const AT_LAST: Duration = Duration::from_secs(30);
/// For what comes at once.
pub(crate) const AT_ONCE: Duration = Duration::from_millis(700);
/// How long an expected event may take where the kernel does not wait for anything. The emulated machine is slow.
pub(crate) const SOON: Duration = Duration::from_secs(10);
/// How long to look at the end for what is not to be told.
const REST: Duration = Duration::from_millis(700);
/// For all that is on a driver to be destroyed. The kernel never waits for a peer in it.
const TO_DESTROY: Duration = Duration::from_secs(5);
/// Between two looks: many stages share a processor.
pub(crate) const MOMENT: Duration = Duration::from_millis(25);

/// A bench, the wire that it is on, and what was told.
pub struct FaultFixture<'env, L: Env> {
    /// The two drivers.
    pub b: Fixture<'env, L>,
    /// The wire.
    pub link: Link,
    before: Usage,
    observed: Vec<String>,
    /// What is to be told, line by line: what each may be. A watch ends soon after that.
    wanted: Vec<Vec<&'static str>>,
    /// When that began of which the next event tells.
    begun: Option<Instant>,
}

impl<L: Env> std::fmt::Debug for FaultFixture<'_, L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stage").field("wire", &self.link).field("told", &self.observed).finish_non_exhaustive()
    }
}

impl<'env, L: Env> FaultFixture<'env, L> {
    /// Two fresh drivers.
    ///
    /// # Errors
    /// What making them failed with.
    pub fn new(env: &'env L, link: &Link, wanted: Vec<Vec<&'static str>>) -> Check<Self> {
        // What librdmacm opens once and keeps is not counted: a context for each device.
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

    /// The next event tells of what begins now.
    pub fn from_now(&mut self) {
        self.begun = Some(Instant::now());
    }

    /// Notes a line.
    pub fn tell(&mut self, line: impl Into<String>) {
        self.observed.push(line.into());
    }

    /// Notes what a request has answered. What it gave, if it succeeded.
    pub fn tries<T>(&mut self, what: &str, result: Result<T, Error>) -> Option<T> {
        match result {
            Ok(value) => {
                self.tell(format!("{what}: ok"));
                Some(value)
            }
            Err(error) => {
                self.tell(format!("{what}: {}", in_words(&error)));
                None
            }
        }
    }

    /// The next event of a side, if one comes in this time.
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

    /// Notes the next event of a side, of this id, which comes after so many seconds.
    ///
    /// # Errors
    /// It comes sooner or later, or is of another id.
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
        self.tell(format!("{name}: {}{when}", in_brief(&event)));
        Ok(Acked(event))
    }

    /// Notes the next event of a side, of whichever id, which comes after so many seconds.
    ///
    /// # Errors
    /// It comes sooner or later.
    pub fn sees_any(&mut self, side: Side, seconds: RangeInclusive<u64>) -> Check<IdKey> {
        self.sees_of(side, None, seconds).map(|event| event.id)
    }

    /// Notes all that either side is told, in order for each side. It takes this long, unless all that is to be told is told
    /// sooner; then it looks only a little longer for what is not to be told.
    pub fn watch(&mut self, span: Duration) -> Check {
        let begun = Instant::now();
        let channels = Link::ENDS.map(|side| self.b.endpoint(side).channel);
        let mut seen = [Vec::new(), Vec::new()];
        // Without a list all is seen that comes in time.
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

    /// Whether these lines are the next ones that are to be told, and what is to be told after them is no event.
    fn completes(&self, lines: &[String]) -> bool {
        let wanted = |at: usize| self.wanted.get(self.observed.len() + at);
        let as_wanted = lines
            .iter()
            .enumerate()
            .all(|(at, line)| wanted(at).is_some_and(|allowed| allowed.contains(&line.as_str())));
        as_wanted && !wanted(lines.len()).is_some_and(|allowed| allowed.iter().any(|line| is_event(line)))
    }

    /// Notes what comes of a step for which an application has its patience.
    pub fn aftermath(&mut self) -> Check {
        self.watch(AFTERMATH)
    }

    /// When an application's patience ends.
    pub fn patience(&mut self, side: Side) -> Time {
        self.b.endpoint(side).drive().within(PATIENCE)
    }

    /// A new connection stands, and goes: on fresh drivers and at another port, so that nothing that is still under way from
    /// before can be mistaken for it.
    ///
    /// # Errors
    /// It does not.
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
        self.tell(STANDS);
        Ok(())
    }

    /// All ids are destroyed: so that nothing of a device that is gone is in use.
    pub(crate) fn destroy_all(&mut self) -> Check {
        for side in Link::ENDS {
            let channel = self.b.endpoint(side).channel;
            destroy_all(self.b.endpoint(side).drive())?;
            // What it was told meanwhile is of no use to anybody.
            while self.b.endpoint(side).drive().next_event(channel).is_some() {}
        }
        Ok(())
    }

    /// From here on what is open is counted as having been open before: librdmacm has opened a device, which it keeps.
    pub(crate) fn recount(&mut self) -> Check {
        self.before = Usage::now(self.link)?;
        Ok(())
    }

    /// Notes what either side has been told and nobody has looked at.
    pub(crate) fn notes_what_is_there(&mut self) {
        for side in Link::ENDS {
            let (name, channel) = (self.b.endpoint(side).name, self.b.endpoint(side).channel);
            while let Some(event) = self.b.endpoint(side).drive().next_event(channel) {
                self.observed.push(format!("{name}: {}", in_brief(&event)));
            }
        }
    }

    /// Looks a last time for what is not to be told. That the time of an id that has been disconnected ends is no news.
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

    /// All ids are destroyed, at once; the books are in order; nothing is left. What was told.
    ///
    /// # Errors
    /// What has taken too long or is left.
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
        // The kernel counts an id down a moment after it has gone.
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

fn destroy_all<D: Device + TestDevice>(drive: &mut Drive<D>) -> Check {
    for id in drive.core().id_keys().collect::<Vec<_>>() {
        // With a listener go the ids of requests that nobody has read.
        if drive.core().state(id).is_none() {
            continue;
        }
        if drive.core().has_qp(id) {
            drive.detach_qp(id, |device, id| device.unmake_qp(id))?;
        }
        drive.destroy(id, Time::NEVER)?;
    }
    let left = drive.core().ids();
    if left == 0 { Ok(()) } else { Err(Failure(format!("{left} ids could not be destroyed"))) }
}

/// Events are in capitals, requests are not.
fn is_event(line: &str) -> bool {
    line.split_once(": ").is_some_and(|(_, what)| what.starts_with(|first: char| first.is_ascii_uppercase()))
}

/// An event with its status, if it has one.
pub(crate) fn in_brief(event: &Event) -> String {
    match event.status {
        0 => event.kind.to_string(),
        status if status < 0 => format!("{} (-{})", event.kind, cmid_proto::Errno(-status)),
        reason => format!("{} (reason {reason})", event.kind),
    }
}

/// An error: who was wrong, and the errno.
pub(crate) fn in_words(error: &Error) -> String {
    match error {
        Error::Refused(_) => format!("refused, {}", error.errno()),
        Error::Failed(_) => format!("{}", error.errno()),
        Error::Fault(fault) => format!("fault: {fault}"),
    }
}

/// The device of a lab's drivers.
pub(crate) type DeviceOf<L> = <<L as Env>::Driver as Driver>::Device;
