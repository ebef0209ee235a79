//! Reactors: threads that serve I/O queues whose connections the initiator has established.
//!
//! When the controller is live, nothing is outstanding on its I/O queues. Then each one goes to a reactor: the id is released and
//! adopted (docs/migration.md), its QP and memory move as they are. The initiator has no access to them any more: it sends commands,
//! and is told what has ended. If one queue is lost, it has all of them ended, and waits until they are: what was outstanding comes back
//! to it, and is sent again on the next connections only.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use cmid_mio::proto::datapath::DataPath;
use cmid_mio::proto::handshake::ReleasedSession;
use cmid_mio::proto::{Acks, ChannelKey, Limits, Next, Time};
use cmid_mio::{Config, Mio, Waker};
use mio::{Events, Poll, Token};

use super::buffer::Buffer;
use super::lane::Lane;
use super::link::{Link, Over};
use super::request::{Tag, TagOf};
use super::turn::LOOK;
use super::{CHANNELS, Loss};

/// The longest poll. Commands, completions, events and deadlines end it earlier.
const POLL: Duration = Duration::from_secs(1);

/// What a reactor is to do, in this order.
pub(super) enum Command<D: DataPath> {
    /// Serve a queue, on which nothing is outstanding.
    Serve { qid: u16, released: Box<ReleasedSession<Link<D>, D::Handle>> },
    /// Send a command on a queue, by this deadline.
    Send { qid: u16, tag: TagOf<D>, deadline: Time },
    /// End all queues, and answer with [`News::Ended`].
    End,
}

/// What a reactor tells the initiator. There is at most one for each command that is outstanding, one loss, and one end.
pub(super) enum News<P> {
    /// A command of a queue is over.
    Over(u16, Over<P>),
    /// A queue is lost. Until [`Command::End`], the reactor only keeps what it is sent.
    Lost(Loss),
    /// All queues have ended. These commands were outstanding.
    Ended(Vec<Tag<Buffer<P>>>),
}

/// The initiator's side of a reactor.
pub(super) struct Reactor<D: DataPath> {
    commands: Sender<Command<D>>,
    pub(super) news: Receiver<News<D::Piece>>,
    waker: Waker,
    /// Whether it got commands since it was last woken.
    has_commands: bool,
    thread: JoinHandle<()>,
}

impl<D: DataPath + 'static> Reactor<D> {
    /// Starts a thread for queues of up to this number, whose commands have this time limit. `initiator` is woken when there is news.
    pub(super) fn start(device: D, queues: u16, limit: Duration, initiator: Waker) -> io::Result<Self> {
        let (poll, first) = (Poll::new()?, usize::from(queues) + 1);
        let config = Config { limits: Limits::default(), tokens: first..first + CHANNELS };
        let mut driver = Mio::new(device, poll.registry(), config)?;
        let (waker, on) = (driver.waker()?, driver.drive().open_channel(Acks::OnDelivery)?);
        let ((commands, receiver), (sender, news)) = (channel(), channel());
        let serving = Serving {
            poll,
            driver,
            channel: on,
            lanes: Vec::new(),
            over: Vec::new(),
            limit,
            look: Time::NEVER,
            is_lost: false,
            commands: receiver,
            news: sender,
            initiator,
            has_news: false,
        };
        let thread = std::thread::Builder::new().name("nvme reactor".to_owned()).spawn(move || serving.run())?;
        Ok(Reactor { commands, news, waker, has_commands: false, thread })
    }
}

impl<D: DataPath> Reactor<D> {
    /// Gives it a command, for which it is woken later. Returns the command if the thread has ended.
    pub(super) fn give(&mut self, command: Command<D>) -> Result<(), Command<D>> {
        self.has_commands = true;
        self.commands.send(command).map_err(|refused| refused.0)
    }

    /// Wakes it if it has commands.
    pub(super) fn wake(&mut self) {
        if std::mem::take(&mut self.has_commands) {
            self.waker.wake();
        }
    }

    /// Waits until its thread has ended.
    pub(super) fn stop(self) {
        drop(self.commands);
        self.waker.wake();
        // It has panicked at its end.
        let _ = self.thread.join();
    }
}

/// The thread's side.
struct Serving<D: DataPath> {
    poll: Poll,
    driver: Mio<D>,
    channel: ChannelKey,
    lanes: Vec<Lane<D>>,
    /// What is over, and is told next.
    over: Vec<Over<D::Piece>>,
    /// The time limit of a command, for the message.
    limit: Duration,
    /// When deadlines are looked at next.
    look: Time,
    is_lost: bool,
    commands: Receiver<Command<D>>,
    news: Sender<News<D::Piece>>,
    initiator: Waker,
    has_news: bool,
}

