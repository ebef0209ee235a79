//! Each command of a connection with a QP fails once, as in `tests/kernel_failures`. No QP is leaked, and a QP that
//! could not be completed does not stay in use.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cmid_proto::{CmEvent, ConnParam, DeviceLayer as _, Ece, Errno, Error, IdKey, Outcome, PortSpace};

use crate::kernel::abi::QpAttr;
use crate::kernel::qp::{Group, QueuePair};

#[path = "../../tests/kernel_failures/scripted.rs"]
#[allow(dead_code, reason = "for three tests")]
mod scripted;
#[path = "../../tests/kernel_failures/world.rs"]
#[allow(dead_code, reason = "for three tests")]
mod world;

use scripted::{ACCEPT, CONNECT, GET_EVENT, INIT_QP_ATTR, QUERY, Scripted};
use world::{Ended, NEVER, World, local, on};

/// Counts how often it is moved to the error state. Refuses one change if it is told to.
#[derive(Default)]
pub(super) struct FakeQp {
    stopped: AtomicUsize,
    /// The times that it was moved to its error state on its id: windows of its requests stay.
    failed: AtomicUsize,
    /// How often it was told that its device is removed.
    pub(super) removed: AtomicUsize,
    changes: AtomicUsize,
    refused: Option<(usize, Errno)>,
}

impl FakeQp {
    fn change(&self) -> Outcome {
        let change = self.changes.fetch_add(1, Ordering::Relaxed);
        self.refused.filter(|(nth, _)| *nth == change).map_or(Ok(()), |(_, errno)| Err(errno))
    }
}

impl QueuePair for FakeQp {
    fn num(&self) -> u32 {
        7
    }

    fn uses_srq(&self) -> bool {
        false
    }

    fn modify(&self, _: &QpAttr) -> Outcome {
        self.change()
    }

    fn stop(&self) {
        self.stopped.fetch_add(1, Ordering::Relaxed);
    }

