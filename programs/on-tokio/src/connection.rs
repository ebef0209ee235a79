//! Established connections.

use std::io;
use std::time::Duration;

use cmid_epoll::proto::handshake::Connected;
use cmid_epoll::proto::{CmEvent, Errno, Event, EventKind, Pollable, State};

use crate::state::{Locked, Owned};

/// A connection. Dropping it destroys its id, which disconnects the peer, and drops the attached value.
#[derive(Debug)]
pub struct Connection<D: Pollable, Q> {
    owned: Owned<D>,
    connected: Connected<Q>,
}

impl<D: Pollable, Q> Connection<D, Q> {
    pub(crate) fn new(owned: Owned<D>, connected: Connected<Q>) -> Self {
        Connection { owned, connected }
    }

    /// Returns the peer's parameters and private data, and the attached value.
    pub fn connected(&self) -> &Connected<Q> {
        &self.connected
    }

    /// Returns the attached value.
    pub fn attached(&mut self) -> &mut Q {
        &mut self.connected.attached
    }

    /// Returns the next event of the connection.
    ///
    /// # Errors
    /// The driver's wait has failed.
    pub async fn next_event(&self) -> io::Result<Event> {
        self.owned.next_event().await
    }

    /// Waits until the peer has disconnected. Afterwards drop the connection or disconnect it; both confirm the end to
    /// the peer.
    ///
    /// # Errors
    /// `ENODEV` if the device was removed, or the error of the driver's wait.
    pub async fn closed(&self) -> io::Result<()> {
        loop {
            let event = self.next_event().await?;
            match event.cm() {
                Some(CmEvent::Disconnected) => return Ok(()),
                Some(CmEvent::DeviceRemoval) => return Err(Errno::ENODEV.into()),
                Some(_) | None => {}
            }
        }
    }

    /// Disconnects and waits for the peer's confirmation: the peer's disconnect, or the drop of its [`Connection`]. A
    /// program with both sides must run them concurrently. If the peer has disconnected first, confirms that without
    /// waiting. After the end of the connection it does not wait either.
    ///
    /// # Errors
    /// `ENODEV` if the device was removed, `TimedOut` if the peer does not confirm within `limit`, or the error of the
    /// driver's wait.
    pub async fn disconnect(&self, limit: Duration) -> io::Result<()> {
        {
            let mut state: Locked<'_, D> = self.owned.shared.lock();
            let deadline = state.driver.drive().within(limit);
            state.driver.drive().disconnect(self.owned.id(), deadline)?;
            // No event follows if the peer has disconnected first.
            if state.driver.drive().core().state(self.owned.id()) != Some(State::Disconnecting) {
                return Ok(());
            }
        }
        loop {
            let event = self.next_event().await?;
            match event.kind {
                EventKind::Cm(CmEvent::DeviceRemoval) => return Err(Errno::ENODEV.into()),
                EventKind::Cm(CmEvent::Disconnected | CmEvent::Rejected) | EventKind::DeadlinePassed(_) => {
                    return Ok(event.into_result().map(drop)?);
                }
                EventKind::Cm(_) | EventKind::Migrated | EventKind::Destroyed | EventKind::Left => {}
            }
        }
    }
}
