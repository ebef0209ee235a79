//! Established connections.

use std::io;
use std::time::Duration;

use cmid_epoll::proto::handshake::Connected;
use cmid_epoll::proto::{CmEvent, Event, EventKind, Pollable};

use crate::state::{Locked, Owned};

/// A connection. Dropping it destroys its id, which disconnects the peer, and what is attached.
#[derive(Debug)]
pub struct Connection<D: Pollable, Q> {
    owned: Owned<D>,
    connected: Connected<Q>,
}

impl<D: Pollable, Q> Connection<D, Q> {
    pub(crate) fn new(owned: Owned<D>, connected: Connected<Q>) -> Self {
        Connection { owned, connected }
    }

    /// What the peer has sent, and what is attached.
    pub fn connected(&self) -> &Connected<Q> {
        &self.connected
    }

    /// What is attached, for its changes.
    pub fn attached(&mut self) -> &mut Q {
        &mut self.connected.attached
    }

    /// Returns the next event of the connection.
    ///
    /// # Errors
    /// The driver cannot wait any more.
    pub async fn next_event(&self) -> io::Result<Event> {
        self.owned.next_event().await
    }

    /// Waits until the peer has disconnected.
    ///
    /// # Errors
    /// `ENODEV` if the device was removed, or the driver cannot wait any more.
    pub async fn closed(&self) -> io::Result<()> {
        loop {
            let event = self.next_event().await?;
            match event.cm() {
                Some(CmEvent::Disconnected) => return Ok(()),
                Some(CmEvent::DeviceRemoval) => return Err(cmid_epoll::proto::Errno::ENODEV.into()),
                Some(_) | None => {}
            }
        }
    }

    /// Disconnects and waits for the peer's confirmation.
    ///
    /// # Errors
    /// The connection has ended, or the peer does not confirm within `limit`.
    pub async fn disconnect(&self, limit: Duration) -> io::Result<()> {
        {
            let mut state: Locked<'_, D> = self.owned.shared.lock();
            let deadline = state.driver.drive().within(limit);
            state.driver.drive().disconnect(self.owned.id(), deadline)?;
        }
        loop {
            let event = self.next_event().await?;
            if matches!(event.kind, EventKind::Cm(CmEvent::Disconnected) | EventKind::DeadlinePassed(_)) {
                return Ok(event.into_result().map(drop)?);
            }
        }
    }
}
