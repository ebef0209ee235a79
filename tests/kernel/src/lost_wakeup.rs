//! Shows, with librdmacm's own calls only, that `rdma_migrate_id` does not wake a waiter on the new channel.
//!
//! The kernel moves the unread events of the id to the new channel (`ucma_migrate_id`), but wakes no waiter: only new
//! events do. So a thread that already waits there, in `epoll_wait` or `poll`, continues to sleep, while a fresh
//! `poll` finds the descriptor readable. Therefore the new channel must be drained after a migration.
//!
//! Run it by `cargo xtask softroce -- target/release/kernel-lost-wakeup`. It needs a device with the addresses
//! 10.99.0.1 and 10.99.0.2. It ends with status 1 if the kernel behaves otherwise (then the kernel has been fixed).
#![expect(unsafe_code, reason = "it calls C")]
#![allow(clippy::print_stdout, reason = "its output is what it is for")]

mod c;

use std::os::fd::RawFd;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use std::{ptr, thread};

use c::{Channel, address, check};
use libc::{c_int, epoll_event, pollfd};
use rdma_sys::{
    rdma_ack_cm_event, rdma_cm_event_type, rdma_cm_id, rdma_destroy_id, rdma_get_cm_event, rdma_migrate_id,
    rdma_resolve_addr,
};

const WAIT_MS: c_int = 500;

fn main() -> ExitCode {
    let level = lost("level-triggered epoll", libc::EPOLLIN as u32);
    let edge = lost("edge-triggered epoll", (libc::EPOLLIN | libc::EPOLLET) as u32);
    let control = new_event_wakes();
    if level && edge && control {
        println!("as expected: the wake-up is lost, the event is not");
        ExitCode::SUCCESS
    } else {
        println!("NOT as expected");
        ExitCode::FAILURE
    }
}

/// Whether a waiter that began before the migration slept through it, and a fresh poll found the event.
fn lost(name: &str, interest: u32) -> bool {
    let (a, b) = (Channel::open(), Channel::open());
    let id = resolving(&a);
    assert_eq!(poll(a.fd(), 5_000), 1, "ADDR_RESOLVED is there, unread");
    assert_eq!(poll(b.fd(), 0), 0, "nothing on the new channel");

    let fd = b.fd();
    let waiter = thread::spawn(move || wait(fd, interest));
    // The waiter sleeps well before the migration and well after it.
    thread::sleep(Duration::from_millis(WAIT_MS as u64 / 3));
    // SAFETY: the id and both channels are alive, and no event of the id was taken, so it waits for no ack.
    check("rdma_migrate_id", unsafe { rdma_migrate_id(id, b.0) });
    let (woken, waited) = waiter.join().expect("the waiter");
    let (old, new) = (poll(a.fd(), 0), poll(b.fd(), 0));

    let mut event = ptr::null_mut();
    // SAFETY: the channel is open, there is a place for the result, and it has an event, so it does not block.
    check("rdma_get_cm_event", unsafe { rdma_get_cm_event(b.0, &raw mut event) });
    // SAFETY: the event was just reported and is acked once, after its last use; the id is destroyed once, with nothing
    // outstanding, before its channel.
    let kind = unsafe {
        let kind = (*event).event;
        rdma_ack_cm_event(event);
        rdma_destroy_id(id);
        kind
    };
    let resolved = kind == rdma_cm_event_type::RDMA_CM_EVENT_ADDR_RESOLVED;
    println!(
        "{name}: the waiter {} after {} ms; then poll(old) = {old}, poll(new) = {new}, and the event is {}",
        if woken { "WOKE" } else { "timed out" },
        waited.as_millis(),
        if resolved { "ADDR_RESOLVED" } else { "ANOTHER" },
    );
    !woken && waited.as_millis() >= WAIT_MS as u128 && old == 0 && new == 1 && resolved
}

/// The control: the same waiter wakes for a new event on its channel.
fn new_event_wakes() -> bool {
    let b = Channel::open();
    let fd = b.fd();
    let waiter = thread::spawn(move || wait(fd, libc::EPOLLIN as u32));
    thread::sleep(Duration::from_millis(WAIT_MS as u64 / 3));
    let id = resolving(&b);
    let (woken, waited) = waiter.join().expect("the waiter");
    // SAFETY: the id is alive, is destroyed once, and no event of it was taken.
    check("rdma_destroy_id", unsafe { rdma_destroy_id(id) });
    println!(
        "control, a new event: the waiter {} after {} ms",
        if woken { "woke" } else { "SLEPT" },
        waited.as_millis()
    );
    woken
}

impl Channel {
    fn fd(&self) -> RawFd {
        // SAFETY: the channel is open.
        unsafe { (*self.0).fd }
    }
}

/// An id with an ADDR_RESOLVED that will arrive on the channel.
fn resolving(channel: &Channel) -> *mut rdma_cm_id {
    let id = channel.id();
    let (mut src, mut dst) = (address([10, 99, 0, 1], 0), address([10, 99, 0, 2], 20_000));
    let (src, dst) = ((&raw mut src).cast(), (&raw mut dst).cast());
    // SAFETY: the id and its channel are alive, and the addresses are read during the call.
    check("rdma_resolve_addr", unsafe { rdma_resolve_addr(id, src, dst, 2_000) });
    id
}

/// Whether one `epoll_wait` returned an event, and how long it took.
fn wait(fd: RawFd, interest: u32) -> (bool, Duration) {
    let mut event = epoll_event { events: interest, u64: 0 };
    // SAFETY: the event lives during the calls, and the epoll descriptor is closed once.
    unsafe {
        let epoll = libc::epoll_create1(libc::EPOLL_CLOEXEC);
        assert!(epoll >= 0, "epoll_create1");
        check("epoll_ctl", libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, &raw mut event));
        let started = Instant::now();
        // A third of the time before the migration, and the rest after it.
        let found = libc::epoll_wait(epoll, &raw mut event, 1, WAIT_MS + WAIT_MS / 3);
        let waited = started.elapsed();
        libc::close(epoll);
        assert!(found >= 0, "epoll_wait");
        (found == 1, waited)
    }
}

fn poll(fd: RawFd, ms: c_int) -> c_int {
    let mut entry = pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, which lives during the call.
    unsafe { libc::poll(&raw mut entry, 1, ms) }
}
