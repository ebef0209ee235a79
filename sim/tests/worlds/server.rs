//! The server: sends each number back.

use std::cell::Cell;
use std::rc::Rc;

use cmid_proto::handshake::{Incoming, Serve};
use cmid_proto::{Acks, ChannelKey, CmEvent, ConnParam, Drive, Event, IdKey, PortSpace, Time};
use cmid_sim::{Node, Program, SimDevice, Turn, turn};

use crate::link::{Done, Failed, Link};

pub(crate) const PORT: u16 = 7471;

/// Finite, so that a silent peer is noticed (hazard P48).
pub(crate) const PARAM: ConnParam = ConnParam {
    responder_resources: 1,
    initiator_depth: 1,
    flow_control: false,
    retry_count: 5,
    rnr_retry_count: 6,
    srq: false,
    qp_num: 0,
};

pub(crate) struct Server {
    drive: Drive<SimDevice>,
    channel: ChannelKey,
    serves: Vec<Serve<Link>>,
    links: Vec<(IdKey, Link)>,
    /// The number of connections, for tests.
    open: Rc<Cell<usize>>,
}

impl Server {
    pub(crate) fn new(node: &Node) -> Self {
        Server::counted(node, Rc::default())
    }

    pub(crate) fn counted(node: &Node, open: Rc<Cell<usize>>) -> Self {
        let mut drive = node.drive();
        let channel = drive.open_channel(Acks::OnDelivery).unwrap();
        let id = drive.create_id(Some(channel), PortSpace::Tcp).unwrap();
        drive.bind(id, node.addr(PORT)).and_then(|()| drive.listen(id, 16)).unwrap();
        Server { drive, channel, serves: Vec::new(), links: Vec::new(), open }
    }

    fn take(&mut self, event: Event) {
        let event = match Incoming::new(&mut self.drive, event) {
            // An error is that of a client which has gone.
            Ok(incoming) => {
                let serve = incoming.accept(&mut self.drive, PARAM, &[], Time::NEVER, Link::attach);
                return self.serves.extend(serve);
            }
            Err(event) => event,
        };
        if let Some(at) = self.serves.iter().position(|serve| serve.id() == event.id) {
            match self.serves[at].handle(&mut self.drive, event) {
                Ok(None) => return,
                Ok(Some(connected)) => self.links.push((connected.id, connected.attached)),
                Err(_) => {}
            }
            drop(self.serves.remove(at));
        } else if event.cm() == Some(CmEvent::Disconnected) {
            self.close(event.id);
        }
    }

    fn close(&mut self, id: IdKey) {
        if let Some(at) = self.links.iter().position(|(other, _)| *other == id) {
            let (id, link) = self.links.remove(at);
            link.close(&mut self.drive, id);
        }
    }

    fn echo(link: &mut Link) -> Result<(), Failed> {
        while let Some(done) = link.next()? {
            match done {
                Done::Received(slot, number) => link.send(slot, number)?,
                // Its slot is that of the receive.
                Done::Sent(slot) => link.receive(slot)?,
            }
        }
        Ok(())
    }
}

impl Program for Server {
    fn turn(&mut self, now: Time) -> Turn {
        turn(&mut self.drive, now);
        while let Some(event) = self.drive.next_event(self.channel) {
            self.take(event);
        }
        let failed = self.links.iter_mut().filter_map(|(id, link)| Server::echo(link).is_err().then_some(*id));
        for id in failed.collect::<Vec<_>>() {
            self.close(id);
        }
        self.open.set(self.links.len());
        self.drive.next_action().into()
    }
}
