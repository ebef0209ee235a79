//! The ping in a mio `Poll`: the driver's channels and the CQ side by side.

use std::os::fd::AsRawFd;

use anyhow::Result;
use cmid_mio::{Config, Mio};
use cmid_proto::Limits;
use cmid_proto::datapath::DataPath;
use cmid_trace::Trace;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};

use crate::agent::{Agent, SLICE};
use crate::on_driver::Side;

/// The token of the CQ; the driver has the tokens from 1 on.
const CQ: Token = Token(0);

pub(crate) fn ping<D: DataPath>(device: D, trace: Option<Trace>, side: Side) -> Result<()> {
    let mut poll = Poll::new()?;
    let mut events = Events::with_capacity(64);
    let config = Config { limits: Limits::default(), tokens: 1..64 };
    let mut driver = Mio::observed(device, poll.registry(), config, trace)?;
    let mut agent = Agent::begin(driver.drive(), side)?;
    let mut registered = false;
    while !agent.is_done() {
        match poll.poll(&mut events, driver.timeout(Some(SLICE))) {
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
        agent.check(events || completions)?;
    }
    Ok(())
}