impl<D: DataPath> Serving<D> {
    /// Serves until the initiator has gone.
    fn run(mut self) {
        let mut events = Events::with_capacity(256);
        loop {
            match catch_unwind(AssertUnwindSafe(|| self.take_commands() && self.turn())) {
                Ok(true) => {}
                Ok(false) => break,
                // A panic is an error of this crate or of the device. The commands are still in the lanes or in `over`.
                Err(_) => {
                    self.tell_over(0);
                    self.lose(Loss::Reactor);
                }
            }
            if std::mem::take(&mut self.has_news) {
                self.initiator.wake();
            }
            let now = self.driver.drive().within(Duration::ZERO);
            let due = match self.lanes.iter().any(|lane| lane.is_readable) {
                _ if self.is_lost => now.after(POLL),
                true => now,
                false => now.after(POLL).min(self.look),
            };
            match self.poll.poll(&mut events, self.driver.timeout_until(due)) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => self.lose(error.into()),
                _ => {}
            }
            for event in &events {
                let Token(token) = event.token();
                match self.lanes.iter_mut().find(|lane| lane.token.0 == token) {
                    Some(lane) => lane.is_readable = true,
                    // Those of its channels and of its waker; and of queues that have ended.
                    None => _ = self.driver.handle(event),
                }
            }
        }
        self.end();
    }

    fn tell(&mut self, news: News<D::Piece>) {
        self.has_news = true;
        // The initiator has gone; the next look at its commands notices.
        let _ = self.news.send(news);
    }

    fn tell_over(&mut self, qid: u16) {
        std::mem::take(&mut self.over).into_iter().for_each(|over| self.tell(News::Over(qid, over)));
    }

    /// Tells that the queues are lost. Without queues there is nothing to lose, and no end would follow.
    fn lose(&mut self, loss: Loss) {
        if !self.lanes.is_empty() && !std::mem::replace(&mut self.is_lost, true) {
            self.tell(News::Lost(loss));
        }
    }

    /// Returns false if the initiator has gone.
    fn take_commands(&mut self) -> bool {
        loop {
            match self.commands.try_recv() {
                Ok(Command::Serve { qid, released }) => self.serve(qid, *released),
                Ok(Command::Send { qid, tag, deadline }) => {
                    // There is one: it was served before.
                    if let Some(lane) = self.lanes.iter_mut().find(|lane| lane.qid == qid) {
                        lane.waiting.push_back((tag, deadline));
                    }
                }
                Ok(Command::End) => {
                    let tags = self.end();
                    self.tell(News::Ended(tags));
                }
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    fn serve(&mut self, qid: u16, released: ReleasedSession<Link<D>, D::Handle>) {
        // It has the commands for this queue, whatever becomes of the connection.
        self.lanes.push(Lane::new(qid, Token(qid.into())));
        self.look = Time::ZERO;
        let moved = released.adopt(self.driver.drive(), self.channel);
        let served = moved.map_err(|failed| Loss::Moved { qid, error: failed.error }).and_then(|session| {
            let Some(lane) = self.lanes.last_mut() else { return Ok(()) };
            // The lane ends it, also if it is not watched.
            lane.session = Some(session);
            Ok(lane.watch(self.poll.registry())?)
        });
        if let Err(loss) = served {
            self.lose(loss);
        }
    }

    /// Ends all queues, and returns what was outstanding or waited.
    fn end(&mut self) -> Vec<TagOf<D>> {
        let (drive, registry) = (self.driver.drive(), self.poll.registry());
        let mut tags = Vec::new();
        for mut lane in self.lanes.drain(..) {
            // Its QP ends with a panic too. The others are still to end, and all commands are to be returned.
            let _ = catch_unwind(AssertUnwindSafe(|| lane.end(drive, registry)));
            tags.extend(lane.take_commands());
        }
        (self.look, self.is_lost) = (Time::NEVER, false);
        tags
    }

    /// Returns true: it goes on.
    fn turn(&mut self) -> bool {
        if !self.is_lost {
            self.turn_lanes();
        }
        while let Next::Deliver | Next::Again = self.driver.turn() {
            while let Some(event) = self.driver.drive().next_event(self.channel) {
                let of = self.lanes.iter().find(|lane| lane.has(event.id)).map(|lane| lane.qid);
                if let Some(loss) = of.and_then(|qid| Loss::of_event(qid, &event)) {
                    self.lose(loss);
                }
            }
        }
        true
    }

    fn turn_lanes(&mut self) {
        let now = self.driver.drive().within(Duration::ZERO);
        let looks = now >= self.look;
        if looks {
            self.look = now.after(LOOK);
        }
        for at in 0..self.lanes.len() {
            let Some(lane) = self.lanes.get_mut(at) else { return };
            let (qid, served) = (lane.qid, lane.serve(&mut self.over));
            let is_late = looks && lane.overdue(now).is_some();
            // What has ended before an error has ended.
            self.tell_over(qid);
            match served {
                Err(loss) => self.lose(loss),
                Ok(()) if is_late => self.lose(Loss::Unanswered { qid, limit: self.limit }),
                Ok(()) => {}
            }
        }
    }
}
