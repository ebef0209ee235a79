//! The turns of a channel: what its futures do each time that they are polled.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, Wake as _, Waker};
use std::time::Duration;

use cmid_proto::datapath::{Block, Completion, DataPath, Drain, Parts, SendWr, WcStatus, prelude::*};
use cmid_proto::messages::{HEADER, MessagesError, NotSent, Received};
use cmid_proto::{Errno, Observer, Time};

use super::wakers::Half;
use super::{Arrived, Channel, Message, Work, invalid};
use crate::clock;
use crate::connection::FLUSH_LIMIT;

/// Completions that are polled at a time.
const BATCH: usize = 16;

impl<D: DataPath, O: Observer> Channel<D, O> {
    /// Takes what has arrived, and sends what is due without a message. A failure is kept.
    pub(super) fn turn(&mut self, half: Half) {
        if self.failure.is_some() {
            return;
        }
        match self.make_turn() {
            Ok(false) => {}
            Ok(true) => self.wakers.wake_other(half),
            Err(error) => {
                // A message that is read has arrived before the end. An error of it is not the first one.
                let _ = self.read_next(true);
                self.fail(error);
            }
        }
    }

    /// Keeps a failure, and tells both halves.
    pub(super) fn fail(&mut self, error: io::Error) {
        self.failure = Some(Arc::new(error));
        self.wakers.wake_by_ref();
    }

    /// Returns whether something has happened.
    ///
    /// Turns end: the peer sends no more than it has credits for, those of messages return when the program has dropped them,
    /// and an answer to packets without messages is for at least two of them.
    fn make_turn(&mut self) -> io::Result<bool> {
        let (mut some, mut has_happened) = ([Completion::default(); BATCH], false);
        while let Some(polled) = self.connection.take_completions(&mut some)? {
            if polled == 0 {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the peer has gone without finish or close"));
            }
            has_happened = true;
            for completion in &some[..polled] {
                self.completed(completion)?;
            }
        }
        let (now, has_ended) = (clock::now(), self.connection.has_ended());
        self.last_turn = now;
        self.read_next(has_ended || self.flushed_by.is_some())?;
        // A receive that is posted after the end is flushed, and would be posted again.
        if has_ended {
            let is_due = !self.is_marked && !self.is_iwarp && self.qp.unpolled().sends > 0;
            self.is_marked |= is_due && Drain::mark(&mut self.qp);
        } else if let Some(limit) = self.flushed_by {
            if now >= limit {
                let text = "the QP has failed: its requests are flushed, and no event has followed";
                return Err(io::Error::new(io::ErrorKind::ConnectionAborted, text));
            }
        } else {
            self.post_receives()?;
            self.messages.handle_timeout(now).map_err(failed)?;
            self.send_queued()?;
            self.send_control(now)?;
        }
        Ok(has_happened)
    }

    fn completed(&mut self, completion: &Completion) -> io::Result<()> {
        // A block to send from returns to its pool.
        let block = self.qp.reclaim(completion).and_then(Parts::into_block);
        match completion.status {
            WcStatus::SUCCESS if completion.wr_id == Work::Receive as u64 => {
                self.received(block.ok_or(Errno::EIO)?, completion.byte_len as usize)
            }
            WcStatus::SUCCESS => {
                if completion.wr_id == Work::Read as u64 {
                    self.has_read();
                }
                Ok(())
            }
            status => {
                self.is_lost |= completion.wr_id == Work::Message as u64;
                if status != WcStatus::WR_FLUSH_ERR {
                    return Err(io::Error::other(status.to_string()));
                }
                // Mostly at the end of the connection, which is reported. A QP fails alone if the peer writes where it may not.
                self.flushed_by.get_or_insert(clock::now().after(FLUSH_LIMIT));
                Ok(())
            }
        }
    }

    fn received(&mut self, block: Block<D::Piece>, len: usize) -> io::Result<()> {
        let packet = block.get(..len).ok_or(Errno::EIO)?;
        match self.messages.receive(packet, clock::now()).map_err(failed)? {
            Received::Message(_) => {
                let message = Message::new(block, HEADER..len, Arc::clone(&self.wakers));
                self.arrived.push_back(Arrived::Message(message));
                return Ok(());
            }
            Received::Offer { at, len } => {
                self.arrived.push_back(Arrived::Offer { at, len, block });
                return Ok(());
            }
            Received::Taken => self.taken(),
            Received::Control => {}
            Received::Goodbye => self.peer_has_finished = true,
        }
        self.post_receive(block)
    }

    /// Posts the receives of the messages that the program has dropped.
    fn post_receives(&mut self) -> io::Result<()> {
        let mut posted = 0;
        self.wakers.look(self.messages.peer_is_low());
        while let Some(block) = self.receives.take() {
            self.post_receive(block)?;
            posted += 1;
        }
        self.messages.posted(posted);
        Ok(())
    }

    fn post_receive(&mut self, block: Block<D::Piece>) -> io::Result<()> {
        Ok(self.qp.post_recv_blocks(Work::Receive as u64, block).map_err(|unposted| unposted.error)?)
    }

    /// Sends credits, a sign of life or the goodbye, if they are due.
    fn send_control(&mut self, now: Time) -> io::Result<()> {
        while let Some(block) = self.sends.take() {
            let Some(header) = self.messages.poll_control(now) else { break };
            self.post_send(Work::Control, block, header, &[])?;
        }
        Ok(())
    }

