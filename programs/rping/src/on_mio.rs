//! The ping in a mio `Poll`: the driver's channels and the CQ side by side.

use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::mpsc::Sender;

use anyhow::Result;
use cmid_mio::{Config, Mio};
use cmid_proto::Limits;
use cmid_proto::datapath::DataPath;
use cmid_trace::Trace;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};

use crate::agent::Agent;
use crate::log::Log;
use crate::session::Plan;
use crate::stall::Stall;

/// The token of the CQ; the driver has the tokens from 1 on.
const CQ: Token = Token(0);

pub(crate) fn ping<D: DataPath>(
    device: D,
    trace: Option<Trace>,
    address: SocketAddr,
    plan: Plan,
    log: Log,
    listens: &Sender<()>,
) -> Result<()> {
    let mut poll = Poll::new()?;
    let mut events = Events::with_capacity(64);
    let config = Config { limits: Limits::default(), tokens: 1..64 };
    let mut driver = Mio::observed(device, poll.registry(), config, trace)?;
    let mut agent = Agent::begin(driver.drive(), address, plan, log, listens)?;
    let mut stall = Stall::new();
    let mut registered = false;
    while !agent.is_done() {
        match poll.poll(&mut events, driver.timeout(Some(stall.slice()))) {
            Err(error) if error.kind() != std::io::ErrorKind::Interrupted => return Err(error.into()),
            Ok(()) | Err(_) => {}
        }
        let mut completions = false;
        for event in &events {
            completions |= !driver.handle(event);
        }
        let _look = driver.turn();
        let events = agent.take_events(driver.drive())?;
        if let (false, Some(fd)) = (registered, agent.cq_fd()) {
            poll.registry().register(&mut SourceFd(&fd.as_raw_fd()), CQ, Interest::READABLE)?;
            registered = true;
        }
        if completions {
            agent.run(driver.drive())?;
        }
        stall.check(events || completions || agent.cq_fd().is_none())?;
    }
    Ok(())
}
