//! rdma-core's `ibv_rc_pingpong -e` with cmid's data path: ping-pong messages, with the same number of posted receives.
//! The next send is posted when the last has completed and the answer has arrived. Connects through cmid, not over
//! TCP.

use std::os::fd::AsFd as _;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use cmid_epoll::Epoll;
use cmid_proto::ChannelKey;
use cmid_proto::datapath::{Attaching, CreateError, PostError, SendWr, prelude::*};
use cmid_verbs::{Access, Caps, Completion, Cq, Mr, Qp, Verbs, WcStatus};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::retry_on_intr;

use super::Arguments;
use crate::connection::Opened;

const SEND: u64 = 1;
const RECV: u64 = 2;
/// The number of completions polled at a time, and of posted receives, as in `ibv_rc_pingpong`.
const BATCH: usize = 2;
const RECEIVES: u32 = 500;

/// Waits in poll(2), or `blocking` in a read of the completion channel.
pub(super) fn run(arguments: Arguments, blocking: bool) -> Result<()> {
    let attach = |device: &mut Verbs, to: Attaching<'_>| Pinger::attach(device, to, arguments);
    let Opened { mut driver, channel, mut session, .. } = super::open(arguments, &[], attach)?;
    let begin = Instant::now();
    session.attached().context("no QP")?.run(&mut driver, channel, blocking)?;
    if !arguments.server {
        arguments.print(begin);
    }
    // The client may still wait for its last completion when the server is done.
    while arguments.server && driver.drive().next_event(channel).is_none() {
        driver.wait(None)?;
    }
    session.disconnect(driver.drive())?;
    Ok(())
}

struct Pinger {
    qp: Qp,
    cq: Cq,
    mr: Mr,
    arguments: Arguments,
    sent: u32,
    received: u32,
    /// The number of posted receives.
    posted: u32,
    /// The completions awaited before the next send.
    pending: u64,
}

impl Pinger {
    fn attach(device: &mut Verbs, to: Attaching<'_>, arguments: Arguments) -> Result<Self, CreateError> {
        let pd = device.alloc_pd(to.id())?;
        let cq = device.create_cq(to.id(), RECEIVES + 1)?;
        let mr = pd.register(vec![0; arguments.size], Access::LOCAL_WRITE)?;
        let caps = Caps { max_send_wr: 1, max_recv_wr: RECEIVES, ..Caps::default() };
        let qp = device.create_qp(to, &pd, &cq, &cq, caps)?;
        let mut pinger = Pinger { qp, cq, mr, arguments, sent: 0, received: 0, posted: 0, pending: RECV };
        pinger.receive()?;
        pinger.cq.arm()?;
        Ok(pinger)
    }

    fn receive(&mut self) -> Result<(), PostError> {
        while self.posted < RECEIVES {
            self.qp.post_recv(RECV, self.mr.sge(0..self.arguments.size))?;
            self.posted += 1;
        }
        Ok(())
    }

    fn send(&mut self) -> Result<()> {
        self.qp.post_send(SendWr::send(SEND, self.mr.sge(0..self.arguments.size)))?;
        self.pending = SEND | RECV;
        Ok(())
    }

    fn run(&mut self, driver: &mut Epoll<Verbs>, channel: ChannelKey, blocking: bool) -> Result<()> {
        if !self.arguments.server {
            self.send()?;
        }
        let mut completions = [Completion::default(); BATCH];
        while self.sent < self.arguments.iters || self.received < self.arguments.iters {
            if blocking {
                let taken = self.cq.wait(&mut completions)?;
                self.take(&completions[..taken])?;
                continue;
            }
            self.sleep(driver, channel)?;
            // All of them, because a notification is sent only for completions after it was armed.
            let mut taken = BATCH;
            while taken == BATCH {
                taken = self.cq.poll(&mut completions)?;
                self.take(&completions[..taken])?;
            }
        }
        Ok(())
    }

    fn take(&mut self, completions: &[Completion]) -> Result<()> {
        completions.iter().try_for_each(|completion| self.complete(completion))
    }

    fn complete(&mut self, completion: &Completion) -> Result<()> {
        ensure!(completion.status == WcStatus::SUCCESS, "{completion:?}");
        if completion.wr_id == SEND {
            self.sent += 1;
        } else {
            self.received += 1;
            self.posted -= 1;
            if self.posted <= 1 {
                self.receive()?;
            }
        }
        self.pending &= !completion.wr_id;
        if self.pending == 0 && self.sent < self.arguments.iters {
            self.send()?;
        }
        Ok(())
    }

    /// Sleeps until the CQ notifies. Fails if the connection ends.
    fn sleep(&mut self, driver: &mut Epoll<Verbs>, channel: ChannelKey) -> Result<()> {
        loop {
            let mut fds = [
                PollFd::from_borrowed_fd(self.cq.fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(driver.as_fd(), PollFlags::IN),
            ];
            retry_on_intr(|| poll(&mut fds, None))?;
            let [completions, events] = fds.map(|fd| !fd.revents().is_empty());
            if completions {
                self.cq.take_notifications()?;
                return Ok(self.cq.arm()?);
            }
            if events {
                let _look = driver.turn()?;
                if let Some(event) = driver.drive().next_event(channel) {
                    bail!("{} with status {}", event.kind, event.status);
                }
            }
        }
    }
}
