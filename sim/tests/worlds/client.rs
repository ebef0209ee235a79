//! The client: sends numbers, several at a time, and gets each of them back. It connects again after a failure. It can be
//! told to make one of the mistakes that programs make.

use std::net::SocketAddr;
use std::time::Duration;

use cmid_proto::handshake::{Dial, DialTo};
use cmid_proto::{Acks, ChannelKey, CmEvent, Drive, Event, IdKey, Time};
use cmid_sim::{Fault, Node, Program, SimDevice, Turn, turn};

use crate::link::{Done, Failed, Link, RECEIVES, SENDS};
use crate::server::{PARAM, PORT};

/// How long the client waits for a number, and for a connection.
const PATIENCE: Duration = Duration::from_millis(100);

/// The time between two attempts to connect.
const BACKOFF: Duration = Duration::from_millis(50);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mistake {
    None,
    /// It sends from one buffer, whether its last send has completed or not.
    ReusesBuffer,
    /// It forgets a connection that does not answer, instead of ending it.
    ForgetsConnection,
    /// Once connected it waits for completions only: it reads no events and has no deadline.
    IgnoresEvents,
    /// It connects again at once after a failure.
    Storms,
}

pub(crate) struct Client {
    drive: Drive<SimDevice>,
    channel: ChannelKey,
    node: Node,
    server: SocketAddr,
    mistake: Mistake,
    patience: Duration,
    dial: Option<Dial<Link>>,
    link: Option<(IdKey, Link)>,
    forgotten: Vec<Link>,
    /// When it connects again.
    again: Time,
    /// When it gives up the connection.
    deadline: Time,
    /// The last number that was sent, and the last that came back.
    sent: u64,
    back: u64,
    goal: u64,
}

impl Client {
    /// Sends the numbers from 1 to `goal`; with 0 it connects once, however long that takes.
    pub(crate) fn new(node: &Node, goal: u64, mistake: Mistake) -> Self {
        let mut drive = node.drive();
        let channel = drive.open_channel(Acks::OnDelivery).unwrap();
        Client {
            drive,
            channel,
            node: node.clone(),
            server: node.addr_of("server", PORT),
            mistake,
            patience: if goal == 0 { Duration::MAX } else { PATIENCE },
            dial: None,
            link: None,
            forgotten: Vec::new(),
            again: node.now().after(node.random_time(BACKOFF)),
            deadline: Time::NEVER,
            sent: 0,
            back: 0,
            goal,
        }
    }

    fn connect(&mut self, now: Time) {
        match Dial::start(&mut self.drive, Some(self.channel), &to(self.server), now.after(self.patience)) {
            Ok(dial) => self.dial = Some(dial),
            Err(_) => self.wait_to_connect(now),
        }
    }

    fn wait_to_connect(&mut self, now: Time) {
        let backoff = BACKOFF + self.node.random_time(BACKOFF);
        self.again = if self.mistake == Mistake::Storms { now } else { now.after(backoff) };
        self.deadline = Time::NEVER;
    }

    fn take(&mut self, event: Event, now: Time) {
        if let Some(dial) = self.dial.as_mut().filter(|dial| dial.id() == event.id) {
            match dial.handle(&mut self.drive, event, Link::attach) {
                Ok(None) => {}
                Ok(Some(connected)) => {
                    self.dial = None;
                    self.link = Some((connected.id, connected.attached));
                    self.sent = self.back;
                    self.wait_for_answer(now);
                }
                Err(_) => {
                    self.dial = None;
                    self.wait_to_connect(now);
                }
            }
        } else if event.cm() == Some(CmEvent::Disconnected) && self.mistake != Mistake::IgnoresEvents {
            self.lose(now);
        }
    }

    fn wait_for_answer(&mut self, now: Time) {
        self.deadline = if self.mistake == Mistake::IgnoresEvents { Time::NEVER } else { now.after(self.patience) };
    }

    fn lose(&mut self, now: Time) {
        let Some((id, link)) = self.link.take() else { return };
        if self.mistake == Mistake::ForgetsConnection {
            self.forgotten.push(link);
        } else {
            link.close(&mut self.drive, id);
        }
        self.wait_to_connect(now);
    }

    /// Sends what there is room for, and takes what has come back.
    fn talk(&mut self, now: Time) -> Result<(), Failed> {
        let Some((_, link)) = &mut self.link else { return Ok(()) };
        while let Some(done) = link.next()? {
            if let Done::Received(slot, number) = done {
                assert_eq!(number, self.back + 1, "another number than the one that was sent has come back");
                self.back = number;
                link.receive(slot)?;
                self.deadline = self.deadline.max(now.after(self.patience));
            }
        }
        while self.sent < self.goal.min(self.back + SENDS) {
            let free = RECEIVES + self.sent % SENDS;
            let slot = if self.mistake == Mistake::ReusesBuffer { RECEIVES } else { free };
            if self.mistake != Mistake::ReusesBuffer && link.is_busy[slot as usize] {
                break;
            }
            self.sent += 1;
            link.send(slot, self.sent)?;
        }
        Ok(())
    }
}

/// The faults that the programs outlive: they expect a device and memory.
pub(crate) fn outlived() -> Vec<Fault> {
    Fault::ALL.into_iter().filter(|it| !matches!(it, Fault::DeviceRemoval | Fault::OutOfMemory)).collect()
}

fn to(server: SocketAddr) -> DialTo {
    DialTo { param: PARAM, ..DialTo::new(server) }
}

impl Program for Client {
    fn turn(&mut self, now: Time) -> Turn {
        turn(&mut self.drive, now);
        while let Some(event) = self.drive.next_event(self.channel) {
            self.take(event, now);
        }
        if self.talk(now).is_err() || self.deadline <= now {
            self.lose(now);
        }
        if self.back == self.goal && (self.goal > 0 || self.link.is_some()) {
            if let Some((id, link)) = self.link.take() {
                link.close(&mut self.drive, id);
            }
            return Turn::Done;
        }
        if self.link.is_none() && self.dial.is_none() && self.again <= now {
            self.connect(now);
        }
        let retry = (self.link.is_none() && self.dial.is_none()).then_some(self.again);
        match self.drive.next_action().into() {
            Turn::Wait(due) => Turn::Wait(due.into_iter().chain(retry).chain([self.deadline]).min()),
            Turn::Again | Turn::Done => Turn::Again,
        }
    }
}
