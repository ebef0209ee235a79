//! The place of a queue, with or without a connection.

use std::os::fd::AsRawFd as _;
use std::time::Duration;

use cmid_mio::Tokens;
use cmid_mio::proto::datapath::{CompletionQueue as _, DataPath};
use cmid_mio::proto::handshake::Dial;
use cmid_mio::proto::{Drive, IdKey, Time};
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};

use super::link::Link;
use super::request::Tag;
use crate::wire::CmRequest;

/// The time limit of a disconnect.
const DISCONNECT: Duration = Duration::from_secs(2);

pub(super) struct Lane<D: DataPath> {
    pub(super) qid: u16,
    pub(super) token: Token,
    /// A connection under way.
    pub(super) dial: Option<(Dial<Link<D>>, CmRequest)>,
    pub(super) link: Option<(IdKey, Link<D>)>,
    /// Whether the CQs may have completions.
    pub(super) is_readable: bool,
}

impl<D: DataPath> Lane<D> {
    pub(super) fn new(qid: u16, token: Token) -> Self {
        Lane { qid, token, dial: None, link: None, is_readable: false }
    }

    /// Whether an event of this id is for this lane.
    pub(super) fn has(&self, id: IdKey) -> bool {
        self.dial.as_ref().is_some_and(|(dial, _)| dial.id() == id)
            || self.link.as_ref().is_some_and(|(it, _)| *it == id)
    }

    /// Returns how many commands can be sent.
    pub(super) fn room(&self) -> usize {
        let queue = self.link.as_ref().map(|(_, link)| &link.queue).filter(|queue| queue.has_room());
        queue.map_or(0, |queue| queue.slots() - queue.outstanding())
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

    /// Ends the connection, and returns its commands. Afterwards the target can neither read nor write its memory.
    pub(super) fn end(&mut self, drive: &mut Drive<D, Tokens>, registry: &Registry) -> Vec<Tag> {
        self.is_readable = false;
        if let Some((dial, _)) = self.dial.take() {
            // The id may be gone already.
            let _ = dial.cancel(drive);
        }
        let Some((id, mut link)) = self.link.take() else { return Vec::new() };
        for cq in [&link.sends, &link.receives] {
            // It fails only for a descriptor that is not watched.
            let _ = registry.deregister(&mut SourceFd(&cq.fd().as_raw_fd()));
        }
        let tags = link.queue.drain();
        // The connection may have ended already.
        let deadline = drive.within(DISCONNECT);
        let _ = drive.disconnect(id, deadline);
        let _ = drive.detach_qp(id, |device, id| device.destroy_qp(id));
        drop(link);
        let _ = drive.destroy(id, Time::NEVER);
        tags
    }
}
