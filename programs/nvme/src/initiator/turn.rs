//! The turns of the loop: events, completions, deadlines, and what is sent next.

use std::time::Duration;

use cmid_mio::proto::datapath::DataPath;
use cmid_mio::proto::handshake::{Options, Session};
use cmid_mio::proto::redial::Todo as RedialTodo;
use cmid_mio::proto::{ConnParam, Event, Next, Time};
use mio::Token;

use super::buffer::Buffer;
use super::lane::Lane;
use super::link::{Link, Over, Shape};
use super::reactor::Reactor;
use super::request::{Request, Tag, TagOf};
use super::{BRING_UP, BufferOf, Ended, Failure, Happened, Initiator, Loss, RETRIES};
use crate::controller::{ADMIN_SIZE, Controller, Todo};
use crate::wire::{
    AsyncEvent, CmReply, CmRequest, Command, ConnectData, LogPage, Transfer, async_event, get_log_page, keep_alive,
};

/// How often deadlines of commands are looked at.
pub(super) const LOOK: Duration = Duration::from_millis(100);

/// The bytes of a slot of the admin queue: what Identify returns.
const ADMIN_TRANSFER: usize = 4096;

/// The most bytes of data that a capsule has room for, whatever the controller takes.
const CAPSULE_MAX: usize = 16 << 10;

/// The slots of the admin queue that requests of the application leave for those of the initiator.
const KEPT: usize = 4;

/// With 7, soft-RoCE repeats for ever (hazard P48): a target without power would not be noticed.
const RETRY_COUNT: u8 = 6;

impl<D: DataPath> Initiator<D> {
    /// Sends what was submitted, and returns the timeout of the next poll, at most `at_most`.
    pub fn before_poll(&mut self, at_most: Duration) -> Duration {
        let now = self.driver.drive().within(Duration::ZERO);
        self.dispatch(now);
        self.reactors.iter_mut().for_each(Reactor::wake);
        let has_news = !self.ended.is_empty() || !self.happened.is_empty();
        if has_news || self.lanes.iter().any(|lane| lane.is_readable) {
            return Duration::ZERO;
        }
        let look = if self.controller.is_some() { self.look } else { Time::NEVER };
        let due = [self.redial.timeout().unwrap_or(Time::NEVER), self.wake.unwrap_or(Time::NEVER), self.alive, look];
        let due = due.into_iter().fold(now.after(at_most), Time::min);
        self.driver.timeout(Some(due.since(now))).unwrap_or(at_most)
    }

    /// Handles an event of the poll. Returns false if it is not the initiator's.
    pub fn handle(&mut self, event: &mio::event::Event) -> bool {
        let Token(token) = event.token();
        match self.lanes.iter_mut().find(|lane| lane.token.0 == token) {
            Some(lane) => {
                lane.is_readable = true;
                true
            }
            None => self.driver.handle(event),
        }
    }

    /// Does what is due, without waiting. Then take what has ended and what has happened. What waits is sent before the next poll.
    pub fn turn(&mut self) {
        for at in 0..self.lanes.len() {
            self.take_completions(at);
        }
        self.take_news();
        while let Next::Deliver | Next::Again = self.driver.turn() {
            while let Some(event) = self.driver.drive().next_event(self.channel) {
                self.take_event(event);
            }
        }
        let now = self.driver.drive().now();
        self.pass_time(now);
    }

    fn pass_time(&mut self, now: Time) {
        if self.redial.timeout().is_some_and(|due| now >= due) {
            match self.redial.handle_timeout(now, fastrand::u32(..)) {
                RedialTodo::Dial { .. } => self.begin(),
                RedialTodo::Cancel => self.late(None),
                RedialTodo::GiveUp(rule) => self.late(Some(rule)),
                // The peer never calls.
                RedialTodo::Nothing
                | RedialTodo::Wait { .. }
                | RedialTodo::Accept { .. }
                | RedialTodo::Reject
                | RedialTodo::Use { .. } => {}
            }
        }
        if self.wake.is_some_and(|due| now >= due) {
            self.wake = None;
            if let Some(controller) = &mut self.controller {
                let todo = controller.woken();
                self.step(todo.map_err(Loss::from));
            }
        }
        if now >= self.alive {
            self.alive = now.after(self.options.settings.keep_alive / 2);
            // Another one behind one that waits for room would tell the target no more.
            let waits = |lane: &Lane<D>| lane.waiting.iter().any(|(tag, _)| matches!(tag, Tag::KeepAlive(_)));
            if !self.lanes.first().is_some_and(waits) {
                self.send(0, Tag::KeepAlive(own(keep_alive())));
            }
        }
        if now >= self.look {
            self.look = now.after(LOOK);
            self.look_at_deadlines(now);
        }
    }

    fn look_at_deadlines(&mut self, now: Time) {
        let late = |lane: &mut Lane<D>| Some((lane.qid, matches!(lane.overdue(now)?, Tag::KeepAlive(_))));
        match self.lanes.iter_mut().find_map(late) {
            Some((_, true)) => self.lose(Loss::KeepAlive(self.options.settings.keep_alive)),
            Some((qid, false)) => self.lose(Loss::Unanswered { qid, limit: self.options.timeout }),
            None => {}
        }
    }

