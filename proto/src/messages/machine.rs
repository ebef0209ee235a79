//! The machine: packets and time in, messages and headers out.

use super::credits::Credits;
use super::error::{MessagesError, NotSent};
use super::header::{HEADER, Header, Kind, OFFER, decode_offer, encode_offer};
use super::hello::{HelloError, MessagesConfig};
use super::rules::{Cell, Input, MESSAGES, Stage};
use crate::datapath::Remote;
use crate::time::Time;

/// What has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received<'a> {
    /// A message. Post its receive again when its bytes are no longer needed, then call [`Messages::posted`].
    Message(&'a [u8]),
    /// A message in the memory of the peer, in the order of the messages. Read it by RDMA, then call [`Messages::take`]. Its
    /// receive is as that of a message: held back until then, it limits the offers that wait.
    Offer {
        /// Where it is.
        at: Remote,
        /// Its bytes, as the peer says. There may be more than this side wants to take.
        len: u64,
    },
    /// The peer has read the oldest message that this side has offered, whose memory may be used again. As
    /// [`Received::Control`].
    Taken,
    /// Credits, or a sign of life. Post its receive again before the next call of this machine, which counts it already.
    Control,
    /// The last packet with an effect: the peer sends no more messages. As [`Received::Control`]. Answer with
    /// [`Messages::close`] when there is nothing more to send.
    Goodbye,
}

/// Messages over one connection. See the [module](super).
///
/// `now` of each call is the time, which never decreases.
#[derive(Clone, Debug)]
pub struct Messages {
    config: MessagesConfig,
    message_max: usize,
    stage: Stage,
    credits: Credits,
    /// Messages that are offered to the peer, and that it has not taken.
    offered: u32,
    /// Messages that the peer has offered, and those that are read, which it does not know.
    waiting: u32,
    read: u32,
    last_sent: Time,
    last_received: Time,
    /// The deadline of the close.
    deadline: Time,
    error: Option<MessagesError>,
}

impl Messages {
    /// Creates the machine of an established connection. `private_data` is that of the peer's connect or accept, which
    /// begins with its [`hello`](MessagesConfig::hello). The receives of `config` are posted.
    ///
    /// # Errors
    /// [`HelloError`]: a side has another protocol, or values that do not fit.
    pub fn new(config: MessagesConfig, private_data: &[u8], now: Time) -> Result<Self, HelloError> {
        let peer = config.meet(private_data)?;
        Ok(Messages {
            config,
            message_max: peer.packet as usize - HEADER,
            stage: Stage::Open,
            credits: Credits::new(config.window, peer.window),
            offered: 0,
            waiting: 0,
            read: 0,
            last_sent: now,
            last_received: now,
            deadline: Time::NEVER,
            error: None,
        })
    }

    /// Returns the state.
    #[must_use]
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// Returns the longest message that the peer takes, in bytes.
    #[must_use]
    pub fn message_max(&self) -> usize {
        self.message_max
    }

    /// Returns the number of messages for which the peer has a receive.
    #[must_use]
    pub fn credits(&self) -> u32 {
        self.credits.for_messages()
    }

    /// Permits a message of `len` bytes: returns the header to send in front of it, in one work request. Requests are
    /// posted in the order of their headers. A header that is not posted ends the connection.
    ///
    /// # Errors
    /// [`NotSent`]. Nothing has changed.
    pub fn send(&mut self, len: usize, now: Time) -> Result<[u8; HEADER], NotSent> {
        self.permit(Kind::Message, len, now)
    }

    /// Offers a message of any length: returns a packet to send, as [`send`](Messages::send) does. The bytes are in memory that
    /// the peer may read, and stay as they are until [`Received::Taken`]. Takes a credit, as a message does.
    ///
    /// # Errors
    /// [`NotSent`]; [`NotSent::TooLong`] if the receives of the peer have no room for an offer. Nothing has changed.
    pub fn offer(&mut self, len: u64, at: Remote, now: Time) -> Result<[u8; OFFER], NotSent> {
        let header = self.permit(Kind::Offer, OFFER - HEADER, now)?;
        self.offered = self.offered.saturating_add(1);
        Ok(encode_offer(header, at, len))
    }

    /// Returns the number of offered messages that the peer has not taken.
    #[must_use]
    pub fn offered(&self) -> u32 {
        self.offered
    }

    /// The oldest message that the peer has offered is read, or is not wanted. [`poll_control`](Messages::poll_control) tells
    /// it. More than there are is ignored.
    pub fn take(&mut self) {
        if let Some(waiting) = self.waiting.checked_sub(1) {
            self.waiting = waiting;
            self.read += 1;
        }
    }

    fn permit(&mut self, kind: Kind, len: usize, now: Time) -> Result<[u8; HEADER], NotSent> {
        let Cell::Go(stage) = self.cell(Input::Send) else { return Err(NotSent::Closed) };
        let max = self.message_max;
        let (true, Ok(len)) = (len <= max, u32::try_from(len)) else { return Err(NotSent::TooLong { len, max }) };
        if self.credits.for_messages() == 0 {
            return Err(NotSent::NoCredit);
        }
        self.stage = stage;
        Ok(self.header(kind, len, now))
    }

