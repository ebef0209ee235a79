//! The exchange: receives orders over connections and answers each.

use std::net::SocketAddr;

use cmid_epoll::proto::datapath::DataPath;
use cmid_epoll::proto::{Drive, Errno, Poller, Time};

use crate::clients::Clients;
use crate::error::Error;
use crate::reactor::Role;
use crate::wire::{Entry, Order, Service};

/// The exchange. It passes each accepted order to `O`.
#[derive(Debug)]
pub struct Exchange<D: DataPath, O> {
    clients: Clients<D>,
    on_order: O,
    accepted: u64,
    refused: u64,
}

impl<D: DataPath, O: FnMut(&Order)> Exchange<D, O> {
    /// Listens for traders.
    ///
    /// # Errors
    /// [`Error::PortInUse`] or [`Error::Local`].
    pub fn start<P: Poller<D>>(drive: &mut Drive<D, P>, listen: SocketAddr, on_order: O) -> Result<Self, Error> {
        let clients = Clients::listen(drive, Service::Orders, listen)?;
        Ok(Exchange { clients, on_order, accepted: 0, refused: 0 })
    }

    /// Returns the number of connected traders.
    #[must_use]
    pub fn traders(&self) -> usize {
        self.clients.count()
    }

    /// Returns the numbers of accepted and of refused orders.
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        (self.accepted, self.refused)
    }
}

impl<D: DataPath, O: FnMut(&Order)> Role<D> for Exchange<D, O> {
    fn poll(&mut self, now: Time) -> Result<(), Error> {
        let Exchange { clients, on_order, accepted, refused } = self;
        clients.poll(now, |client, bytes| match Entry::decode(bytes) {
            Ok(Entry::New(order)) => {
                // The numbers of a client's orders must increase, so no order is carried out twice.
                let is_valid = order.number > client.last_order && order.quantity != 0;
                if !is_valid {
                    *refused += 1;
                    return client.send(&Entry::Refused(order.number).encode());
                }
                client.last_order = order.number;
                *accepted += 1;
                on_order(&order);
                client.send(&Entry::Accepted(order.number).encode())
            }
            Ok(Entry::Alive) => Ok(()),
            Ok(Entry::Accepted(_) | Entry::Refused(_)) | Err(_) => Err(Errno::EINVAL),
        });
        Ok(())
    }

    fn take_events<P: Poller<D>>(&mut self, drive: &mut Drive<D, P>) -> Result<(), Error> {
        self.clients.take_events(drive)
    }

    fn handle_timeout<P: Poller<D>>(&mut self, drive: &mut Drive<D, P>) -> Result<(), Error> {
        self.clients.handle_timeout(drive);
        Ok(())
    }
}
