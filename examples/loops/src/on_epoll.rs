//! The driver's descriptor in an epoll instance of the application. Any loop with descriptors works like this.

use std::io;
use std::net::SocketAddr;

use cmid_epoll::proto::Next;
use cmid_epoll::proto::datapath::DataPath;
use cmid_epoll::{Config, Epoll};
use rustix::event::epoll;

use crate::Program;

/// The descriptors of the loop.
const DRIVER: u64 = 0;
const CQ: u64 = 1;

/// # Errors
/// The errors of the program and of epoll.
pub fn run<D: DataPath>(device: D, address: SocketAddr) -> io::Result<()> {
    let mut driver = Epoll::new(device, Config::default())?;
    let mut program = Program::start(driver.drive(), address)?;
    let outer = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&outer, &driver, epoll::EventData::new_u64(DRIVER), epoll::EventFlags::IN)?;
    let mut has_cq = false;
    let mut reports = Vec::with_capacity(8);
    loop {
        // Also needed after requests: a turn arms the descriptor for their events and deadlines.
        while let Next::Deliver | Next::Again = driver.turn()? {
            program.take_events(driver.drive())?;
        }
        if program.is_done() {
            return Ok(());
        }
        if let Some(fd) = program.cq_fd().filter(|_| !has_cq) {
            epoll::add(&outer, fd, epoll::EventData::new_u64(CQ), epoll::EventFlags::IN)?;
            has_cq = true;
        }
        reports.clear();
        match epoll::wait(&outer, rustix::buffer::spare_capacity(&mut reports), None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if reports.iter().any(|report: &epoll::Event| report.data.u64() == CQ) {
            program.take_completions(driver.drive())?;
        }
    }
}
