//! The driver's descriptor in an io_uring, by multishot polls: one submission, then a completion per edge.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};

use cmid_epoll::proto::Next;
use cmid_epoll::proto::datapath::DataPath;
use cmid_epoll::{Config, Epoll};
use io_uring::{IoUring, cqueue, opcode, types};

use crate::Program;

/// The user data of the two polls.
const DRIVER: u64 = 0;
const CQ: u64 = 1;

/// Submits a multishot poll of a descriptor.
#[allow(unsafe_code, reason = "io-uring has no safe submission")]
fn poll(ring: &mut IoUring, fd: RawFd, user_data: u64) -> io::Result<()> {
    let entry = opcode::PollAdd::new(types::Fd(fd), 1 /* POLLIN */).multi(true).build().user_data(user_data);
    // SAFETY: the entry of a poll contains no pointers, only the number of a descriptor, which the kernel checks.
    unsafe { ring.submission().push(&entry) }.map_err(io::Error::other)
}

/// # Errors
/// The errors of the program and of the ring.
pub fn run<D: DataPath>(device: D, address: SocketAddr) -> io::Result<()> {
    let mut driver = Epoll::new(device, Config::default())?;
    let mut program = Program::start(driver.drive(), address)?;
    let mut ring = IoUring::new(8)?;
    poll(&mut ring, driver.as_raw_fd(), DRIVER)?;
    let mut has_cq = false;
    loop {
        // A completion reports an edge, so the turns are repeated until one has no work.
        while let Next::Deliver | Next::Again = driver.turn()? {
            program.take_events(driver.drive())?;
        }
        if program.is_done() {
            return Ok(());
        }
        if let Some(fd) = program.cq_fd().filter(|_| !has_cq) {
            poll(&mut ring, fd.as_raw_fd(), CQ)?;
            has_cq = true;
        }
        ring.submit_and_wait(1)?;
        let ready: Vec<_> = ring.completion().map(|done| (done.user_data(), cqueue::more(done.flags()))).collect();
        for (user_data, more) in ready {
            if user_data == CQ {
                program.take_completions(driver.drive())?;
            }
            let fd = if user_data == CQ { program.cq_fd().map(|fd| fd.as_raw_fd()) } else { Some(driver.as_raw_fd()) };
            // The kernel may end a multishot poll at any time.
            if let Some(fd) = fd.filter(|_| !more) {
                poll(&mut ring, fd, user_data)?;
            }
        }
    }
}
