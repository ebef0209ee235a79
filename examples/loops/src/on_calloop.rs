//! The driver's descriptor as a source of calloop.

use std::io;
use std::net::SocketAddr;

use calloop::generic::Generic;
use calloop::{EventLoop, Interest, Mode, PostAction};
use cmid_epoll::proto::Next;
use cmid_epoll::proto::datapath::DataPath;
use cmid_epoll::{Config, Epoll};

use crate::Program;

/// The data that the callbacks share.
struct State<D: DataPath> {
    driver: Epoll<D>,
    program: Program<D>,
    result: io::Result<()>,
}

impl<D: DataPath> State<D> {
    fn turn(&mut self) -> io::Result<()> {
        while let Next::Deliver | Next::Again = self.driver.turn()? {
            self.program.take_events(self.driver.drive())?;
        }
        Ok(())
    }
}

/// # Errors
/// The errors of the program and of the loop.
pub fn run<D: DataPath>(device: D, address: SocketAddr) -> io::Result<()> {
    let mut driver = Epoll::new(device, Config::default())?;
    let program = Program::start(driver.drive(), address)?;
    let mut events: EventLoop<'_, State<D>> = EventLoop::try_new().map_err(io::Error::other)?;
    let source = |fd| Generic::new(fd, Interest::READ, Mode::Level);
    let fd = std::os::fd::AsFd::as_fd(&driver).try_clone_to_owned()?;
    let inserted = events.handle().insert_source(source(fd), |_, _, state| {
        state.result = state.turn();
        Ok(PostAction::Continue)
    });
    inserted.map_err(io::Error::other)?;
    let mut state = State { driver, program, result: Ok(()) };
    let mut has_cq = false;
    state.turn()?;
    while !state.program.is_done() {
        if let Some(fd) = state.program.cq_fd().filter(|_| !has_cq) {
            let inserted = events.handle().insert_source(source(fd.try_clone_to_owned()?), |_, _, state| {
                // The turn arms the driver's descriptor for the event that follows.
                state.result = state.program.take_completions(state.driver.drive()).and_then(|()| state.turn());
                Ok(PostAction::Continue)
            });
            inserted.map_err(io::Error::other)?;
            has_cq = true;
        }
        events.dispatch(None, &mut state).map_err(io::Error::other)?;
        std::mem::replace(&mut state.result, Ok(()))?;
    }
    Ok(())
}
