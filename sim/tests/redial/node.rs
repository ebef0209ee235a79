//! A program that keeps one connection with its peer: it calls, is called, and pings over the connection.

use std::time::Duration;

use cmid_proto::datapath::prelude::*;
use cmid_proto::datapath::{Access, Attaching, Caps, CreateError, SendWr, WcOpcode};
use cmid_proto::handshake::{Connected, Dial, DialTo, HandshakeError, Incoming, Serve};
use cmid_proto::redial::{CROSSED, Cause, GivenUp, Redial, RedialLimits, Stage, Todo};
use cmid_proto::{
    Acks, ChannelKey, CmEvent, ConnParam, Drive, Error, Event, IdKey, Limits, Next, PortSpace, PrivateData, Time,
};
use cmid_sim::{Cq, Host, Mr, Pd, Qp, SimDevice};

use crate::addr;
use crate::worlds::Numbers;

/// The time between two pings, and between two attempts to listen.
const TICK: Duration = Duration::from_millis(200);
const RECVS: usize = 16;

/// Finite, so that a silent peer is noticed (hazard P48).
const PARAM: ConnParam = ConnParam {
    responder_resources: 1,
    initiator_depth: 1,
    flow_control: false,
    retry_count: 5,
    rnr_retry_count: 6,
    srq: false,
    qp_num: 0,
};

/// The data path of a connection.
#[derive(Debug)]
struct Link {
    // Dropped in this order.
    qp: Qp,
    cq: Cq,
    mr: Mr,
    _pd: Pd,
    in_flight: usize,
}

impl Link {
    fn attach(device: &mut SimDevice, to: Attaching<'_>) -> Result<Link, CreateError> {
        let pd = device.alloc_pd(to.id())?;
        let cq = device.create_cq(to.id(), 64)?;
        let mr = pd.register(vec![0; 8 * (RECVS + 1)], Access::LOCAL_WRITE)?;
        let caps = Caps { max_send_wr: 8, max_recv_wr: RECVS as u32, ..Caps::default() };
        let qp = device.create_qp(to, &pd, &cq, &cq, caps)?;
        let mut link = Link { qp, cq, mr, _pd: pd, in_flight: 0 };
        for slot in 0..RECVS {
            link.receive(slot).map_err(|error| error.errno())?;
        }
        Ok(link)
    }

    fn receive(&mut self, slot: usize) -> Result<(), cmid_proto::datapath::PostError> {
        self.qp.post_recv(slot as u64, self.mr.sge(slot * 8..slot * 8 + 8))
    }

    /// Sends a ping, if few are under way. Returns false if the connection has failed.
    fn ping(&mut self) -> bool {
        if self.in_flight == 4 {
            return true;
        }
        self.in_flight += 1;
        self.qp.post_send(SendWr::send(0, self.mr.sge(RECVS * 8..RECVS * 8 + 8))).is_ok()
    }

    /// Polls. Returns the number of received pings; `None` if the connection has failed.
    fn poll(&mut self) -> Option<u64> {
        let mut received = 0;
        while let Some(completion) = self.cq.poll_one().unwrap() {
            if !completion.is_success() {
                return None;
            }
            if completion.opcode == WcOpcode::RECV {
                received += 1;
                self.receive(completion.wr_id as usize).ok()?;
            } else {
                self.in_flight -= 1;
            }
        }
        Some(received)
    }
}

fn attach(drive: &mut Drive<SimDevice>, id: IdKey) -> Result<Link, Error> {
    drive.attach_qp(id, Link::attach)
}

#[derive(Debug)]
pub(crate) struct Node {
    at: usize,
    drive: Drive<SimDevice>,
    channel: ChannelKey,
    listener: Option<IdKey>,
    redial: Redial,
    dial: Option<Dial<Link>>,
    serve: Option<Serve<Link>>,
    connection: Option<(IdKey, Link)>,
    refuses: bool,
    next_tick: Time,
    numbers: u64,
    /// Pings that were received, and connections that were used.
    pub(crate) received: u64,
    pub(crate) connections: u32,
}

impl Node {
    pub(crate) fn start(host: &Host, now: Time, at: usize, limits: RedialLimits) -> Self {
        let mut drive = Drive::new(host.device(), Limits::SINGLE);
        drive.set_now(now);
        let channel = drive.open_channel(Acks::OnDelivery).unwrap();
        let mut node = Node {
            at,
            drive,
            channel,
            listener: None,
            redial: Redial::new(at as u64, limits, now),
            dial: None,
            serve: None,
            connection: None,
            refuses: false,
            next_tick: now,
            numbers: now.0 + at as u64,
            received: 0,
            connections: 0,
        };
        node.listen();
        node
    }

    pub(crate) fn stage(&self) -> Stage {
        self.redial.stage()
    }

    pub(crate) fn given_up(&self) -> Option<GivenUp> {
        self.redial.given_up()
    }

    /// From now on it does not call, and refuses to be called.
    pub(crate) fn refuses(&mut self) {
        let todo = self.redial.stop();
        self.does(todo, None, None);
        self.refuses = true;
    }

    pub(crate) fn stop(&mut self) {
        let todo = self.redial.stop();
        self.does(todo, None, None);
        if let Some(listener) = self.listener.take() {
            let _progress = self.drive.destroy(listener, Time::NEVER).unwrap();
        }
    }