    /// Begins an attempt.
    fn begin(&mut self) {
        let (controller, todo) = Controller::new(self.options.settings.clone());
        self.controller = Some(controller);
        self.step(Ok(todo));
    }

    /// Does the next step of bringing the controller up.
    pub(super) fn step(&mut self, todo: Result<Todo, Loss>) {
        match todo {
            Ok(Todo::Dial(request)) => self.dial(request),
            Ok(Todo::Send { qid, command }) => self.send(qid.into(), Tag::Step(own(command))),
            Ok(Todo::Wait(until)) => self.wake = Some(until),
            Ok(Todo::Live) => self.live(),
            Err(loss) => self.lose(loss),
        }
    }

    fn live(&mut self) {
        let now = self.driver.drive().within(Duration::ZERO);
        self.has_been_live = true;
        // It says that the connection is the one to use.
        let _ = self.redial.established(now);
        let keep_alive = self.options.settings.keep_alive;
        self.alive = if keep_alive.is_zero() { Time::NEVER } else { now.after(keep_alive / 2) };
        self.tell(Happened::Live);
        self.make_blocks();
        match self.hand_over() {
            Ok(()) => self.send(0, Tag::Event(own(async_event()))),
            Err(loss) => self.lose(loss),
        }
    }

    /// Makes the blocks of [`Initiator::buffer`]. Without memory for them, the data is copied.
    fn make_blocks(&mut self) {
        let (count, len) = (self.options.buffers, self.transfer_max());
        let lends = self.lanes.iter_mut().any(|lane| lane.link().is_some_and(|link| link.lends()));
        if let Some(Err(error)) = self.memory.as_mut().map(|memory| memory.make_blocks(count, len, lends)) {
            self.tell(Happened::NoBlocks(error));
        }
    }

    fn dial(&mut self, request: CmRequest) {
        let (addr, qid) = (self.options.addr, request.qid);
        let options = Options {
            param: ConnParam { retry_count: RETRY_COUNT, ..ConnParam::default() },
            private_data: &request.encode(),
            timeout: BRING_UP.saturating_add(self.options.timeout),
            deadline: self.redial.timeout().unwrap_or(Time::NEVER),
            ..Options::default()
        };
        // The controller grants no more queues than were asked for, and so many lanes there are.
        let Some(lane) = self.lanes.get_mut(usize::from(qid)) else { return };
        match Session::connect(self.driver.drive(), Some(self.channel), addr, &options) {
            Ok(session) => (lane.session, lane.asked) = (Some(session), Some(request)),
            Err(error) => self.lose(Loss::of_handshake(qid, error)),
        }
    }

    /// The most bytes of a command on a queue.
    fn longest(&self, qid: u16) -> usize {
        match &self.controller {
            Some(controller) if qid > 0 => controller.transfer_max(self.options.transfer).max(ConnectData::LEN),
            _ => ADMIN_TRANSFER,
        }
    }

    /// The sizes of a queue that is dialled.
    fn shape(&self, request: CmRequest) -> Shape {
        let identity = self.controller.as_ref().and_then(Controller::identity);
        match identity {
            Some(identity) if request.qid > 0 => Shape {
                size: request.size,
                transfer: self.longest(request.qid),
                in_capsule: identity.data_in_capsule().min(CAPSULE_MAX),
                lends: self.options.buffers > 0,
            },
            _ => Shape { size: ADMIN_SIZE, transfer: self.longest(0), in_capsule: 0, lends: false },
        }
    }

    fn take_event(&mut self, event: Event) {
        let Some(at) = self.lanes.iter().position(|lane| lane.has(event.id)) else { return };
        let Some(lane) = self.lanes.get_mut(at) else { return };
        let qid = lane.qid;
        let Some(request) = lane.asked else {
            if let Some(loss) = Loss::of_event(qid, &event) {
                self.lose(loss);
            }
            return;
        };
        let shape = self.shape(request);
        let (drive, memory) = (self.driver.drive(), &mut self.memory);
        let Some(lane) = self.lanes.get_mut(at) else { return };
        let Some(session) = &mut lane.session else { return };
        let connected = match session.handle(drive, event, |device, to| Link::attach(device, to, shape, memory)) {
            Ok(None) => return,
            Ok(Some(connected)) => connected,
            Err(error) => return self.lose(Loss::of_handshake(qid, error)),
        };
        let reply = CmReply::decode(&connected.private_data);
        if let Ok(reply) = reply {
            connected.attached.limit(Controller::size(request, reply));
        }
        lane.asked = None;
        if let Err(error) = lane.watch(&self.registry) {
            return self.lose(error.into());
        }
        match (reply, &mut self.controller) {
            (Err(error), _) => self.lose(Loss::Accepted { qid, error }),
            (Ok(reply), Some(controller)) => {
                let todo = controller.connected(reply);
                self.step(todo.map_err(Loss::from));
            }
            (Ok(_), None) => {}
        }
    }

