//! A driver of one id: the drive, and the descriptor of the channel that the id is on.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};

use cmid_proto::datapath::Attaching;
use cmid_proto::handshake::{BoxError, Connected, Session};
use cmid_proto::{Errno, Event, IdKey, Next, Observer, Pollable, State};

use crate::driver::Tokio;

/// A drive with one id in synchronous mode, which has its own channel. Nothing of it is in a future: a future that is
/// dropped loses no event, and the next one continues from the state of the id.
///
/// Dropping it destroys the id, because the channel is closed with the device.
#[derive(Debug)]
pub(crate) struct Port<D: Pollable, O: Observer> {
    pub(crate) driver: Tokio<D, O>,
    pub(crate) id: IdKey,
}

impl<D: Pollable, O: Observer> Port<D, O> {
    /// Owns the only id of a driver.
    pub(crate) fn of(mut driver: Tokio<D, O>, id: IdKey) -> Self {
        // What happened before the registration is reported by it, but not what a migration has moved.
        driver.read_again();
        Port { driver, id }
    }

    pub(crate) fn state(&self) -> State {
        self.driver.drive.core().state(self.id).unwrap_or(State::Destroying)
    }

    /// Makes a turn. Returns whether another one is necessary, after the events are taken. Those of other ids, which the
    /// application has added, are not.
    pub(crate) fn turn(&mut self) -> io::Result<bool> {
        let is_unread = self.driver.is_unread();
        let next = self.driver.turn();
        self.driver.drive.resume_failed()?;
        let core = self.driver.drive.core();
        let has_event = core.channel(self.id).is_some_and(|channel| core.may_have_event(channel));
        Ok(is_unread || next == Next::Again || has_event)
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
        self.driver.drive.next_event(self.driver.drive.core().channel(self.id)?)
    }

    /// Ready when a turn has work: the channel is readable, or the nearest deadline has come.
    pub(crate) fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.driver.poll_ready(self.driver.drive.next_timeout(), context)
    }

    /// Waits until a turn has work.
    pub(crate) async fn ready(&mut self) -> io::Result<()> {
        poll_fn(|context| self.poll_ready(context)).await
    }

    /// Whether a request is under way.
    pub(crate) fn is_busy(&self) -> bool {
        self.driver.drive.core().id_info(self.id).is_some_and(|it| it.sync_open.is_some())
    }

    /// Waits for each request of a connect or accept, until the connection is established.
    pub(crate) async fn shake_hands<Q, E: Into<BoxError>>(
        &mut self,
        mut session: Session<Q>,
        attach: impl FnOnce(&mut D, Attaching<'_>) -> Result<Q, E>,
    ) -> io::Result<Connected<Q>> {
        let mut attach = Some(attach);
        loop {
            self.settle()?;
            if self.is_busy() {
                self.ready().await?;
            } else if session.poll(&mut self.driver.drive, &mut attach)?.is_some() {
                return Ok(session.into_connected().ok_or(Errno::ENOTCONN)?);
            } else if !self.is_busy() {
                // No event would follow.
                return Err(Errno::EINVAL.into());
            }
        }
    }
}
