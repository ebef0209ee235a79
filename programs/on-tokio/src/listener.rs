//! The passive side.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use cmid_epoll::proto::handshake::Incoming;
use cmid_epoll::proto::{ConnParam, Error, IdKey, Pollable};

use crate::connection::Connection;
use crate::state::{DriveOf, Owned};

/// A listener. Dropping it rejects the requests that are not taken.
#[derive(Debug)]
pub struct Listener<D: Pollable> {
    owned: Owned<D>,
}

impl<D: Pollable> Listener<D> {
    pub(crate) fn new(owned: Owned<D>) -> Self {
        Listener { owned }
    }

    /// Waits for the next connection request. A future that is dropped has taken no request.
    ///
    /// # Errors
    /// An event of the listener reports a failure, or the driver's wait has failed.
    pub async fn accept(&mut self) -> io::Result<Inbound<D>> {
        loop {
            let event = self.owned.next_event().await?;
            let mut state = self.owned.shared.lock();
            match Incoming::new(state.driver.drive(), event) {
                Ok(incoming) => {
                    let owned = Owned::new(&self.owned.shared, &mut state, incoming.id());
                    return Ok(Inbound { owned, incoming });
                }
                Err(event) => drop(event.into_result()?),
            }
        }
    }
}

/// A connection request that is not answered. Dropping it rejects the peer.
#[derive(Debug)]
pub struct Inbound<D: Pollable> {
    owned: Owned<D>,
    incoming: Incoming,
}

impl<D: Pollable> Inbound<D> {
    /// Returns the request, with the peer's parameters and private data.
    pub fn incoming(&self) -> &Incoming {
        &self.incoming
    }

    /// Accepts the request, and waits until the connection is established. Dropping the future ends the connection.
    ///
    /// # Errors
    /// The errors of a handshake ([`HandshakeError`](cmid_epoll::proto::handshake::HandshakeError)), as inner errors.
    pub async fn accept<Q>(
        self,
        param: ConnParam,
        private_data: &[u8],
        limit: Duration,
        attach: impl FnOnce(&mut DriveOf<D>, IdKey) -> Result<Q, Error>,
    ) -> io::Result<Connection<D, Q>> {
        let Inbound { owned, incoming } = self;
        let shared = Arc::clone(&owned.shared);
        let mut serve = {
            let mut state = shared.lock();
            let deadline = state.driver.drive().within(limit);
            incoming.accept(state.driver.drive(), param, private_data, deadline, attach)?
        };
        loop {
            let event = owned.next_event().await?;
            let connected = serve.handle(shared.lock().driver.drive(), event)?;
            if let Some(connected) = connected {
                return Ok(Connection::new(owned, connected));
            }
        }
    }

    /// Rejects the request with at most 148 bytes of private data.
    ///
    /// # Errors
    /// `EINVAL` if the peer has gone.
    pub fn reject(self, private_data: &[u8]) -> io::Result<()> {
        let Inbound { owned, incoming } = self;
        Ok(incoming.reject(owned.shared.lock().driver.drive(), private_data)?)
    }
}