    fn take_completions(&mut self, at: usize) {
        let Some(lane) = self.lanes.get_mut(at).filter(|lane| lane.is_readable) else { return };
        let mut over = std::mem::take(&mut self.over);
        let polled = lane.serve(&mut over);
        // What has ended before an error has ended.
        over.drain(..).for_each(|over| self.take_over(over));
        self.over = over;
        if let Err(loss) = polled {
            self.lose(loss);
        }
    }

    pub(super) fn take_over(&mut self, over: Over<D::Piece>) {
        let Over { tag, response } = over;
        match tag {
            Tag::Step(command) => {
                let now = self.driver.drive().within(Duration::ZERO);
                if let Some(controller) = &mut self.controller {
                    let data: &[u8] = if let Transfer::In(data) = &command.transfer { data } else { &[] };
                    let todo = controller.answered(response, data, now);
                    self.step(todo.map_err(Loss::from));
                }
            }
            // A controller that answers is alive, whatever it says.
            Tag::KeepAlive(_) => {}
            Tag::Event(_) if response.status.is_success() => {
                let event = AsyncEvent::of(response.result);
                self.tell(Happened::Event(event));
                // Reading the page ends the event.
                let len = ADMIN_TRANSFER as u32;
                self.send(0, Tag::EventLog(own(get_log_page(LogPage(event.log_page), 0, len))));
            }
            // The controller takes none, or it is being shut down.
            Tag::Event(_) => {}
            Tag::EventLog(_) => self.send(0, Tag::Event(own(async_event()))),
            Tag::Request(mut request) => {
                let is_lost = request.restore();
                let is_last = request.failures >= RETRIES;
                let result = match response.status {
                    // A call of the device has failed: without its data a read is not done.
                    status if status.is_success() && is_lost => {
                        is_last.then(|| Err(Failure::Lost(request.failures + 1)))
                    }
                    status if status.is_success() => Some(Ok(response.result)),
                    status => (is_last || status.is_final()).then_some(Err(Failure::Status(status))),
                };
                if let Some(result) = result {
                    self.ended.push_back(Ended { ticket: request.ticket, command: request.command, result });
                } else {
                    request.failures += 1;
                    self.waiting_of(request.on).push_back(request);
                }
            }
        }
    }

    /// Sends a command that the initiator needs. There is room for it: the admin queue keeps some.
    fn send(&mut self, at: usize, tag: TagOf<D>) {
        let deadline = match tag {
            Tag::Event(_) => Time::NEVER,
            Tag::KeepAlive(_) => self.driver.drive().within(self.options.settings.keep_alive),
            Tag::Step(_) | Tag::EventLog(_) | Tag::Request(_) => self.driver.drive().within(self.options.timeout),
        };
        if let Some(Err(loss)) = self.lanes.get_mut(at).map(|lane| lane.send(tag, deadline)) {
            self.lose(loss);
        }
    }

    /// Sends what waits, as far as there is room.
    fn dispatch(&mut self, now: Time) {
        if (self.waiting_admin.is_empty() && self.waiting.is_empty()) || self.controller().is_none() {
            return;
        }
        let deadline = now.after(self.options.timeout);
        while self.lanes.first_mut().is_some_and(|lane| lane.room() > KEPT) {
            let Some(request) = self.waiting_admin.pop_front() else { break };
            if !self.try_send(0, request, deadline) {
                return;
            }
        }
        if self.controller().is_some_and(|controller| controller.queues() == 0) {
            for Request { ticket, command, .. } in std::mem::take(&mut self.waiting) {
                let result = Err(Failure::GivenUp("it has no I/O queues".to_owned()));
                self.ended.push_back(Ended { ticket, command, result });
            }
        }
        let queues = self.lanes.len() - 1;
        while let Some(request) = self.waiting.pop_front() {
            let from = self.next_lane;
            let lane = (0..queues)
                .map(|step| 1 + (from + step) % queues)
                .find(|&at| self.lanes.get_mut(at).is_some_and(|lane| lane.room() > 0));
            let Some(at) = lane else {
                self.waiting.push_front(request);
                return;
            };
            self.next_lane = at % queues;
            if !self.try_send(at, request, deadline) {
                return;
            }
        }
    }

    /// Sends a request. Returns false if the connection is lost. One that is too long ends here, so that no other one is lost with it.
    fn try_send(&mut self, at: usize, request: Request<BufferOf<D>>, deadline: Time) -> bool {
        let (len, max) = (request.command.transfer.buffer().map_or(0, |data| data.len()), self.longest(at as u16));
        if len > max {
            let Request { ticket, command, .. } = request;
            self.ended.push_back(Ended { ticket, command, result: Err(Failure::TooLong { len, max }) });
            return true;
        }
        let sent = match self.lanes.get_mut(at) {
            Some(lane) if lane.away.is_none() => lane.send(Tag::Request(request), deadline),
            _ => self.give(at as u16, request, deadline),
        };
        sent.map_err(|loss| self.lose(loss)).is_ok()
    }
}

/// A command of the initiator's own, whose data is copied.
fn own<P>(command: Command) -> Command<Buffer<P>> {
    command.map(Buffer::from)
}
