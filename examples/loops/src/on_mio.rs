//! In a mio `Poll` that the application owns.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use cmid_mio::proto::datapath::DataPath;
use cmid_mio::proto::{Limits, Next};
use cmid_mio::{Config, Mio};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};

use crate::Program;

/// The token of the CQs. The driver uses tokens from 1000 on.
const CQ: Token = Token(0);

/// # Errors
/// The errors of the program and of the poll.
pub fn run<D: DataPath>(device: D, address: SocketAddr) -> io::Result<()> {
    let (mut poll, mut events) = (Poll::new()?, Events::with_capacity(64));
    let mut driver = Mio::new(device, poll.registry(), Config { limits: Limits::default(), tokens: 1000..1064 })?;
    let mut program = Program::start(driver.drive(), address)?;
    while !program.turn(driver.drive(), &mut |cq| {
        poll.registry().register(&mut SourceFd(&cq.as_raw_fd()), CQ, Interest::READABLE)
    })? {
        if let Next::Deliver | Next::Again = driver.turn() {
            continue;
        }
        match poll.poll(&mut events, driver.timeout(None)) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            // An event of another source is that of a CQ.
            _ => events.iter().for_each(|event| _ = driver.handle(event)),
        }
    }
    Ok(())
}
