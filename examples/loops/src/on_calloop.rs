//! The driver's descriptor as a source of calloop.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use calloop::generic::Generic;
use calloop::{EventLoop, Interest, Mode, PostAction};
use cmid_epoll::proto::Next;
use cmid_epoll::proto::datapath::DataPath;
use cmid_epoll::{Config, Epoll};

use crate::Program;

/// # Errors
/// The errors of the program and of the loop.
pub fn run<D: DataPath>(device: D, address: SocketAddr) -> io::Result<()> {
    let mut driver = Epoll::new(device, Config::default())?;
    let mut program = Program::start(driver.drive(), address)?;
    let mut events: EventLoop<'_, ()> = EventLoop::try_new().map_err(io::Error::other)?;
    let handle = events.handle();
    // The turns after the dispatch find out which descriptor it was.
    let mut watch = |fd: BorrowedFd<'_>| {
        let source = Generic::new(fd.try_clone_to_owned()?, Interest::READ, Mode::Level);
        let inserted = handle.insert_source(source, |_, _, ()| Ok(PostAction::Continue));
        inserted.map(drop).map_err(io::Error::other)
    };
    watch(driver.as_fd())?;
    while !program.turn(driver.drive(), &mut watch)? {
        // After the requests of the program: a turn arms the descriptor for their events and deadlines.
        if let Next::Deliver | Next::Again = driver.turn()? {
            continue;
        }
        events.dispatch(None, &mut ()).map_err(io::Error::other)?;
    }
    Ok(())
}
