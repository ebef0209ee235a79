//! A task that waits with async-io, which is built on the crate `polling`.

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::Poll;

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
        // The descriptors are never read, so they need not be made non-blocking.
        let mut fds = vec![Async::new_nonblocking(driver.as_fd().try_clone_to_owned()?)?];
        while !program.turn(driver.drive(), &mut |cq| {
            fds.push(Async::new_nonblocking(cq.try_clone_to_owned()?)?);
            Ok(())
        })? {
            // async-io reports readiness once per wait, so the turns are repeated until one has no work.
            if let Next::Deliver | Next::Again = driver.turn()? {
                continue;
            }
            let mut waits: Vec<_> = fds.iter().map(Async::readable).collect();
            poll_fn(|context| {
                let ready = waits.iter_mut().find_map(|wait| match Pin::new(wait).poll(context) {
                    Poll::Ready(ready) => Some(ready),
                    Poll::Pending => None,
                });
                ready.map_or(Poll::Pending, Poll::Ready)
            })
            .await?;
        }
        Ok(())
    })
}
