//! A task that waits with async-io, which is built on the crate `polling`.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use async_io::Async;
use cmid_epoll::proto::Next;
use cmid_epoll::proto::datapath::DataPath;
use cmid_epoll::{Config, Epoll};

use crate::Program;

/// # Errors
/// The errors of the program and of the wait.
pub fn run<D: DataPath>(device: D, address: SocketAddr) -> io::Result<()> {
    async_io::block_on(async {
        let mut driver = Epoll::new(device, Config::default())?;
        let mut program = Program::start(driver.drive(), address)?;
        // The descriptor is never read, so it need not be made non-blocking.
        let readable = Async::new_nonblocking(driver.as_fd().try_clone_to_owned()?)?;
        let mut cq: Option<Async<OwnedFd>> = None;
        loop {
            // async-io reports readiness once per wait, so the turns are repeated until one has no work.
            while let Next::Deliver | Next::Again = driver.turn()? {
                program.take_events(driver.drive())?;
            }
            if program.is_done() {
                return Ok(());
            }
            match (&cq, program.cq_fd()) {
                (None, Some(fd)) => cq = Some(Async::new_nonblocking(fd.try_clone_to_owned()?)?),
                (None, None) => readable.readable().await?,
                (Some(completions), _) => {
                    futures_lite::future::or(readable.readable(), completions.readable()).await?;
                    program.take_completions(driver.drive())?;
                }
            }
        }
    })
}
