//! The ping on cmid's epoll driver, nested in a poll(2) of the program's own, beside the CQ.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::mpsc::Sender;

use anyhow::Result;
use cmid_datapath::DataPath;
use cmid_epoll::{Config, Epoll};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use crate::agent::Agent;
use crate::session::Plan;
use crate::stall::Stall;
use crate::voice::Voice;

pub(crate) fn ping<D: DataPath>(
    device: D,
    address: SocketAddr,
    plan: Plan,
    voice: Voice,
    listens: &Sender<()>,
) -> Result<()> {
    let mut driver = Epoll::new(device, Config::default())?;
    let mut agent = Agent::begin(driver.drive(), address, plan, voice, listens)?;
    let mut stall = Stall::new();
    loop {
        let mut told = false;
        loop {
            let _look = driver.turn()?;
            if !agent.take_events(driver.drive())? {
                break;
            }
            told = true;
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
        let completions = fds.get(1).is_some_and(|fd| !fd.revents().is_empty());
        drop(fds);
        if completions {
            agent.run(driver.drive())?;
        }
        stall.check(told || completions || agent.cq_fd().is_none())?;
    }
}
