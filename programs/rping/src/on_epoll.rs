//! The ping on cmid's epoll driver, nested in a poll(2) of the program, beside the CQ.

use std::os::fd::AsFd;

use anyhow::Result;
use cmid_epoll::{Config, Epoll};
use cmid_proto::datapath::DataPath;
use cmid_trace::Trace;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::retry_on_intr;
use rustix::time::Timespec;

use crate::agent::{Agent, SLICE};
use crate::on_driver::Side;
use crate::session::Progress;

pub(crate) fn ping<D: DataPath>(device: D, trace: Option<Trace>, side: Side) -> Result<()> {
    let mut driver = Epoll::observed(device, Config::default(), trace)?;
    let mut agent = Agent::begin(driver.drive(), side)?;
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
        let slice = Timespec::try_from(SLICE)?;
        retry_on_intr(|| poll(&mut fds, Some(&slice)))?;
        let mut readable = fds.iter().map(|fd| !fd.revents().is_empty());
        wants_turn = readable.next() == Some(true);
        let completions = readable.next() == Some(true);
        drop(fds);
        if completions {
            wants_turn |= agent.run(driver.drive())? == Progress::Finished;
        }
        agent.check(events || completions)?;
    }
}
