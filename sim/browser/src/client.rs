//! A client: sends numbers, one at a time, and connects again whenever its connection ends.

use std::time::Duration;

use cmid_proto::redial::{Cause, Redial, RedialLimits, Todo};
use cmid_proto::{Acks, ChannelKey, CmEvent, Drive, Event, Time};
use cmid_sim::{Node, Program, SimDevice, Turn, turn};

use crate::link::{self, Connection, Failed, LIMIT, PORT};

/// The time between two numbers.
const PAUSE: Duration = Duration::from_millis(400);

const LIMITS: RedialLimits = RedialLimits {
    handshake: LIMIT,
    backoff: Duration::from_millis(50),
    backoff_max: Duration::from_millis(400),
    attempts: u32::MAX,
    within: Duration::MAX,
};

pub(crate) struct Client {
    node: Node,
    drive: Drive<SimDevice>,
    /// It cannot be opened on a host that has had no device.
    channel: Option<ChannelKey>,
    redial: Redial,
    /// The connection, or the handshake under way.
    connection: Option<Connection>,
    /// Connections at their end.
    ending: Vec<Connection>,
    /// The last number that was sent.
    number: u64,
    send_at: Time,
}

impl Client {
    pub(crate) fn new(node: &Node) -> Self {
        // The clients do not begin at the same time.
        let begin = node.now().after(node.random_time(PAUSE));
        Client {
            node: node.clone(),
            drive: node.drive(),
            channel: None,
            redial: Redial::new(1, LIMITS, begin),
            connection: None,
            ending: Vec::new(),
            number: 0,
            send_at: Time::NEVER,
        }
    }

    fn random(&self) -> u32 {
        self.node.random(1 << 32) as u32
    }

    fn act(&mut self, todo: Todo) {
        match todo {
            Todo::Dial { .. } => self.dial(),
            Todo::Wait { until } => {
                let wait = until.since(self.drive.now());
                self.node.note(&format!("connects again in {} ms", wait.as_millis()));
            }
            Todo::Use { .. } => {
                self.node.note("is connected");
                self.send_at = self.drive.now();
            }
            Todo::Cancel => {
                if let Some(mut late) = self.connection.take() {
                    let _ = late.cancel(&mut self.drive);
                }
            }
            // Nobody calls a client, and it has no limit.
            Todo::Nothing | Todo::Accept { .. } | Todo::Reject | Todo::GiveUp(_) => {}
        }
    }

    fn dial(&mut self) {
        match self.start() {
            Ok(connection) => self.connection = Some(connection),
            Err(cause) => self.fail(cause),
        }
    }

    fn start(&mut self) -> Result<Connection, Cause> {
        // Without a device it may have one later.
        let heals = |_| Cause::Heals;
        let channel = match self.channel {
            Some(channel) => channel,
            None => *self.channel.insert(self.drive.open_channel(Acks::OnDelivery).map_err(heals)?),
        };
        let server = self.node.addr_of("server", PORT);
        Connection::connect(&mut self.drive, Some(channel), server, &link::options()).map_err(|error| Cause::of(&error))
    }

    fn fail(&mut self, cause: Cause) {
        let random = self.random();
        let todo = self.redial.failed(cause, self.drive.now(), random);
        self.act(todo);
    }

    fn take(&mut self, event: Event) {
        let is_end = matches!(event.cm(), Some(CmEvent::Disconnected | CmEvent::DeviceRemoval));
        let ours = self.connection.as_mut().filter(|it| it.id() == event.id);
        let is_ours = ours.is_some();
        let Some(connection) = ours.or_else(|| self.ending.iter_mut().find(|it| it.id() == event.id)) else { return };
        let was_open = connection.attached().is_some();
        match connection.handle(&mut self.drive, event, link::attach) {
            Ok(Some(_)) => {
                let todo = self.redial.established(self.drive.now());
                self.act(todo);
            }
            Err(error) if is_ours && !was_open => {
                self.node.note(&format!("has no connection: {error}"));
                self.connection = None;
                self.fail(Cause::of(&error));
            }
            Ok(None) | Err(_) if is_ours && was_open && is_end => self.lose(),
            Ok(None) | Err(_) => {}
        }
    }

    fn lose(&mut self) {
        self.node.note("has lost its connection");
        self.ending.extend(self.connection.take());
        self.send_at = Time::NEVER;
        let random = self.random();
        let todo = self.redial.lost(self.drive.now(), random);
        self.act(todo);
    }

    fn poll(&mut self, now: Time) {
        while let Some(arrived) = self.connection.as_mut().and_then(|it| link::poll(it, &mut self.drive)) {
            match arrived {
                Ok(_) => self.send_at = now.after(PAUSE),
                Err(Failed) => self.lose(),
            }
        }
        for connection in &mut self.ending {
            while link::poll(connection, &mut self.drive).is_some() {}
        }
        self.ending.retain(|connection| !connection.is_over());
        if let Some(connection) = self.connection.as_mut().filter(|_| self.send_at <= now) {
            self.number += 1;
            self.send_at = Time::NEVER;
            link::send(connection, self.number);
        }
    }
}

impl Program for Client {
    fn turn(&mut self, now: Time) -> Turn {
        turn(&mut self.drive, now);
        while let Some(event) = self.channel.and_then(|channel| self.drive.next_event(channel)) {
            self.take(event);
        }
        self.poll(now);
        if self.redial.timeout().is_some_and(|due| due <= now) {
            let random = self.random();
            let todo = self.redial.handle_timeout(now, random);
            self.act(todo);
        }
        match self.drive.next_action().into() {
            Turn::Wait(due) => Turn::Wait(due.into_iter().chain(self.redial.timeout()).chain([self.send_at]).min()),
            Turn::Again | Turn::Done => Turn::Again,
        }
    }
}
