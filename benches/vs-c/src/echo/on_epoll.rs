//! `Messages` over a session, on io-epoll: a loop that waits in poll(2) for the driver and the CQ.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use cmid_epoll::Epoll;
use cmid_proto::datapath::{
    Access, Attaching, Block, Caps, Completion, CreateError, Parts, Pool, QpParts, SendWr, Signaled, WcStatus,
    prelude::*,
};
use cmid_proto::handshake::Session;
use cmid_proto::messages::{HEADER, Messages, MessagesConfig, Received};
use cmid_proto::{ChannelKey, Errno, Time};
use cmid_verbs::Verbs;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::retry_on_intr;

use super::Arguments;
use crate::connection::Opened;

const SEND: u64 = 1;
const RECV: u64 = 2;

type Piece = <Verbs as DataPath>::Piece;

/// A QP, and the blocks to send from. Those to receive into are posted.
type Attached = (QpParts<Verbs>, Pool<Piece>);

struct Echo {
    driver: Epoll<Verbs>,
    channel: ChannelKey,
    session: Session<Attached>,
    messages: Messages,
    /// The message to send, or to send back.
    message: Vec<u8>,
    received: u32,
    sent: u32,
    /// One packet in half a pool.
    signaled: Signaled,
}

pub(super) fn run(arguments: Arguments) -> Result<()> {
    let mut echo = Echo::open(arguments)?;
    let begin = Instant::now();
    let is_done = |echo: &Echo| !arguments.server && echo.received == arguments.iters;
    while !is_done(&echo) && !echo.session.is_over() {
        echo.turn(|received| if arguments.server { received } else { arguments.due(received) })?;
        if !is_done(&echo) {
            echo.wait()?;
        }
    }
    if arguments.server {
        return Ok(());
    }
    ensure!(echo.received == arguments.iters, "the server has ended the connection");
    arguments.print(begin);
    echo.session.disconnect(echo.driver.drive())?;
    while !echo.session.is_over() {
        echo.turn(|_| 0)?;
        echo.wait()?;
    }
    Ok(())
}

fn attach(device: &mut Verbs, to: Attaching<'_>, config: MessagesConfig) -> Result<Attached, CreateError> {
    let (window, packet) = (u32::from(config.window), config.packet as usize);
    let caps = Caps { max_send_wr: window, max_recv_wr: window, ..Caps::default() };
    let mut parts = device.qp(to).caps(caps).attach()?;
    let pool = |access| parts.pd.pool(vec![0; window as usize * packet], packet, access);
    let (receives, sends) = (pool(Access::LOCAL_WRITE)?, pool(Access::empty())?);
    while let Some(block) = receives.take() {
        parts.qp.post_recv_blocks(RECV, block)?;
    }
    Ok((parts, sends))
}

impl Echo {
    /// Connects, or accepts the first request.
    fn open(arguments: Arguments) -> Result<Self> {
        let config = arguments.config()?;
        let attach = |device: &mut Verbs, to: Attaching<'_>| attach(device, to, config);
        let Opened { mut driver, channel, session, private_data } = super::open(arguments, &config.hello(), attach)?;
        let messages = Messages::new(config, &private_data, driver.drive().now())?;
        let signaled = Signaled::one_in(u32::from(config.window) / 2);
        let message = vec![1; arguments.size];
        Ok(Echo { driver, channel, session, messages, message, received: 0, sent: 0, signaled })
    }

    /// Takes what has arrived, and sends as many messages as are due and the peer has receives for.
    fn turn(&mut self, due: impl Fn(u32) -> u32) -> Result<()> {
        let now = self.driver.drive().within(Duration::ZERO);
        while let Some(completion) = self.session.next_completion(self.driver.drive())? {
            self.completed(&completion, now)?;
        }
        self.messages.handle_timeout(now)?;
        let Some((parts, sends)) = self.session.attached() else { return Ok(()) };
        let mut post = |mut block: Block<Piece>, header: [u8; HEADER], message: &[u8]| -> Result<()> {
            block[..HEADER].copy_from_slice(&header);
            block[HEADER..HEADER + message.len()].copy_from_slice(message);
            let send = SendWr::send(SEND, block.part(0..HEADER + message.len()));
            self.signaled.post(&mut parts.qp, send, false)?;
            Ok(())
        };
        // One block is for packets without a message.
        while self.sent < due(self.received) && self.messages.credits() > 0 && sends.available() > 1 {
            let Some(block) = sends.take() else { break };
            let header = self.messages.send(self.message.len(), now)?;
            post(block, header, &self.message)?;
            self.sent += 1;
        }
        while let Some(block) = sends.take() {
            let Some(header) = self.messages.poll_control(now) else { break };
            post(block, header, &[])?;
        }
        Ok(())
    }

    fn completed(&mut self, completion: &Completion, now: Time) -> Result<()> {
        let Some((parts, _)) = self.session.attached() else { return Ok(()) };
        // The block of a send returns to its pool.
        let block = parts.qp.reclaim(completion).and_then(Parts::into_block);
        match completion.status {
            WcStatus::SUCCESS if completion.wr_id == RECV => {}
            WcStatus::SUCCESS | WcStatus::WR_FLUSH_ERR => return Ok(()),
            status => bail!("a work request has ended with {status}"),
        }
        let block = block.context("a receive without its block")?;
        let mut messages = 0;
        match self.messages.receive(block.get(..completion.byte_len as usize).unwrap_or_default(), now)? {
            Received::Message(message) => {
                ensure!(message.len() == self.message.len(), "a message of {} bytes", message.len());
                self.message.copy_from_slice(message);
                messages = 1;
            }
            Received::Control => {}
            Received::Offer { .. } | Received::Taken | Received::Goodbye => bail!("a packet that no echo has"),
        }
        parts.qp.post_recv_blocks(RECV, block)?;
        self.messages.posted(messages);
        self.received += messages;
        Ok(())
    }

    /// Waits until there are completions or events, or the next sign of life is due, and passes on the events.
    fn wait(&mut self) -> Result<()> {
        if !self.session.is_open() {
            // Arms the descriptor for the deadline of the end.
            let _next = self.driver.turn()?;
        }
        let now = self.driver.drive().now();
        let timeout = self.messages.timeout().map(|due| due.since(now).try_into()).transpose()?;
        let driver = PollFd::new(&self.driver, PollFlags::IN);
        let Some(cq) = self.session.cq_fd() else { return Ok(()) };
        let mut fds = [driver, PollFd::from_borrowed_fd(cq, PollFlags::IN)];
        retry_on_intr(|| poll(&mut fds, timeout.as_ref()))?;
        if fds[0].revents().is_empty() {
            return Ok(());
        }
        let _next = self.driver.turn()?;
        while let Some(event) = self.driver.drive().next_event(self.channel) {
            // It has its QP.
            self.session.handle(self.driver.drive(), event, |_, _| Err::<Attached, _>(Errno::EINVAL))?;
        }
        Ok(())
    }
}
