//! Each command of a connection's life fails once, with each of some errnos.
//!
//! No command panics. The error names the request and the errno. The id keeps its state, has failed or is closed. All
//! remaining objects can be destroyed; the kernel and the process then have none of them left.
#![expect(clippy::expect_used, clippy::panic, reason = "tests")]

#[allow(dead_code, reason = "for both tests")]
mod scripted;
#[allow(dead_code, reason = "for three tests")]
mod world;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::{Mutex, PoisonError};

use cmid_proto::{CmEvent, CmOption, Ece, Errno, Error, Failure, Fault, PortSpace, State};

use crate::scripted::*;
use crate::world::{Ended, NEVER, World, local, on, param};

const ERRNOS: [Errno; 6] = [Errno::ENOMEM, Errno::EINVAL, Errno::ENODEV, Errno::EACCES, Errno::EINTR, Errno::ENXIO];

/// Serializes the tests, because descriptors are counted for the whole process.
static ALONE: Mutex<()> = Mutex::new(());

type Life = fn(&mut World) -> Result<(), Ended>;

fn active(world: &mut World) -> Result<(), Ended> {
    let id = world.create(PortSpace::Tcp)?;
    world.request("set_tos", id, |drive| drive.set_option(id, CmOption::Tos(3)))?;
    world.request("set_ece", id, |drive| drive.set_ece(id, Ece { vendor_id: 1, options: 2 }))?;
    world.request("bind_addr", id, |drive| drive.bind(id, local()))?;
    world.resolves(id)?;
    world.request("connect", id, |drive| drive.connect(id, param(), b"hello", NEVER))?;
    let _ = world.event(CmEvent::ConnectResponse)?;
    world.request("establish", id, |drive| drive.establish(id))?;
    let to = world.channels[1];
    let _ = world.request("migrate_id", id, |drive| drive.migrate(id, Some(to), NEVER))?;
    world.disconnects(id)
}

/// Returns a listener and the id of a request on it.
fn requested(world: &mut World) -> Result<[cmid_proto::IdKey; 2], Ended> {
    let listener = world.listener()?;
    let child = world.event(CmEvent::ConnectRequest)?.id;
    Ok([listener, child])
}

fn passive(world: &mut World) -> Result<(), Ended> {
    let [listener, child] = requested(world)?;
    world.request("accept", child, |drive| drive.accept(child, param(), b"welcome", NEVER))?;
    world.request("notify", child, |drive| drive.notify_established(child))?;
    let _ = world.event(CmEvent::Established)?;
    world.disconnects(child)?;
    world.destroys(listener)
}

fn rejected(world: &mut World) -> Result<(), Ended> {
    let [listener, child] = requested(world)?;
    world.request("reject", child, |drive| drive.reject(child, b"no"))?;
    world.destroys(child)?;
    world.destroys(listener)
}

fn datagrams(world: &mut World) -> Result<(), Ended> {
    let id = world.create(PortSpace::Udp)?;
    world.request("bind_addr", id, |drive| drive.bind(id, local()))?;
    let at = ([239, 1, 1, 1], 0).into();
    let group = world.request("join_multicast", id, |drive| drive.join(id, at, false, NEVER))?;
    let _ = world.event(CmEvent::MulticastJoin)?;
    let _ = world.request("leave_multicast", id, |drive| drive.leave(id, group))?;
    world.destroys(id)
}

/// Counts the open descriptors of the process.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("procfs").count()
}

/// Runs one connection. Returns its result and its faults.
fn live(life: Life, kernel: &Rc<RefCell<Scripted>>) -> (Result<(), Ended>, Vec<Fault>) {
    on(kernel, || {
        let mut world = World::new(kernel);
        let ended = life(&mut world);
        (ended, world.end())
    })
}

/// Fails each command of one connection. Returns the numbers of the commands that failed.
fn fail_each(life: Life) -> BTreeSet<u32> {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let whole = Rc::new(RefCell::new(Scripted::default()));
    let (ended, faults) = live(life, &whole);
    assert!(ended.is_ok() && faults.is_empty(), "without a failure: {ended:?}, {faults:?}");
    let commands = whole.borrow().commands;
    let (before, mut failed) = (descriptors(), BTreeSet::new());
    // The first command opens the device; `kernel-open` checks its errors.
    for nth in 1..commands {
        for errno in ERRNOS {
            let kernel = Rc::new(RefCell::new(Scripted::failing(nth, errno)));
            let (ended, faults) = live(life, &kernel);
            let command = kernel.borrow().failed.expect("the command is made");
            judge(command, errno, &ended, &faults);
            assert_eq!(descriptors(), before, "descriptors after command {command} failed with {errno}");
            failed.insert(command);
        }
    }
    failed
}

