//! The ping on cmid's epoll driver, nested in a poll(2) of the program, beside the CQ.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::mpsc::Sender;

use anyhow::Result;
use cmid_epoll::{Config, Epoll};
use cmid_proto::datapath::DataPath;
use cmid_trace::Trace;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use crate::agent::Agent;
use crate::log::Log;
use crate::session::{Plan, Progress};
use crate::stall::Stall;

pub(crate) fn ping<D: DataPath>(
    device: D,
    trace: Option<Trace>,
    address: SocketAddr,
    plan: Plan,
    log: Log,
    listens: &Sender<()>,
) -> Result<()> {
    let mut driver = Epoll::observed(device, Config::default(), trace)?;
    let mut agent = Agent::begin(driver.drive(), address, plan, log, listens)?;
    let mut stall = Stall::new();
    let mut wants_turn = true;
    loop {
        let mut events = false;
        // A completion alone needs no turn of the driver.
        while wants_turn {
            let _look = driver.turn()?;
            wants_turn = agent.take_events(driver.drive())?;
            events |= wants_turn;
        }
        if agent.is_done() {
            return Ok(());
        }
        let mut fds = vec![PollFd::from_borrowed_fd(driver.as_fd(), PollFlags::IN)];
        fds.extend(agent.cq_fd().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let slice = Timespec { tv_sec: stall.slice().as_secs() as i64, tv_nsec: 0 };
        match poll(&mut fds, Some(&slice)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut readable = fds.iter().map(|fd| !fd.revents().is_empty());
        wants_turn = readable.next() == Some(true);
        let completions = readable.next() == Some(true);
        drop(fds);
        if completions {
            wants_turn |= agent.run(driver.drive())? == Progress::Finished;
        }
        stall.check(events || completions || agent.cq_fd().is_none())?;
    }
}
