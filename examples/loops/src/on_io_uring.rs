//! The driver's descriptor in an io_uring, by multishot polls: one submission, then a completion per edge.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};

use cmid_epoll::proto::Next;
use cmid_epoll::proto::datapath::DataPath;
use cmid_epoll::{Config, Epoll};
use io_uring::{IoUring, cqueue, opcode, types};

use crate::Program;

/// Submits a multishot poll of a descriptor, which is its user data.
#[allow(unsafe_code, reason = "io-uring has no safe submission")]
fn poll(ring: &mut IoUring, fd: RawFd) -> io::Result<()> {
    let entry = opcode::PollAdd::new(types::Fd(fd), 1 /* POLLIN */).multi(true).build().user_data(fd as u64);
    // SAFETY: the entry of a poll contains no pointers, only the number of a descriptor, which the kernel checks.
    unsafe { ring.submission().push(&entry) }.map_err(io::Error::other)
}

/// # Errors
/// The errors of the program and of the ring.
pub fn run<D: DataPath>(device: D, address: SocketAddr) -> io::Result<()> {
    let mut driver = Epoll::new(device, Config::default())?;
    let mut program = Program::start(driver.drive(), address)?;
    let mut ring = IoUring::new(8)?;
    poll(&mut ring, driver.as_raw_fd())?;
    while !program.turn(driver.drive(), &mut |cq| poll(&mut ring, cq.as_raw_fd()))? {
        // A completion reports an edge, so the turns are repeated until one has no work.
        if let Next::Deliver | Next::Again = driver.turn()? {
            continue;
        }
        ring.submit_and_wait(1)?;
        // The kernel may end a multishot poll at any time.
        let ended = ring.completion().filter(|done| !cqueue::more(done.flags()));
        let fds: Vec<_> = ended.filter_map(|done| RawFd::try_from(done.user_data()).ok()).collect();
        fds.into_iter().try_for_each(|fd| poll(&mut ring, fd))?;
    }
    Ok(())
}
