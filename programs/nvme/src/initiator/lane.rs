//! The place of a queue, with or without a connection.

use std::collections::VecDeque;
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use cmid_mio::Tokens;
use cmid_mio::proto::datapath::{CompletionQueue as _, DataPath};
use cmid_mio::proto::handshake::Dial;
use cmid_mio::proto::{Drive, Error, IdKey, Time};
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};

use super::Loss;
use super::link::{Link, Over, Unsent};
use super::reactor::Command;
use super::request::TagOf;
use crate::wire::CmRequest;

/// The time limit of a disconnect.
const DISCONNECT: Duration = Duration::from_secs(2);

pub(super) struct Lane<D: DataPath> {
    pub(super) qid: u16,
    pub(super) token: Token,
    /// A connection under way.
    pub(super) dial: Option<(Dial<Link<D>>, CmRequest)>,
    pub(super) link: Option<(IdKey, Link<D>)>,
    /// What waits for room, with deadlines: the controller may tell late how far it has read the ring.
    pub(super) waiting: VecDeque<(TagOf<D>, Time)>,
    /// If a reactor has the connection instead: how many commands it takes.
    pub(super) away: Option<usize>,
    /// Whether the CQs may have completions.
    pub(super) is_readable: bool,
}

impl<D: DataPath> Lane<D> {
    pub(super) fn new(qid: u16, token: Token) -> Self {
        Lane { qid, token, dial: None, link: None, waiting: VecDeque::new(), away: None, is_readable: false }
    }

    /// Whether an event of this id is for this lane.
    pub(super) fn has(&self, id: IdKey) -> bool {
        self.dial.as_ref().is_some_and(|(dial, _)| dial.id() == id)
            || self.link.as_ref().is_some_and(|(it, _)| *it == id)
    }

    /// Returns how many commands can be sent.
    pub(super) fn room(&self) -> usize {
        let queue = self.link.as_ref().map(|(_, link)| &link.queue).filter(|queue| queue.has_room());
        self.away.unwrap_or_else(|| {
            queue.map_or(0, |queue| (queue.slots() - queue.outstanding()).saturating_sub(self.waiting.len()))
        })
    }

    /// Takes an established connection.
    pub(super) fn set(&mut self, id: IdKey, link: Link<D>, registry: &Registry) -> std::io::Result<()> {
        let fds = [&link.sends, &link.receives].map(|cq| cq.fd().as_raw_fd());
        // It is ended by `end`, also if it is not watched.
        self.link = Some((id, link));
        // Completions may have come before the descriptor is watched.
        self.is_readable = true;
        fds.iter().try_for_each(|fd| registry.register(&mut SourceFd(fd), self.token, Interest::READABLE))
    }

    /// Releases the connection: what to give a reactor. Nothing is outstanding on it. With an error the connection is here.
    pub(super) fn release(
        &mut self,
        drive: &mut Drive<D, Tokens>,
        registry: &Registry,
    ) -> Result<Option<Command<D>>, Error> {
        let Some((id, _)) = self.link else { return Ok(None) };
        // Its events are acked when they are delivered, so it is done at once.
        let _done = drive.migrate(id, None, Time::NEVER)?;
        let id = drive.release(id)?;
        let Some((_, link)) = self.link.take() else { return Ok(None) };
        unwatch(&link, registry);
        self.is_readable = false;
        self.away = Some(link.queue.slots());
        Ok(Some(Command::Serve { qid: self.qid, id, link: Box::new(link) }))
    }

    /// Takes completions, if there may be some, and sends what waits. What has ended before an error is in `over`.
    pub(super) fn serve(&mut self, over: &mut Vec<Over<D::Piece>>) -> Result<(), Loss> {
        if let (true, Some((_, link))) = (std::mem::take(&mut self.is_readable), &mut self.link) {
            self.is_readable = link.poll(over).map_err(|error| Loss::Link { qid: self.qid, error })?;
        }
        self.send_waiting()
    }

    /// Sends a command, or keeps it until there is room.
    pub(super) fn send(&mut self, tag: TagOf<D>, deadline: Time) -> Result<(), Loss> {
        self.waiting.push_back((tag, deadline));
        self.send_waiting()
    }

    fn send_waiting(&mut self) -> Result<(), Loss> {
        let (qid, Some((_, link))) = (self.qid, &mut self.link) else { return Ok(()) };
        while let Some((tag, deadline)) = self.waiting.pop_front() {
            let Some(Unsent { tag, error }) = link.send(tag, deadline) else { continue };
            self.waiting.push_front((tag, deadline));
            return error.map_or(Ok(()), |error| Err(Loss::Link { qid, error }));
        }
        Ok(())
    }

    /// Ends the connection, and returns its commands. Afterwards the target can neither read nor write its memory.
    pub(super) fn end(&mut self, drive: &mut Drive<D, Tokens>, registry: &Registry) -> Vec<TagOf<D>> {
        self.is_readable = false;
        if let Some((dial, _)) = self.dial.take() {
            // The id may be gone already.
            let _ = dial.cancel(drive);
        }
        let mut tags: Vec<_> = self.waiting.drain(..).map(|(tag, _)| tag).collect();
        let Some((id, mut link)) = self.link.take() else { return tags };
        unwatch(&link, registry);
        tags.extend(link.queue.drain());
        // The connection may have ended already.
        let deadline = drive.within(DISCONNECT);
        let _ = drive.disconnect(id, deadline);
        let _ = drive.detach_qp(id, |device, id| device.destroy_qp(id));
        drop(link);
        let _ = drive.destroy(id, Time::NEVER);
        tags
    }
}

fn unwatch<D: DataPath>(link: &Link<D>, registry: &Registry) {
    for cq in [&link.sends, &link.receives] {
        // It fails only for a descriptor that is not watched.
        let _ = registry.deregister(&mut SourceFd(&cq.fd().as_raw_fd()));
    }
}
