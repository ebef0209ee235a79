//! The place of a queue, with or without a connection.

use std::collections::VecDeque;
use std::os::fd::AsRawFd as _;

use cmid_mio::Channels;
use cmid_mio::proto::datapath::{CompletionQueue as _, DataPath};
use cmid_mio::proto::handshake::Session;
use cmid_mio::proto::{Drive, Error, ErrorWith, IdKey, Time};
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};

use super::Loss;
use super::link::{Link, Over, Unsent};
use super::reactor::Command;
use super::request::TagOf;
use crate::queue::is_late;
use crate::wire::CmRequest;

pub(super) struct Lane<D: DataPath> {
    pub(super) qid: u16,
    pub(super) token: Token,
    /// A connection, from its connect on.
    pub(super) session: Option<Session<Link<D>>>,
    /// What the target was asked for, until it has answered.
    pub(super) asked: Option<CmRequest>,
    /// What waits for room, with deadlines: the controller may tell late how far it has read the ring.
    pub(super) waiting: VecDeque<(TagOf<D>, Time)>,
    /// If a reactor has the connection instead: how many commands it takes.
    pub(super) away: Option<usize>,
    /// Whether the CQs may have completions.
    pub(super) is_readable: bool,
}

impl<D: DataPath> Lane<D> {
    pub(super) fn new(qid: u16, token: Token) -> Self {
        Lane { qid, token, session: None, asked: None, waiting: VecDeque::new(), away: None, is_readable: false }
    }

    /// Whether an event of this id is for this lane.
    pub(super) fn has(&self, id: IdKey) -> bool {
        self.session.as_ref().is_some_and(|session| session.id() == id)
    }

    /// Returns the connection that is established.
    pub(super) fn link(&mut self) -> Option<&mut Link<D>> {
        self.session.as_mut()?.attached()
    }

    /// Returns how many commands it takes: those for which there are slots. If the ring is full all the same, they wait here with
    /// their deadlines, so that a controller which never tells how far it has read is noticed.
    pub(super) fn room(&mut self) -> usize {
        let (away, waiting) = (self.away, self.waiting.len());
        let free = self.link().map_or(0, |link| link.queue.slots() - link.queue.outstanding());
        away.unwrap_or(free.saturating_sub(waiting))
    }

    /// Returns a command whose deadline has passed, on the queue or before it.
    pub(super) fn overdue(&mut self, now: Time) -> Option<&TagOf<D>> {
        let link = self.session.as_mut().and_then(Session::attached);
        let waiting = || self.waiting.iter().find(|(_, deadline)| is_late(*deadline, now)).map(|(tag, _)| tag);
        link.and_then(|link| link.queue.overdue(now)).or_else(waiting)
    }

    /// Watches the CQs of a connection that is established.
    pub(super) fn watch(&mut self, registry: &Registry) -> std::io::Result<()> {
        let token = self.token;
        // Completions may have come before the descriptors are watched.
        self.is_readable = true;
        let Some(link) = self.link() else { return Ok(()) };
        let fds = [&link.sends, &link.receives].map(|cq| cq.fd().as_raw_fd());
        fds.iter().try_for_each(|fd| registry.register(&mut SourceFd(fd), token, Interest::READABLE))
    }

    /// Releases the connection: what to give a reactor. Nothing is outstanding on it. With an error the connection is here.
    pub(super) fn release(
        &mut self,
        drive: &mut Drive<D, Channels>,
        registry: &Registry,
    ) -> Result<Option<Command<D>>, Error> {
        let Some(session) = self.session.take_if(|it| it.is_open()) else { return Ok(None) };
        let mut released = match session.release(drive) {
            Ok(released) => released,
            Err(ErrorWith { given, error }) => {
                self.session = Some(given);
                return Err(error);
            }
        };
        let link = released.attached();
        unwatch(link, registry);
        self.is_readable = false;
        self.away = Some(link.queue.slots());
        Ok(Some(Command::Serve { qid: self.qid, released: Box::new(released) }))
    }

    /// Takes completions, if there may be some, and sends what waits. What has ended before an error is in `over`.
    pub(super) fn serve(&mut self, over: &mut Vec<Over<D::Piece>>) -> Result<(), Loss> {
        let qid = self.qid;
        if let (true, Some(link)) = (std::mem::take(&mut self.is_readable), self.link()) {
            self.is_readable = link.poll(over).map_err(|error| Loss::Link { qid, error })?;
        }
        self.send_waiting()
    }

    /// Sends a command, or keeps it until there is room.
    pub(super) fn send(&mut self, tag: TagOf<D>, deadline: Time) -> Result<(), Loss> {
        self.waiting.push_back((tag, deadline));
        self.send_waiting()
    }

    fn send_waiting(&mut self) -> Result<(), Loss> {
        let (qid, Some(link)) = (self.qid, self.session.as_mut().and_then(Session::attached)) else { return Ok(()) };
        while let Some((tag, deadline)) = self.waiting.pop_front() {
            let Some(Unsent { tag, error }) = link.send(tag, deadline) else { continue };
            self.waiting.push_front((tag, deadline));
            return error.map_or(Ok(()), |error| Err(Loss::Link { qid, error }));
        }
        Ok(())
    }

    /// Ends the connection. Afterwards the target can neither read nor write its memory. [`Lane::take_commands`] follows.
    pub(super) fn end(&mut self, drive: &mut Drive<D, Channels>, registry: &Registry) {
        let Some(session) = &mut self.session else { return };
        if let Some(link) = session.attached() {
            unwatch(link, registry);
        }
        // The id may be gone already.
        let _ = session.cancel(drive);
        if let Some(link) = session.attached() {
            link.end_windows();
        }
    }

    /// Takes all commands of a lane that has ended, also if its end has panicked.
    pub(super) fn take_commands(&mut self) -> Vec<TagOf<D>> {
        (self.is_readable, self.asked) = (false, None);
        let mut tags: Vec<_> = self.waiting.drain(..).map(|(tag, _)| tag).collect();
        if let Some(mut session) = self.session.take() {
            tags.extend(session.attached().into_iter().flat_map(|link| link.queue.drain()));
        }
        tags
    }
}

fn unwatch<D: DataPath>(link: &Link<D>, registry: &Registry) {
    for cq in [&link.sends, &link.receives] {
        // It fails only for a descriptor that is not watched.
        let _ = registry.deregister(&mut SourceFd(&cq.fd().as_raw_fd()));
    }
}
