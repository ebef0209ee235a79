//! The passive side of the connections: accepts them, polls them in turn, and drops silent ones.

use std::net::SocketAddr;
use std::time::Duration;

use cmid_epoll::proto::datapath::DataPath;
use cmid_epoll::proto::handshake::{Incoming, Session};
use cmid_epoll::proto::{Acks, ChannelKey, CmEvent, Drive, Errno, Event, IdKey, Poller, PortSpace, Time};

use crate::error::Error;
use crate::link::options;
use crate::port::{BURST, Port};
use crate::wire::{Bytes, Service};

/// The largest number of connections.
pub const CLIENTS_MAX: usize = 16;

/// A client that has sent nothing for this time is dropped. Clients send [`Alive`](crate::wire::Entry::Alive) four
/// times in this time.
pub(crate) const SILENCE: Duration = Duration::from_secs(4);

/// A client, from its request on.
#[derive(Debug)]
pub struct Client<D: DataPath> {
    session: Session<Port<D>>,
    /// The time of its last message, or of its connection.
    received_at: Time,
    has_failed: bool,
    /// The number of the last order.
    pub last_order: u64,
}

impl<D: DataPath> Client<D> {
    /// Sends a message to the client.
    ///
    /// # Errors
    /// The error of the post.
    #[inline]
    pub fn send(&mut self, bytes: &Bytes) -> Result<(), Errno> {
        self.session.attached().ok_or(Errno::ENOTCONN)?.send(bytes)
    }
}

/// A listener and its connections.
#[derive(Debug)]
pub struct Clients<D: DataPath> {
    service: Service,
    channel: ChannelKey,
    listener: IdKey,
    clients: Vec<Client<D>>,
}

impl<D: DataPath> Clients<D> {
    /// Listens for clients of a service.
    ///
    /// # Errors
    /// [`Error::PortInUse`] or [`Error::Local`].
    pub fn listen<P: Poller<D>>(drive: &mut Drive<D, P>, service: Service, address: SocketAddr) -> Result<Self, Error> {
        let channel = drive.open_channel(Acks::OnDelivery)?;
        let listener = drive.create_id(Some(channel), PortSpace::Tcp)?;
        drive.bind(listener, address).map_err(|error| Error::listen(address, error))?;
        drive.listen(listener, CLIENTS_MAX as i32).map_err(|error| Error::listen(address, error))?;
        Ok(Clients { service, channel, listener, clients: Vec::with_capacity(CLIENTS_MAX) })
    }

    /// Returns the number of connections.
    #[must_use]
    pub fn count(&self) -> usize {
        self.clients.iter().filter(|client| client.session.is_open()).count()
    }

    /// Passes messages that have arrived to `handle`, with their client, at most [`BURST`] of each. If `handle` fails, the
    /// client is dropped.
    #[inline]
    pub fn poll<E>(&mut self, now: Time, mut handle: impl FnMut(&mut Client<D>, &Bytes) -> Result<(), E>) {
        for client in self.clients.iter_mut().filter(|client| !client.has_failed && client.session.is_open()) {
            for _ in 0..BURST {
                let Some(port) = client.session.attached() else { break };
                match port.next_message() {
                    Ok(None) => break,
                    Ok(Some(bytes)) if handle(client, &bytes).is_ok() => client.received_at = now,
                    Ok(Some(_)) | Err(_) => {
                        client.has_failed = true;
                        break;
                    }
                }
            }
        }
    }

    /// Handles all events.
    ///
    /// # Errors
    /// [`Error::DeviceRemoved`].
    pub fn take_events<P: Poller<D>>(&mut self, drive: &mut Drive<D, P>) -> Result<(), Error> {
        while let Some(event) = drive.next_event(self.channel) {
            if event.id == self.listener && event.cm() == Some(CmEvent::DeviceRemoval) {
                return Err(Error::DeviceRemoved);
            }
            match Incoming::new(drive, event) {
                Ok(incoming) => self.accept(drive, incoming),
                Err(event) => self.take_event(drive, event),
            }
        }
        Ok(())
    }

    /// Accepts a request with the private data of this service and version. A rejection has this side's private data,
    /// so that the peer can report the difference.
    fn accept<P: Poller<D>>(&mut self, drive: &mut Drive<D, P>, incoming: Incoming) {
        let hello = self.service.hello();
        if !(self.clients.len() < CLIENTS_MAX && incoming.private_data().starts_with(&hello)) {
            // The reject fails if the peer has gone. The id is destroyed in both cases.
            let _ = incoming.reject(drive, &hello);
            return;
        }
        // The accept fails if the peer has gone; the peer dials again.
        if let Ok(session) = Session::accept(drive, incoming, &options(&hello), Port::open) {
            self.clients.push(Client { session, received_at: drive.now(), has_failed: false, last_order: 0 });
        }
    }

    fn take_event<P: Poller<D>>(&mut self, drive: &mut Drive<D, P>, event: Event) {
        let Some(client) = self.clients.iter_mut().find(|client| client.session.id() == event.id) else { return };
        match client.session.handle(drive, event, Port::open) {
            Ok(None) => {}
            Ok(Some(_)) => client.received_at = drive.now(),
            Err(_) => client.has_failed = true,
        }
    }

    /// Drops clients that are silent, have failed or have ended.
    pub fn handle_timeout<P: Poller<D>>(&mut self, drive: &mut Drive<D, P>) {
        let now = drive.now();
        self.clients.retain_mut(|client| {
            // An accept ends by itself.
            let accepts = client.session.attached().is_none();
            let is_served = client.session.is_open() && now < client.received_at.after(SILENCE);
            let stays = !client.has_failed && (accepts || is_served);
            if !stays {
                // Its events are dropped. An id that cannot be destroyed stays in the device.
                let _ = client.session.cancel(drive);
            }
            stays
        });
    }
}
