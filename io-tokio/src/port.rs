//! A driver of one id: the drive, and the descriptor of the channel that the id is on.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};

use cmid_io_common::Opening;
use cmid_proto::datapath::Attaching;
use cmid_proto::handshake::{BoxError, Connected};
use cmid_proto::{Drive, Errno, Event, Fault, IdKey, Limits, Next, Observer, Pollable, State};
use tokio::time::{Instant, timeout_at};

use crate::clock;
use crate::watch::Watch;

/// Events read from the channel per turn.
const BUDGET: usize = 256;

/// A drive with one id in synchronous mode, which has its own channel. Nothing of it is in a future: a future that is
/// dropped loses no event, and the next one continues from the state of the id.
///
/// Dropping it destroys the id, because the channel is closed with the device.
#[derive(Debug)]
pub(crate) struct Port<D: Pollable, O: Observer> {
    pub(crate) drive: Drive<D, (), O>,
    pub(crate) id: IdKey,
    watch: Watch,
    /// Whether the channel may have an event that was not read.
    is_unread: bool,
}

/// A drive without ids.
pub(crate) fn drive<D: Pollable, O: Observer>(device: D, observer: O, limits: Limits) -> Drive<D, (), O> {
    let mut drive = Drive::with(device, (), observer, limits.numbered());
    drive.set_now(clock::now());
    drive
}

impl<D: Pollable, O: Observer> Port<D, O> {
    /// Owns the only id of a drive.
    pub(crate) fn of(drive: Drive<D, (), O>, id: IdKey) -> Self {
        // What happened before the registration is reported by it, but not what a migration has moved.
        Port { drive, id, watch: Watch::default(), is_unread: true }
    }

    pub(crate) fn state(&self) -> State {
        self.drive.core().state(self.id).unwrap_or(State::Destroying)
    }

    /// Ends the registration in the runtime.
    pub(crate) fn leave_runtime(&mut self) {
        self.watch = Watch::default();
    }

    /// Reads what the channel has, or handles the deadlines that have passed. Returns whether another turn is necessary,
    /// after the events are taken.
    pub(crate) fn turn(&mut self) -> io::Result<bool> {
        let is_unread = std::mem::take(&mut self.is_unread);
        if is_unread {
            self.drive.readable_all();
        } else {
            // Not before the channel is read, so that events precede deadlines that have passed meanwhile.
            self.drive.set_now(clock::now());
        }
        let next = self.drive.run(BUDGET);
        while let Some(fault) = self.drive.next_fault() {
            if let Fault::Channel { channel, .. } = fault {
                // The next turn reads the channel again.
                self.drive.resume_channel(channel)?;
                return Err(fault.into());
            }
        }
        Ok(is_unread || !matches!(next, Next::Wait(_)))
    }

    /// Makes turns until none has work. The events that end no request are dropped: the state of the id tells what they
    /// have changed.
    pub(crate) fn settle(&mut self) -> io::Result<()> {
        while self.turn()? {
            while self.next_event().is_some() {}
        }
        Ok(())
    }

    /// Returns an event that has been read.
    pub(crate) fn next_event(&mut self) -> Option<Event> {
        self.drive.next_event(self.drive.core().channel(self.id)?)
    }

    /// Ready if the channel was not read since it became readable.
    pub(crate) fn poll_readable(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.is_unread {
            let core = self.drive.core();
            let fd = core.device_channel(self.id).and_then(|channel| self.drive.device().fd(channel));
            ready!(self.watch.poll(fd.ok_or(Errno::EBADF)?, context))?;
            self.is_unread = true;
        }
        Poll::Ready(Ok(()))
    }

    /// Waits until a turn has work: the channel is readable, or the nearest deadline has come.
    pub(crate) async fn ready(&mut self) -> io::Result<()> {
        let due = self.drive.next_timeout().and_then(clock::instant);
        until(due, |context| self.poll_readable(context)).await
    }

    /// Whether a request is under way.
    pub(crate) fn is_busy(&self) -> bool {
        self.drive.core().id_info(self.id).is_some_and(|it| it.sync_open.is_some())
    }

    /// Waits for each request of a connect or accept, until the connection is established.
    pub(crate) async fn shake_hands<Q, E: Into<BoxError>, F>(
        &mut self,
        mut opening: Opening<Q, F>,
    ) -> io::Result<Connected<Q>>
    where
        F: FnOnce(&mut D, Attaching<'_>) -> Result<Q, E>,
    {
        loop {
            self.settle()?;
            if self.is_busy() {
                self.ready().await?;
            } else if opening.poll(&mut self.drive)? {
                return Ok(opening.into_connected()?);
            } else if !self.is_busy() {
                // No event would follow.
                return Err(Errno::EINVAL.into());
            }
        }
    }
}

/// Polls until it is ready or the time has come.
pub(crate) async fn until(
    due: Option<Instant>,
    poll: impl FnMut(&mut Context<'_>) -> Poll<io::Result<()>>,
) -> io::Result<()> {
    match due {
        None => poll_fn(poll).await,
        Some(due) => timeout_at(due, poll_fn(poll)).await.unwrap_or(Ok(())),
    }
}