    fn fail(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    fn note_depth(&self, _: u8) {}

    fn note_removal(&self) {
        self.removed.fetch_add(1, Ordering::Relaxed);
    }

    fn shut_down(&self) -> Outcome {
        Ok(())
    }

    fn attach_group(&self, _: Group) -> Outcome {
        self.change()
    }

    fn detach_group(&self, _: Group) {}

    fn ece(&self) -> Result<Ece, Errno> {
        Ok(Ece::default())
    }

    fn set_ece(&self, _: Ece) -> Outcome {
        Ok(())
    }
}

type Life = fn(&mut World, &Arc<FakeQp>) -> Result<(), Ended>;

fn attach(world: &mut World, id: IdKey, qp: &Arc<FakeQp>) -> Result<(), Ended> {
    let qp = Arc::clone(qp);
    world
        .request("create_qp", id, |drive| {
            drive.attach_qp(id, |device, attaching| Ok(device.inner_mut().attach_qp(attaching.id(), |_, _| Ok(qp))?))
        })
        .map(drop)
}

fn active(world: &mut World, qp: &Arc<FakeQp>) -> Result<(), Ended> {
    let id = world.create(PortSpace::Tcp)?;
    world.resolves(id)?;
    attach(world, id, qp)?;
    world.request("connect", id, |drive| drive.connect(id, ConnParam::default(), b"hello", NEVER))?;
    let _ = world.event(CmEvent::Established)?;
    world.disconnects(id)
}

fn passive(world: &mut World, qp: &Arc<FakeQp>) -> Result<(), Ended> {
    let listener = world.listener()?;
    let id = world.event(CmEvent::ConnectRequest)?.id;
    attach(world, id, qp)?;
    world.request("accept", id, |drive| drive.accept(id, ConnParam::default(), b"welcome", NEVER))?;
    let _ = world.event(CmEvent::Established)?;
    world.disconnects(id)?;
    world.destroys(listener)
}

/// Runs one connection, and checks that its id has dropped the QP. Returns the result, and how often the QP was
/// stopped.
fn live(life: Life, kernel: &Rc<RefCell<Scripted>>) -> (Result<(), Ended>, usize) {
    live_with(life, kernel, FakeQp::default())
}

fn live_with(life: Life, kernel: &Rc<RefCell<Scripted>>, qp: FakeQp) -> (Result<(), Ended>, usize) {
    let qp = Arc::new(qp);
    let ended = on(kernel, || {
        let mut world = World::new(kernel);
        let ended = life(&mut world, &qp);
        world.end();
        ended
    });
    assert_eq!(Arc::strong_count(&qp), 1, "the QP is let go: {ended:?}");
    let [stopped, failed] = [&qp.stopped, &qp.failed].map(|times| times.load(Ordering::Relaxed));
    assert!(stopped <= 1 && failed <= 1, "it leaves its id once: {ended:?}, {stopped}, {failed}");
    (ended, stopped + failed)
}

/// Fails each command of one connection.
fn fail_each(life: Life) {
    let whole = Rc::new(RefCell::new(Scripted::default()));
    let (ended, stopped) = live(life, &whole);
    // A QP with another owner is stopped when its id drops it.
    assert!(ended.is_ok() && stopped == 1, "without a failure: {ended:?}, stopped {stopped} times");
    let (commands, mut of_qp) = (whole.borrow().commands, 0);
    for nth in 1..commands {
        for errno in [Errno::ENOMEM, Errno::EINVAL, Errno::ENODEV, Errno::EACCES, Errno::EINTR] {
            let kernel = Rc::new(RefCell::new(Scripted::failing(nth, errno)));
            let (ended, stopped) = live(life, &kernel);
            let command = kernel.borrow().failed.expect("the command is made");
            of_qp += usize::from(command == INIT_QP_ATTR);
            judge(command, errno, &ended, stopped);
        }
    }
    assert!(of_qp > 10, "{of_qp} failures of INIT_QP_ATTR");
}

fn judge(command: u32, errno: Errno, ended: &Result<(), Ended>, stopped: usize) {
    let what = format!("command {command} failed with {errno}: {ended:?}, stopped {stopped} times");
    match ended {
        // The transport of the id may stay unknown.
        Ok(()) => assert!([GET_EVENT, QUERY].contains(&command) || errno == Errno::EINVAL, "{what}"),
        Err(Ended::Request(_, _, Error::Failed(failure))) => assert_eq!(failure.errno, errno, "{what}"),
        // Stopped, and dropped when its id is destroyed.
        Err(Ended::NotCompleted(-1)) => assert!([ACCEPT, INIT_QP_ATTR].contains(&command) && stopped == 2, "{what}"),
        Err(Ended::Event(CmEvent::ConnectRequest)) => assert_eq!(stopped, 0, "{what}"),
        Err(Ended::Event(CmEvent::AddrResolved | CmEvent::RouteResolved)) => {
            assert_eq!((command, stopped), (QUERY, 0), "{what}");
        }
        Err(Ended::Request(..) | Ended::Event(_) | Ended::NotCompleted(_)) => panic!("{what}"),
    }
    if command == CONNECT {
        assert_eq!(stopped, 1, "{what}");
    }
}

#[test]
fn active_life_with_a_qp() {
    fail_each(active);
}

#[test]
fn passive_life_with_a_qp() {
    fail_each(passive);
}

/// Ends with the status of MULTICAST_ERROR.
fn member(world: &mut World, qp: &Arc<FakeQp>) -> Result<(), Ended> {
    let id = world.create(PortSpace::Udp)?;
    world.request("bind_addr", id, |drive| drive.bind(id, local()))?;
    attach(world, id, qp)?;
    let at = ([239, 1, 1, 1], 0).into();
    let _ = world.request("join_multicast", id, |drive| drive.join(id, at, false, NEVER))?;
    world.event(CmEvent::MulticastError).map(|event| Err(Ended::NotCompleted(event.status)))?
}

#[test]
fn the_errno_of_a_qp_that_cannot_be_changed_is_in_the_event() {
    // The first change, of three with a datagram QP, is at its creation.
    for (life, changes) in [(active as Life, 1..3), (member, 3..4)] {
        for nth in changes {
            for errno in [Errno::EINVAL, Errno::ENOMEM, Errno::ENODEV, Errno::EPERM] {
                let qp = FakeQp { refused: Some((nth, errno)), ..FakeQp::default() };
                let (ended, stopped) = live_with(life, &Rc::default(), qp);
                let Err(Ended::NotCompleted(status)) = ended else { panic!("change {nth}: {ended:?}") };
                assert_eq!((status, stopped), (-errno.0, 2 - nth / 3), "change {nth}");
            }
        }
    }
}