    /// Nothing is left of it.
    pub(crate) fn is_empty(&mut self) {
        let core = self.drive.core();
        assert_eq!(core.ids().count(), 0, "left: {core:?}");
        self.drive.close_channel(self.channel).unwrap();
        assert_eq!((self.drive.next_timeout(), self.drive.has_work()), (None, false));
        assert_eq!(self.redial.timeout(), None);
    }

    /// The next time that it waits for.
    pub(crate) fn next(&self, now: Time) -> Option<Time> {
        let tick = self.redial.given_up().is_none().then_some(self.next_tick);
        let due = self.redial.timeout().into_iter().chain(self.drive.next_timeout()).chain(tick).min();
        due.filter(|&due| due > now)
    }

    fn listen(&mut self) {
        let Ok(id) = self.drive.create_id(Some(self.channel), PortSpace::Tcp) else { return };
        if self.drive.bind(id, addr(self.at)).and_then(|()| self.drive.listen(id, 8)).is_ok() {
            self.listener = Some(id);
        } else {
            let _progress = self.drive.destroy(id, Time::NEVER).unwrap();
        }
    }

    /// Handles what has happened. Returns whether anything has.
    pub(crate) fn turn(&mut self, now: Time) -> bool {
        self.drive.set_now(now);
        self.drive.readable_all();
        let mut is_busy = self.drive.run(64) == Next::Again;
        while let Some(event) = self.drive.next_event(self.channel) {
            is_busy = true;
            self.take(event);
        }
        self.drive.core().check();
        // The listener, the calls of both sides, a connection and its successor, and ids that are being destroyed.
        assert!(self.drive.core().ids().count() <= 16, "ids are left: {:?}", self.drive.core());
        match self.connection.as_mut().map(|(_, link)| link.poll()) {
            Some(None) => self.lost(),
            Some(Some(received)) => self.received += received,
            None => {}
        }
        let random = self.random();
        let todo = self.redial.handle_timeout(now, random);
        self.does(todo, None, None);
        if self.next_tick <= now && self.redial.given_up().is_none() {
            self.next_tick = now.after(TICK);
            if self.listener.is_none() {
                self.listen();
            }
            if self.connection.as_mut().is_some_and(|(_, link)| !link.ping()) {
                self.lost();
            }
        }
        is_busy
    }

    fn random(&mut self) -> u32 {
        let mut numbers = Numbers(self.numbers);
        let random = numbers.next() as u32;
        self.numbers = numbers.0;
        random
    }

    fn take(&mut self, event: Event) {
        let event = match Incoming::new(&mut self.drive, event) {
            Ok(incoming) => return self.called(incoming),
            Err(event) => event,
        };
        let result = match (&mut self.dial, &mut self.serve) {
            (Some(dial), _) if dial.id() == event.id => dial.handle(&mut self.drive, event, attach),
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
            let _progress = self.drive.destroy(event.id, Time::NEVER).unwrap();
        }
        let is_end = !matches!(event.cm(), None | Some(CmEvent::AddrChange | CmEvent::Established));
        if is_end && self.connection.as_ref().is_some_and(|(id, _)| *id == event.id) {
            self.lost();
        }
    }

    fn called(&mut self, incoming: Incoming) {
        if self.refuses {
            // The peer may have gone.
            let _ = incoming.reject(&mut self.drive, b"not wanted");
            return;
        }
        let number = incoming.private_data().first().copied().unwrap_or(u8::MAX);
        let todo = self.redial.called(number.into(), self.drive.now());
        self.does(todo, Some(incoming), None);
    }

    fn failed(&mut self, error: &HandshakeError) {
        let random = self.random();
        let todo = self.redial.failed(Cause::of(error), self.drive.now(), random);
        self.does(todo, None, None);
    }

    fn lost(&mut self) {
        self.close();
        let random = self.random();
        let todo = self.redial.lost(self.drive.now(), random);
        self.does(todo, None, None);
    }

    /// Does what the machine says, with the peer's call or the new connection, if it is about one.
    fn does(&mut self, todo: Todo, incoming: Option<Incoming>, connected: Option<Connected<Link>>) {
        let number = [self.at as u8];
        match (todo, incoming, connected) {
            (Todo::Nothing | Todo::Wait { .. }, None, None) => {}
            (Todo::Dial { deadline }, None, None) => {
                let private_data = PrivateData::copy_of(&number);
                let to = DialTo { param: PARAM, private_data, ..DialTo::new(addr(1 - self.at)) };
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
                match incoming.accept(&mut self.drive, PARAM, &number, deadline, attach) {
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
                self.connections += 1;
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
            let _progress = dial.cancel(&mut self.drive).unwrap();
        }
        if let Some(serve) = self.serve.take() {
            let _progress = serve.cancel(&mut self.drive).unwrap();
        }
    }

    /// Ends the connection, if there is one.
    fn close(&mut self) {
        let Some((id, link)) = self.connection.take() else { return };
        // It fails if the connection or its device is gone.
        let _ = self.drive.disconnect(id, Time::NEVER);
        let _ = self.drive.detach_qp(id, |device, id| device.destroy_qp(id));
        drop(link);
        let _progress = self.drive.destroy(id, Time::NEVER).unwrap();
    }
}