/// Returns the requests that make a command.
fn requests(command: u32) -> &'static [&'static str] {
    match command {
        CREATE_ID => &["create_id"],
        DESTROY_ID => &["destroy_id"],
        RESOLVE_IP => &["resolve_addr"],
        RESOLVE_ROUTE => &["resolve_route"],
        CONNECT => &["connect"],
        LISTEN => &["listen"],
        ACCEPT => &["accept", "establish"],
        REJECT => &["reject"],
        DISCONNECT => &["disconnect"],
        SET_OPTION => &["set_tos"],
        NOTIFY => &["notify"],
        LEAVE_MCAST => &["leave_multicast"],
        MIGRATE_ID => &["migrate_id", "listen", "accept"],
        BIND | QUERY => &["bind_addr"],
        JOIN_MCAST => &["join_multicast"],
        other => panic!("command {other}"),
    }
}

/// Checks the errors and events that the application gets after a failure.
fn judge(command: u32, errno: Errno, ended: &Result<(), Ended>, faults: &[Fault]) {
    let what = format!("command {command} failed with {errno}: {ended:?}, {faults:?}");
    match (command, ended) {
        // The next fetch reads the event.
        (GET_EVENT, ended) => {
            assert!(ended.is_ok(), "{what}");
            let reported = matches!(faults, [Fault::Read { errno: read, .. }] if *read == errno);
            assert!(reported || (errno == Errno::EINTR && faults.is_empty()), "{what}");
            return;
        }
        // With EINVAL, the id of a request needs no migration. With others it is destroyed, which rejects the peer.
        (MIGRATE_ID, Ok(())) => assert_eq!(errno, Errno::EINVAL, "{what}"),
        (MIGRATE_ID, Err(Ended::Event(CmEvent::ConnectRequest))) => assert_ne!(errno, Errno::EINVAL, "{what}"),
        // As after the removal of the device.
        (QUERY, Err(Ended::Event(CmEvent::AddrResolved | CmEvent::RouteResolved | CmEvent::ConnectRequest))) => {}
        (command, Err(Ended::Request(name, before, Error::Failed(failure)))) => {
            assert!(requests(command).contains(name), "{what}");
            let call = if command == MIGRATE_ID { "migrate_id" } else { name };
            let state = match (command, *name) {
                // The kernel rejects the peer.
                (ACCEPT, "accept" | "establish") | (REJECT, "reject") | (DESTROY_ID, _) => State::Failed,
                _ => before.unwrap_or(State::Idle),
            };
            assert_eq!(*failure, Failure { call, target: failure.target, state, errno, cause: None }, "{what}");
        }
        _ => panic!("{what}"),
    }
    assert!(faults.is_empty(), "{what}");
}

#[test]
fn active_life() {
    let failed = fail_each(active);
    let all = [
        CREATE_ID,
        DESTROY_ID,
        RESOLVE_IP,
        RESOLVE_ROUTE,
        CONNECT,
        ACCEPT,
        DISCONNECT,
        GET_EVENT,
        SET_OPTION,
        MIGRATE_ID,
        QUERY,
        BIND,
    ];
    assert_eq!(failed, all.into());
}

#[test]
fn passive_life() {
    let failed = fail_each(passive);
    let all = [CREATE_ID, DESTROY_ID, LISTEN, ACCEPT, DISCONNECT, GET_EVENT, NOTIFY, MIGRATE_ID, QUERY, BIND];
    assert_eq!(failed, all.into());
}

#[test]
fn life_of_a_request_that_is_rejected() {
    assert!(fail_each(rejected).contains(&REJECT));
}

#[test]
fn life_with_datagrams() {
    assert!(fail_each(datagrams).is_superset(&[JOIN_MCAST, LEAVE_MCAST].into()));
}