    /// Returns the next packet without a message, which is to be sent now: the answer to an offer, credits for the peer, a sign
    /// of life, the goodbye. Call it until it returns `None`, after each other call and at [`timeout`](Messages::timeout).
    #[must_use = "a header that is not posted ends the connection"]
    pub fn poll_control(&mut self, now: Time) -> Option<[u8; HEADER]> {
        if matches!(self.stage, Stage::Over | Stage::Failed) || !self.credits.for_control() {
            return None;
        }
        if let Some(read) = self.read.checked_sub(1) {
            self.read = read;
            return Some(self.header(Kind::Taken, 0, now));
        }
        if let (Cell::Go(stage), 0) = (self.cell(Input::SendGoodbye), self.offered) {
            self.stage = stage;
            return Some(self.header(Kind::Goodbye, 0, now));
        }
        let is_due = self.credits.is_awaited() || now >= self.last_sent.after(self.config.keep_alive);
        is_due.then(|| self.header(Kind::Control, 0, now))
    }

    /// Takes a packet: the received bytes of a successful completion, as many as it says.
    ///
    /// # Errors
    /// [`MessagesError`]: the peer breaks the protocol. The connection has failed, and each later call returns the same
    /// error.
    pub fn receive<'a>(&mut self, packet: &'a [u8], now: Time) -> Result<Received<'a>, MessagesError> {
        self.intact()?;
        match self.accept(packet) {
            Ok(received) => {
                self.last_received = now;
                Ok(received)
            }
            Err(error) => Err(self.fail(error)),
        }
    }

    fn accept<'a>(&mut self, packet: &'a [u8]) -> Result<Received<'a>, MessagesError> {
        let (Header { kind, number, granted, len: _ }, message) = Header::decode(packet)?;
        let input = match kind {
            Kind::Message | Kind::Offer => Input::Message,
            Kind::Control | Kind::Taken => Input::Control,
            Kind::Goodbye => Input::Goodbye,
        };
        let Cell::Go(stage) = self.cell(input) else { return Err(MessagesError::AfterGoodbye) };
        let offered = self.offered.checked_sub(u32::from(kind == Kind::Taken)).ok_or(MessagesError::NotOffered)?;
        if kind == Kind::Goodbye && (self.waiting, self.read) != (0, 0) {
            return Err(MessagesError::OfferLeft);
        }
        self.credits.receive(number, granted)?;
        (self.stage, self.offered) = (stage, offered);
        match kind {
            Kind::Message | Kind::Offer => self.credits.hold(),
            Kind::Control | Kind::Goodbye | Kind::Taken => self.credits.control_posted(kind == Kind::Taken),
        }
        Ok(match (kind, decode_offer(message)) {
            (Kind::Offer, Some((at, len))) => {
                self.waiting = self.waiting.saturating_add(1);
                Received::Offer { at, len }
            }
            (Kind::Message | Kind::Offer, _) => Received::Message(message),
            (Kind::Control, _) => Received::Control,
            (Kind::Goodbye, _) => Received::Goodbye,
            (Kind::Taken, _) => Received::Taken,
        })
    }

    /// The receives of this many messages are posted again, in any order. More than there are messages is ignored.
    pub fn posted(&mut self, count: u32) {
        self.credits.posted(count);
    }

    /// Whether the peer has at most half of its credits: receives that are [posted](Messages::posted) now give it more at
    /// once, and otherwise with the next packet. A program that need not post them before asks this.
    #[must_use]
    pub fn peer_is_low(&self) -> bool {
        self.credits.are_low()
    }

    /// Sends no more messages. [`poll_control`](Messages::poll_control) returns the goodbye, when all that was offered is taken.
    /// Messages of the peer still
    /// arrive, until its goodbye; if that is not there by `deadline`, the connection has failed. Does nothing the second
    /// time.
    pub fn close(&mut self, deadline: Time) {
        if let Cell::Go(stage) = self.cell(Input::Close) {
            self.stage = stage;
            self.deadline = deadline;
        }
    }

    /// Whether both sides have said goodbye. Disconnect when the send of the own goodbye has completed.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.stage == Stage::Over
    }

    /// Returns the time of the next [`handle_timeout`](Messages::handle_timeout). There is always one, until both sides
    /// have said goodbye or the connection has failed.
    #[must_use]
    pub fn timeout(&self) -> Option<Time> {
        if matches!(self.stage, Stage::Over | Stage::Failed) {
            return None;
        }
        let dead = self.last_received.after(self.config.silence).min(self.deadline);
        // Without a credit the sign of life waits for the peer.
        let alive = self.last_sent.after(self.config.keep_alive);
        Some(if self.credits.for_control() { dead.min(alive) } else { dead })
    }

    /// Lets time pass. Call [`poll_control`](Messages::poll_control) afterwards: it has the sign of life.
    ///
    /// # Errors
    /// [`MessagesError::Silent`], [`MessagesError::NoGoodbye`], or the error of an earlier call.
    pub fn handle_timeout(&mut self, now: Time) -> Result<(), MessagesError> {
        self.intact()?;
        if self.is_over() {
            return Ok(());
        }
        if now >= self.last_received.after(self.config.silence) {
            return Err(self.fail(MessagesError::Silent(self.config.silence)));
        }
        if self.deadline.has_passed(now) {
            return Err(self.fail(MessagesError::NoGoodbye));
        }
        Ok(())
    }

    fn intact(&self) -> Result<(), MessagesError> {
        self.error.map_or(Ok(()), Err)
    }

    fn fail(&mut self, error: MessagesError) -> MessagesError {
        if let Cell::Go(stage) = self.cell(Input::Fault) {
            self.stage = stage;
            self.error = Some(error);
        }
        error
    }

    fn cell(&self, input: Input) -> Cell {
        MESSAGES[self.stage.index()][input.index()]
    }

    fn header(&mut self, kind: Kind, len: u32, now: Time) -> [u8; HEADER] {
        let (number, granted) = self.credits.send();
        self.last_sent = now;
        Header { kind, len, number, granted }.encode()
    }
}
