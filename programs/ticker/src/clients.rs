//! The passive side of the connections: accepts them, polls them in turn, and drops silent ones.

use std::net::SocketAddr;
use std::time::Duration;

use cmid_epoll::proto::datapath::DataPath;
use cmid_epoll::proto::handshake::{Incoming, Serve};
use cmid_epoll::proto::{Acks, ChannelKey, CmEvent, Errno, Event, IdKey, Poller, PortSpace, Time};

use crate::driver::Driver;
use crate::error::Error;
use crate::link::{PARAM, end};
use crate::port::Port;
use crate::wire::{Bytes, Service};

/// The largest number of connections.
pub const CLIENTS_MAX: usize = 16;

/// A client that has sent nothing for this time is dropped. Clients send [`Alive`](crate::wire::Entry::Alive) four
/// times in this time.
pub(crate) const SILENCE: Duration = Duration::from_secs(4);

/// The time limit of an accept.
const LIMIT: Duration = Duration::from_secs(10);

/// A connected client.
#[derive(Debug)]
pub struct Client<D: DataPath> {
    id: IdKey,
    port: Port<D>,
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
        self.port.send(bytes)
    }
}

/// A listener and its connections.
#[derive(Debug)]
pub struct Clients<D: DataPath> {
    service: Service,
    channel: ChannelKey,
    listener: IdKey,
    accepting: Vec<Serve<Port<D>>>,
    connected: Vec<Client<D>>,
}

impl<D: DataPath> Clients<D> {
    /// Listens for clients of a service.
    ///
    /// # Errors
    /// [`Error::PortInUse`] or [`Error::Local`].
    pub fn listen<P: Poller<D>>(
        drive: &mut Driver<D, P>,
        service: Service,
        address: SocketAddr,
    ) -> Result<Self, Error> {
        let channel = drive.open_channel(Acks::OnDelivery)?;
        let listener = drive.create_id(Some(channel), PortSpace::Tcp)?;
        drive.bind(listener, address).map_err(|error| Error::listen(address, error))?;
        drive.listen(listener, CLIENTS_MAX as i32).map_err(|error| Error::listen(address, error))?;
        let (accepting, connected) = (Vec::with_capacity(CLIENTS_MAX), Vec::with_capacity(CLIENTS_MAX));
        Ok(Clients { service, channel, listener, accepting, connected })
    }

    /// Returns the number of connections.
    #[must_use]
    pub fn count(&self) -> usize {
        self.connected.len()
    }

    /// Passes each message that has arrived to `handle`, with its client. If `handle` fails, the client is dropped.
    #[inline]
    pub fn poll<E>(&mut self, now: Time, mut handle: impl FnMut(&mut Client<D>, &Bytes) -> Result<(), E>) {
        for client in self.connected.iter_mut().filter(|client| !client.has_failed) {
            loop {
                match client.port.next_message() {
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
    pub fn take_events<P: Poller<D>>(&mut self, drive: &mut Driver<D, P>) -> Result<(), Error> {
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
    fn accept<P: Poller<D>>(&mut self, drive: &mut Driver<D, P>, incoming: Incoming) {
        let hello = self.service.hello();
        let has_room = self.accepting.len() + self.connected.len() < CLIENTS_MAX;
        if !(has_room && incoming.private_data().starts_with(&hello)) {
            // The reject fails if the peer has gone. The id is destroyed in both cases.
            let _ = incoming.reject(drive, &hello);
            return;
        }
        let deadline = drive.within(LIMIT);
        let attach = |drive: &mut Driver<D, P>, id| drive.attach_qp(id, |device, to| Port::<D>::open(device, to));
        // The accept fails if the peer has gone; the peer dials again.
        if let Ok(serve) = incoming.accept(drive, PARAM, &hello, deadline, attach) {
            self.accepting.push(serve);
        }
    }

    fn take_event<P: Poller<D>>(&mut self, drive: &mut Driver<D, P>, event: Event) {
        let (id, now) = (event.id, drive.now());
        if let Some(at) = self.accepting.iter().position(|serve| serve.id() == id) {
            let Some(serve) = self.accepting.get_mut(at) else { return };
            let done = serve.handle(drive, event);
            if let Ok(Some(connected)) = done {
                let port = connected.attached;
                self.connected.push(Client { id, port, received_at: now, has_failed: false, last_order: 0 });
            } else if done.is_ok() {
                return;
            }
            drop(self.accepting.swap_remove(at));
            return;
        }
        let has_ended = matches!(event.cm(), Some(CmEvent::Disconnected | CmEvent::DeviceRemoval));
        if let Some(client) = self.connected.iter_mut().find(|client| client.id == id) {
            client.has_failed |= has_ended;
        }
    }

    /// Drops clients that are silent or have failed.
    pub fn handle_timeout<P: Poller<D>>(&mut self, drive: &mut Driver<D, P>) {
        let now = drive.now();
        self.connected.retain(|client| {
            let stays = !client.has_failed && now < client.received_at.after(SILENCE);
            if !stays {
                end(drive, client.id);
            }
            stays
        });
    }
}
