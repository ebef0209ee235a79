//! The side that accepts the connections.

use std::net::SocketAddr;

use anyhow::Result;
use cmid_proto::datapath::DataPath;
use cmid_proto::key_table::KeyTable;
use cmid_proto::{Acks, ChannelKey, CmEvent, Drive, Errno, Error, Event, IdKey, Poller, PortSpace};

use crate::args::Plan;
use crate::equipment::Equipment;
use crate::failure_text::failure_text;
use crate::point::Point;

/// The offset of its QP numbers from the client's, if no QPs are made.
const ABOVE: u32 = 1 << 22;

/// The results of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Served {
    /// Connections that were established, and ended.
    pub(crate) ended: u64,
    /// Requests and connections that failed, by reason.
    pub(crate) failed: std::collections::BTreeMap<String, u64>,
    /// Connections in progress at the deadline.
    pub(crate) unfinished: u64,
    /// The reason why it stopped listening early.
    pub(crate) lost: Option<String>,
}

impl Served {
    /// The number of ended and failed connections.
    pub(crate) fn over(&self) -> u64 {
        self.ended + self.failed.values().sum::<u64>()
    }
}

/// A listener and its connections.
pub(crate) struct Server<D: DataPath> {
    plan: Plan,
    channel: ChannelKey,
    listener: IdKey,
    equipment: Equipment<D>,
    children: KeyTable<IdKey, Option<<D as DataPath>::Qp>>,
    /// How many connections have been established.
    established: u64,
    /// The next point at which the server waits for the client.
    next: Option<Point>,
    served: Served,
}

impl<D: DataPath> Server<D> {
    pub(crate) fn begin<P: Poller<D>>(drive: &mut Drive<D, P>, address: SocketAddr, plan: Plan) -> Result<Self> {
        let channel = drive.open_channel(Acks::OnDelivery)?;
        let listener = drive.create_id(Some(channel), PortSpace::Tcp)?;
        drive.bind(listener, address)?;
        // The maximum number of unread requests that the system allows.
        drive.listen(listener, 0)?;
        let (equipment, children) = (Equipment::new(&plan, ABOVE), KeyTable::default());
        let next = plan.in_step.then_some(Point::Connected);
        Ok(Server { plan, channel, listener, equipment, children, established: 0, next, served: Served::default() })
    }

    /// After a failure, the server does not wait for another point: the client does not reach it either.
    pub(crate) fn is_over(&self) -> bool {
        let served_all = self.served.over() >= self.plan.connections;
        self.served.lost.is_some() || served_all && (self.next.is_none() || !self.served.failed.is_empty())
    }

    /// The point that all connections have reached, and at which the server waits for the client.
    pub(crate) fn reached(&self) -> Option<Point> {
        let there = match self.next? {
            Point::Ready => 0,
            Point::Connected => self.established,
            Point::Disconnected => self.served.ended,
        };
        self.next.filter(|_| there >= self.plan.connections)
    }

    /// Continues after the client has reached the point too.
    pub(crate) fn go_on(&mut self) {
        self.next = match self.next {
            Some(Point::Ready) => Some(Point::Connected),
            Some(Point::Connected) => Some(Point::Disconnected),
            Some(Point::Disconnected) | None => None,
        };
    }

    /// Stops listening, and returns the results.
    pub(crate) fn conclude<P: Poller<D>>(mut self, drive: &mut Drive<D, P>) -> Served {
        self.served.unfinished = self.children.len() as u64;
        // It can only fail for an id that does not exist any more.
        let _ = drive.destroy(self.listener, drive.within(self.plan.patience));
        self.served
    }

    /// Handles all available events.
    pub(crate) fn advance<P: Poller<D>>(&mut self, drive: &mut Drive<D, P>) {
        while !self.is_over()
            && let Some(event) = &drive.next_event(self.channel)
        {
            if let Err(reason) = self.on_event(drive, event) {
                self.fail(drive, event.id, reason);
            }
        }
    }

    fn on_event<P: Poller<D>>(&mut self, drive: &mut Drive<D, P>, event: &Event) -> Result<(), String> {
        let id = event.id;
        match event.cm() {
            Some(CmEvent::ConnectRequest) => {
                let filed = self.children.reserve(id);
                if let Err(errno) = filed.and_then(|()| self.children.insert(id, None).map_err(|_| Errno::EINVAL)) {
                    self.served.lost = Some(format!("no place for a connection: {errno}"));
                    return Ok(());
                }
                self.accept(drive, id).map_err(|error| failure_text(&error))
            }
            Some(CmEvent::Established) => {
                self.established += 1;
                Ok(())
            }
            Some(CmEvent::AddrChange | CmEvent::TimewaitExit) => Ok(()),
            Some(CmEvent::Disconnected) => {
                self.end(drive, id).map_err(|error| failure_text(&error))?;
                self.served.ended += 1;
                Ok(())
            }
            _ => Err(format!("{} with status {}", event.kind, event.status)),
        }
    }

    fn accept<P: Poller<D>>(&mut self, drive: &mut Drive<D, P>, id: IdKey) -> Result<(), Error> {
        let qp = self.equipment.attach(drive, id)?;
        if let Some(child) = self.children.get_mut(id) {
            *child = qp;
        }
        drive.accept(id, self.equipment.param(), &[], drive.within(self.plan.patience))
    }

    /// Answers the client's disconnect, and destroys the connection.
    fn end<P: Poller<D>>(&mut self, drive: &mut Drive<D, P>, id: IdKey) -> Result<(), Error> {
        let patience = drive.within(self.plan.patience);
        drive.disconnect(id, patience)?;
        Equipment::detach(drive, id, self.children.get_mut(id).and_then(Option::take))?;
        drive.destroy(id, patience)?;
        self.children.remove(id);
        Ok(())
    }

    fn fail<P: Poller<D>>(&mut self, drive: &mut Drive<D, P>, id: IdKey, reason: String) {
        if let Some(qp) = self.children.remove(id) {
            *self.served.failed.entry(reason).or_default() += 1;
            // If the detach fails, the destruction of the id detaches the QP. An id that cannot be destroyed stays
            // until the device is closed.
            let _ = Equipment::detach(drive, id, qp);
            let _ = drive.destroy(id, drive.within(self.plan.patience));
        } else if id == self.listener {
            self.served.lost = Some(reason);
        }
    }
}
