//! The driver's descriptor in an epoll instance of the application. Any loop with descriptors works like this.

use std::io;
use std::net::SocketAddr;

use cmid_epoll::proto::Next;
use cmid_epoll::proto::datapath::DataPath;
use cmid_epoll::{Config, Epoll};
use rustix::event::epoll;
use rustix::io::retry_on_intr;

use crate::Program;

/// Any descriptor ends the wait; the turns find out what it was.
const NO_DATA: epoll::EventData = epoll::EventData::new_u64(0);

/// # Errors
/// The errors of the program and of epoll.
pub fn run<D: DataPath>(device: D, address: SocketAddr) -> io::Result<()> {
    let mut driver = Epoll::new(device, Config::default())?;
    let mut program = Program::start(driver.drive(), address)?;
    let outer = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&outer, &driver, NO_DATA, epoll::EventFlags::IN)?;
    let mut reports: Vec<epoll::Event> = Vec::with_capacity(8);
    while !program.turn(driver.drive(), &mut |cq| Ok(epoll::add(&outer, cq, NO_DATA, epoll::EventFlags::IN)?))? {
        // After the requests of the program: a turn arms the descriptor for their events and deadlines.
        if let Next::Deliver | Next::Again = driver.turn()? {
            continue;
        }
        reports.clear();
        retry_on_intr(|| epoll::wait(&outer, rustix::buffer::spare_capacity(&mut reports), None))?;
    }
    Ok(())
}
