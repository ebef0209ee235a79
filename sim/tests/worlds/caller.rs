//! A program that keeps one connection with its peer: it calls, is called, and pings over the connection.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use cmid_proto::handshake::{Connected, Dial, DialTo, HandshakeError, Incoming, Serve};
use cmid_proto::redial::{CROSSED, Cause, GivenUp, Redial, RedialLimits, Stage, Todo};
use cmid_proto::{Acks, ChannelKey, CmEvent, Drive, Event, IdKey, PortSpace, PrivateData, State, Time};
use cmid_sim::{Node, Program, SimDevice, Turn, turn};

use crate::link::{Done, Failed, Link, RECEIVES, SENDS};
use crate::server::{PARAM, PORT};

/// The names of the two hosts. The number of a caller is its place here.
pub(crate) const NAMES: [&str; 2] = ["a", "b"];

/// The time between two pings, and between two attempts to listen.
const TICK: Duration = Duration::from_millis(200);

/// What a program is to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Wants {
    #[default]
    Calls,
    /// It does not call, and refuses to be called.
    Refuses,
    /// It ends everything and is done.
    Stops,
}

/// What a test sees of the programs of a host, and tells them.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) wants: Cell<Wants>,
    pub(crate) is_connected: Cell<bool>,
    /// Pings that were received, and connections that were used.
    pub(crate) received: Cell<u64>,
    pub(crate) connections: Cell<u32>,
    pub(crate) given_up: Cell<Option<GivenUp>>,
}

pub(crate) struct Caller {
    number: usize,
    node: Node,
    seen: Rc<Seen>,
    drive: Drive<SimDevice>,
    channel: ChannelKey,
    listener: Option<IdKey>,
    redial: Redial,
    dial: Option<Dial<Link>>,
    serve: Option<Serve<Link>>,
    connection: Option<(IdKey, Link)>,
    next_tick: Time,
}

impl Caller {
    pub(crate) fn new(node: &Node, number: usize, limits: RedialLimits, seen: &Rc<Seen>) -> Self {
        let (mut drive, now) = (node.drive(), node.now());
        // Some calls fail.
        let channel = (0..9).find_map(|_| drive.open_channel(Acks::OnDelivery).ok()).unwrap();
        Caller {
            number,
            node: node.clone(),
            seen: Rc::clone(seen),
            drive,
            channel,
            listener: None,
            redial: Redial::new(number as u64, limits, now),
            dial: None,
            serve: None,
            connection: None,
            next_tick: now,
        }
    }

    fn listen(&mut self) {
        let Ok(id) = self.drive.create_id(Some(self.channel), PortSpace::Tcp) else { return };
        if self.drive.bind(id, self.node.addr(PORT)).and_then(|()| self.drive.listen(id, 8)).is_ok() {
            self.listener = Some(id);
        } else {
            self.destroy(id);
        }
    }

    /// If it fails, a later turn tries it again.
    fn destroy(&mut self, id: IdKey) {
        let _progress = self.drive.destroy(id, Time::NEVER);
    }

    /// Destroys what could not be destroyed.
    fn destroy_again(&mut self) {
        let (core, known) = (self.drive.core(), [self.listener, self.connection.as_ref().map(|(id, _)| *id)]);
        let has_failed = |id: &IdKey| matches!(core.state(*id), Some(State::Failed | State::Removed));
        let failed: Vec<_> = core.ids().filter(|id| has_failed(id) && !known.contains(&Some(*id))).collect();
        failed.into_iter().for_each(|id| self.destroy(id));
    }

    fn random(&self) -> u32 {
        self.node.random(1 << 32) as u32
    }

    fn take(&mut self, event: Event) {
        let event = match Incoming::new(&mut self.drive, event) {
            Ok(incoming) => return self.called(incoming),
            Err(event) => event,
        };
        let result = match (&mut self.dial, &mut self.serve) {
            (Some(dial), _) if dial.id() == event.id => dial.handle(&mut self.drive, event, Link::attach),
            (_, Some(serve)) if serve.id() == event.id => serve.handle(&mut self.drive, event),
            _ => return self.happens(&event),
        };
        match result {
            Ok(None) => {}
            Ok(Some(connected)) => {
                (self.dial, self.serve) = (None, None);
                let todo = self.redial.established(self.drive.now());
                self.does(todo, None, Some(connected));
            }
            Err(error) => {
                (self.dial, self.serve) = (None, None);
                self.failed(&error);
            }
        }
    }

    /// An event of the listener, of the connection, or of an id that is being destroyed.
    fn happens(&mut self, event: &Event) {
        if self.listener == Some(event.id) && event.cm() == Some(CmEvent::DeviceRemoval) {
            self.listener = None;
            self.destroy(event.id);
        }
        let is_end = !matches!(event.cm(), None | Some(CmEvent::AddrChange | CmEvent::Established));
        if is_end && self.connection.as_ref().is_some_and(|(id, _)| *id == event.id) {
            self.lost();
        }
    }

    fn called(&mut self, incoming: Incoming) {
        if self.seen.wants.get() != Wants::Calls {
            // The peer may have gone.
            let _ = incoming.reject(&mut self.drive, b"not wanted");
            return;
        }
        let number = incoming.private_data().first().copied().unwrap_or(u8::MAX);
        let todo = self.redial.called(number.into(), self.drive.now());
        self.does(todo, Some(incoming), None);
    }