    /// Sends the message that waits for a credit.
    fn send_queued(&mut self) -> io::Result<()> {
        let has_room = self.has_room();
        self.queued.take_if(|_| has_room).map_or(Ok(()), |message| self.send_now(&[&message]))
    }

    /// Whether a message can be sent. One block is for packets without a message.
    pub(super) fn has_room(&self) -> bool {
        self.messages.credits() > 0 && self.sends.available() > 1
    }

    /// Sends the slices as one message.
    pub(super) fn send_now(&mut self, slices: &[&[u8]]) -> io::Result<()> {
        self.intact()?;
        let (len, max) = (slices.iter().map(|slice| slice.len()).sum(), self.message_max);
        if self.has_finished() {
            return Err(not_sent(NotSent::Closed));
        } else if len > max {
            return Err(not_sent(NotSent::TooLong { len, max }));
        } else if !self.has_room() || self.queued.is_some() {
            return Err(not_sent(NotSent::NoCredit));
        }
        let block = self.sends.take().ok_or(Errno::ENOMEM)?;
        let header = self.messages.send(len, clock::now()).map_err(not_sent)?;
        self.post_message(block, header, slices)
    }

    /// Posts a message, or an offer of one. If that fails, the peer would miss the packet.
    pub(super) fn post_message(
        &mut self,
        block: Block<D::Piece>,
        header: [u8; HEADER],
        slices: &[&[u8]],
    ) -> io::Result<()> {
        let posted = self.post_send(Work::Message, block, header, slices);
        posted.inspect_err(|error| self.fail(io::Error::new(error.kind(), error.to_string())))
    }

    /// Posts a packet.
    fn post_send(
        &mut self,
        work: Work,
        mut block: Block<D::Piece>,
        header: [u8; HEADER],
        slices: &[&[u8]],
    ) -> io::Result<()> {
        let mut len = 0;
        for slice in [&header[..]].iter().chain(slices) {
            block.get_mut(len..len + slice.len()).ok_or(Errno::EINVAL)?.copy_from_slice(slice);
            len += slice.len();
        }
        let send = SendWr::send(work as u64, block.part(0..len));
        // Nothing is sent after the goodbye. On iWARP a completion brings back no other blocks, and none is marked.
        let always = self.is_iwarp || self.has_finished();
        self.signaled.post(&mut self.qp, send, always).map_err(|unposted| unposted.error)?;
        Ok(())
    }

    /// Ready if another turn is necessary. Otherwise both halves are woken when it is. A failure is kept.
    pub(super) fn poll_ready(&mut self) -> Poll<()> {
        let (waker, last_turn): (Waker, _) = (self.waker.clone(), self.last_turn);
        // A sign of life that was due, and for which no block was free, is tried again.
        let again = last_turn.after(self.keep_alive.max(Duration::from_millis(1)));
        let messages = self.messages.timeout().map(|due| if due <= last_turn { again } else { due });
        let due = self.flushed_by.filter(|_| !self.connection.has_ended()).into_iter().chain(messages).min();
        let polled = self.connection.poll_ready(due, &mut Context::from_waker(&waker));
        polled.map(|ready| ready.unwrap_or_else(|error| self.fail(error)))
    }
}

fn failed(error: MessagesError) -> io::Error {
    // Nothing sets a deadline for the goodbye.
    let is_silent = matches!(error, MessagesError::Silent(_));
    if is_silent { io::Error::new(io::ErrorKind::TimedOut, error) } else { invalid(error) }
}

pub(super) fn not_sent(error: NotSent) -> io::Error {
    let kind = match error {
        NotSent::Closed => io::ErrorKind::BrokenPipe,
        NotSent::NoCredit => io::ErrorKind::WouldBlock,
        NotSent::TooLong { .. } | _ => io::ErrorKind::InvalidInput,
    };
    io::Error::new(kind, error)
}

#[cfg(test)]
mod tests {
    use cmid_proto::handshake::Options;
    use cmid_proto::messages::MessagesConfig;
    use cmid_sim::{Config, Fabric};

    use super::*;
    use crate::Listener;

    #[tokio::test(start_paused = true)]
    async fn a_sign_of_life_that_is_due_after_the_turn_and_before_the_wait_is_not_put_off() {
        let (fabric, address) = (Fabric::new(Config::default()), "10.0.0.2:7471".parse().unwrap());
        let clock = fabric.clone();
        let following = tokio::spawn(async move {
            loop {
                clock.advance_by(Duration::from_millis(1));
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        let [client, server] = ["10.0.0.1", "10.0.0.2"].map(|host| fabric.host(&[host.parse().unwrap()]));
        let mut listener = Listener::bind(server.device(), address).unwrap();
        let (config, options) = (MessagesConfig::default(), Options::default());
        let connect = Channel::connect(client.device(), address, config, &options);
        let accept = async { Channel::accept(listener.accept().await?, config, &options).await };
        let (mut channel, _peer) = tokio::try_join!(connect, accept).unwrap();
        following.abort();
        // Nothing else happens.
        tokio::time::sleep(Duration::from_millis(1)).await;
        channel.turn(Half::Receive);
        while channel.poll_ready().is_ready() {
            channel.turn(Half::Receive);
        }
        tokio::time::advance(config.keep_alive).await;
        assert!(channel.poll_ready().is_ready());
    }
}
