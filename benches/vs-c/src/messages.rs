//! `c/messages.c` on cmid: a ping-pong of messages, each awaited in poll(2) on the driver and the completion channel.

use std::net::SocketAddr;
use std::os::fd::AsFd as _;

use anyhow::{Result, bail, ensure};
use cmid_proto::datapath::CompletionQueue;
use cmid_verbs::{Completion, WcStatus};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::connection::Connection;
use crate::mark::in_parts;
use crate::work::{post_recv, post_send};

const SEND: u64 = 0;
const RECV: u64 = 1;

struct Ping {
    connection: Connection,
    sent: u32,
    received: u32,
}

/// The job: `count` pings in each part.
pub(crate) fn run(to: SocketAddr, count: u32) -> Result<()> {
    let mut connection = Connection::open(to, false)?;
    connection.cq.arm()?;
    post_recv(&mut connection, RECV)?;
    post_send(&mut connection, SEND)?;
    let mut ping = Ping { connection, sent: 0, received: 0 };
    in_parts(|| ping.part(count))
}

impl Ping {
    fn part(&mut self, count: u32) -> Result<()> {
        let mut finished = 0;
        while finished < count {
            let mut fds = [
                PollFd::from_borrowed_fd(self.connection.cq.fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(self.connection.driver.as_fd(), PollFlags::IN),
            ];
            match poll(&mut fds, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let [completions, driver] = fds.map(|fd| !fd.revents().is_empty());
            if driver {
                self.turn()?;
            }
            if completions {
                finished += self.take()?;
            }
        }
        Ok(())
    }

    fn turn(&mut self) -> Result<()> {
        let _look = self.connection.driver.turn()?;
        match self.connection.driver.drive().next_event(self.connection.channel) {
            Some(event) => bail!("{} with status {}", event.kind, event.status),
            None => Ok(()),
        }
    }

    /// Polls the available completions. Returns the number of finished pings.
    fn take(&mut self) -> Result<u32> {
        let mut finished = 0;
        self.connection.cq.take_notifications()?;
        self.connection.cq.arm()?;
        let mut completions = [Completion::default()];
        while self.connection.cq.poll(&mut completions)? > 0 {
            let [completion] = &completions;
            ensure!(completion.status == WcStatus::SUCCESS, "{completion:?}");
            if completion.wr_id == RECV {
                self.received += 1;
                post_recv(&mut self.connection, RECV)?;
            } else {
                self.sent += 1;
            }
            // The buffer is free, and the answer has arrived.
            if self.sent == self.received {
                finished += 1;
                post_send(&mut self.connection, SEND)?;
            }
        }
        Ok(finished)
    }
}