    fn failed(&mut self, error: &HandshakeError) {
        let todo = self.redial.failed(Cause::of(error), self.drive.now(), self.random());
        self.does(todo, None, None);
    }

    fn lost(&mut self) {
        self.close();
        let todo = self.redial.lost(self.drive.now(), self.random());
        self.does(todo, None, None);
    }

    /// Does what the machine says, with the peer's call or the new connection, if it is about one.
    fn does(&mut self, todo: Todo, incoming: Option<Incoming>, connected: Option<Connected<Link>>) {
        let number = [self.number as u8];
        match (todo, incoming, connected) {
            (Todo::Nothing | Todo::Wait { .. }, None, None) => {}
            (Todo::Dial { deadline }, None, None) => {
                let peer = self.node.addr_of(NAMES[1 - self.number], PORT);
                let to = DialTo { param: PARAM, private_data: PrivateData::copy_of(&number), ..DialTo::new(peer) };
                match Dial::start(&mut self.drive, Some(self.channel), &to, deadline) {
                    Ok(dial) => self.dial = Some(dial),
                    Err(error) => self.failed(&error),
                }
            }
            (Todo::Accept { deadline, instead }, Some(incoming), None) => {
                if instead {
                    self.cancel();
                }
                assert!(self.dial.is_none() && self.serve.is_none());
                match incoming.accept(&mut self.drive, PARAM, &number, deadline, Link::attach) {
                    Ok(serve) => self.serve = Some(serve),
                    Err(error) => self.failed(&error),
                }
            }
            // The reject fails if the peer has gone.
            (Todo::Reject, Some(incoming), None) => _ = incoming.reject(&mut self.drive, CROSSED),
            (Todo::Cancel, None, None) => self.cancel(),
            (Todo::Use { instead }, None, Some(Connected { id, attached, .. })) => {
                if instead {
                    self.close();
                }
                assert!(self.connection.replace((id, attached)).is_none());
                self.seen.connections.set(self.seen.connections.get() + 1);
            }
            (Todo::GiveUp(_), None, None) => {
                self.cancel();
                self.close();
            }
            (todo, incoming, connected) => panic!("{todo:?} with {incoming:?} and {connected:?}"),
        }
    }

    fn cancel(&mut self) {
        if let Some(dial) = self.dial.take() {
            let _progress = dial.cancel(&mut self.drive);
        }
        if let Some(serve) = self.serve.take() {
            let _progress = serve.cancel(&mut self.drive);
        }
    }

    /// Ends the connection, if there is one.
    fn close(&mut self) {
        if let Some((id, link)) = self.connection.take() {
            link.close(&mut self.drive, id);
        }
    }

    /// Counts what has arrived, and pings when it is time, if few pings are under way.
    fn talk(&mut self, is_time: bool) -> Result<(), Failed> {
        let Some((_, link)) = &mut self.connection else { return Ok(()) };
        while let Some(done) = link.next()? {
            if let Done::Received(slot, _) = done {
                self.seen.received.set(self.seen.received.get() + 1);
                link.receive(slot)?;
            }
        }
        let free = (RECEIVES..RECEIVES + SENDS).find(|&slot| is_time && !link.is_busy[slot as usize]);
        free.map_or(Ok(()), |slot| link.send(slot, 0))
    }

    /// Nothing is left of it.
    fn is_empty(&mut self) -> bool {
        if self.drive.core().ids().count() > 0 {
            return false;
        }
        // It is gone, whatever the device says.
        let _ = self.drive.close_channel(self.channel);
        assert_eq!((self.drive.next_timeout(), self.drive.has_work()), (None, false));
        assert_eq!(self.redial.timeout(), None);
        true
    }
}

impl Program for Caller {
    fn turn(&mut self, now: Time) -> Turn {
        turn(&mut self.drive, now);
        while let Some(event) = self.drive.next_event(self.channel) {
            self.take(event);
        }
        self.drive.core().check();
        self.destroy_again();
        // The listener, the calls of both sides, a connection and its successor, and ids that are being destroyed.
        assert!(self.drive.core().ids().count() <= 16, "ids are left: {:?}", self.drive.core());
        let todo = self.redial.handle_timeout(now, self.random());
        self.does(todo, None, None);
        if self.seen.wants.get() != Wants::Calls && self.redial.given_up().is_none() {
            let todo = self.redial.stop();
            self.does(todo, None, None);
        }
        let is_time = self.next_tick <= now;
        if is_time {
            self.next_tick = now.after(TICK);
        }
        if self.talk(is_time).is_err() {
            self.lost();
        }
        self.seen.is_connected.set(self.redial.stage() == Stage::Connected);
        self.seen.given_up.set(self.redial.given_up());
        if self.seen.wants.get() == Wants::Stops {
            if let Some(listener) = self.listener.take() {
                self.destroy(listener);
            }
            if self.is_empty() {
                return Turn::Done;
            }
        } else if self.listener.is_none() && is_time {
            self.listen();
        }
        match self.drive.next_action().into() {
            Turn::Wait(due) => Turn::Wait(due.into_iter().chain(self.redial.timeout()).chain([self.next_tick]).min()),
            Turn::Again | Turn::Done => Turn::Again,
        }
    }
}
