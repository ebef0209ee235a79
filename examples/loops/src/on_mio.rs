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

/// The token of the CQ. The driver uses tokens from 1000 on.
const CQ: Token = Token(0);

/// # Errors
/// The errors of the program and of the poll.
pub fn run<D: DataPath>(device: D, address: SocketAddr) -> io::Result<()> {
    let (mut poll, mut events) = (Poll::new()?, Events::with_capacity(64));
    let mut driver = Mio::new(device, poll.registry(), Config { limits: Limits::default(), tokens: 1000..1064 })?;
    let mut program = Program::start(driver.drive(), address)?;
    let mut has_cq = false;
    while !program.is_done() {
        match poll.poll(&mut events, driver.timeout(None)) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        for event in &events {
            if !driver.handle(event) && event.token() == CQ {
                program.take_completions(driver.drive())?;
            }
        }
        while let Next::Deliver | Next::Again = driver.turn() {
            program.take_events(driver.drive())?;
        }
        if let Some(fd) = program.cq_fd().filter(|_| !has_cq) {
            poll.registry().register(&mut SourceFd(&fd.as_raw_fd()), CQ, Interest::READABLE)?;
            has_cq = true;
        }
    }
    Ok(())
}
