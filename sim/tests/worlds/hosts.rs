//! Hosts that die and start again, their disks and their clocks.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use cmid_proto::datapath::prelude::*;
use cmid_proto::datapath::{Access, CreateError};
use cmid_proto::{Acks, Errno, PortSpace, Time};
use cmid_sim::{Config, Fault, Node, Turn, World, check, find};

use crate::client::{Client, Mistake, outlived};
use crate::server::Server;

const SECOND: Duration = Duration::from_secs(1);

/// A program that appends numbers to its file, and publishes those that it takes for safe. When it starts, they are there.
fn writer(node: &Node, safe: Rc<Cell<u64>>, flushes: bool) -> impl FnMut(Time) -> Turn + use<> {
    let (node, mut flushed_at) = (node.clone(), None);
    // What follows a write that is lost or torn is of no use.
    let mut count = numbers(&node);
    assert!(count >= safe.get(), "{count} numbers of {} are left", safe.get());
    node.disk().truncate("log", count as usize * 8);
    move |now| {
        if let Some(due) = flushed_at.filter(|due| *due > now) {
            return Turn::Wait(Some(due));
        }
        if flushed_at.is_some() {
            safe.set(safe.get().max(count));
        }
        count += 1;
        node.disk().append("log", &count.to_be_bytes());
        flushed_at = Some(if flushes { node.disk().flush() } else { now.after(Duration::from_millis(4)) });
        Turn::Wait(flushed_at)
    }
}

/// How many numbers a log has, from 1 on.
fn numbers(node: &Node) -> u64 {
    let log = node.disk().read("log");
    log.chunks(8).zip(1_u64..).take_while(|(bytes, number)| *bytes == number.to_be_bytes()).count() as u64
}

/// A program that says that numbers are safe keeps them, whatever happens to its host.
fn keeps_numbers(world: &mut World, flushes: bool) {
    let safe = Rc::new(Cell::new(0));
    let published = Rc::clone(&safe);
    world.host("writer", move |node| writer(node, Rc::clone(&published), flushes));
    world.chaos(3, SECOND / 2, &[Fault::Crash, Fault::PowerLoss]);
    world.run_for(SECOND);
    assert!(safe.get() > 20);
}

#[test]
fn what_is_flushed_survives_and_what_is_not_may_be_lost() {
    check(0..200, |world| keeps_numbers(world, true));
    let failure = find(0..100, |world| keeps_numbers(world, false)).unwrap();
    assert!(failure.faults.len() == 1 && failure.faults[0].contains("power loss"), "{failure}");
}

#[test]
fn a_write_that_is_not_flushed_is_kept_lost_or_torn() {
    let left = RefCell::new(BTreeSet::new());
    check(0..50, |world| {
        world.host("a", |_: &Node| |_: Time| Turn::Wait(None));
        world.run_for(SECOND);
        let disk = world.node("a").disk().clone();
        disk.write("file", 0, b"1111");
        let safe_at = disk.flush();
        world.run_for(safe_at.since(world.now()));
        disk.write("file", 0, b"2222");
        assert_eq!(disk.read("file"), b"2222");
        world.crash("a");
        assert_eq!(disk.read("file"), b"2222");
        world.lose_power("a");
        left.borrow_mut().insert(disk.read("file"));
        world.replace("a");
        assert!(disk.read("file").is_empty() && world.runs("a"));
    });
    let left = left.into_inner();
    let all: [&[u8]; 5] = [b"2222", b"1111", b"2111", b"2211", b"2221"];
    assert!(left.iter().all(|it| all.contains(&&**it)) && left.len() >= 4, "{left:?}");
}

#[test]
fn a_crash_is_seen_by_the_peer_at_once_and_a_power_loss_by_its_silence() {
    for loses_power in [false, true] {
        check(0..20, |world| {
            let open = Rc::new(Cell::new(0));
            let counted = Rc::clone(&open);
            world.host("server", move |node| Server::counted(node, Rc::clone(&counted)));
            world.host("client", |node| Client::new(node, u64::MAX, Mistake::None));
            world.run_until("connected", SECOND, |_| open.get() == 1);
            if loses_power {
                world.lose_power("client")
            } else {
                world.crash("client")
            }
            world.run_for(Duration::from_millis(1));
            assert_eq!(open.get(), usize::from(loses_power));
            world.restart("client");
            // The server notices the dead connection at the latest when the number that it sends has no answer.
            world.run_until("connected again", SECOND * 5, |_| open.get() == 1);
        });
    }
}

#[test]
fn a_paused_program_takes_no_turn_and_a_skewed_clock_is_what_the_program_sees() {
    check(0..5, |world| {
        let seen = Rc::new(RefCell::new(Vec::new()));
        let log = Rc::clone(&seen);
        world.host("a", move |_: &Node| {
            let log = Rc::clone(&log);
            move |now: Time| {
                log.borrow_mut().push(now);
                Turn::Wait(Some(now.after(SECOND)))
            }
        });
        world.run_for(SECOND / 2);
        world.pause("a", SECOND * 3);
        world.run_for(SECOND);
        assert_eq!(*seen.borrow(), [Time::ZERO]);
        world.run_for(SECOND * 3);
        assert_eq!(*seen.borrow(), [Time::ZERO, Time::ZERO.after(SECOND * 7 / 2), Time::ZERO.after(SECOND * 9 / 2)]);
        world.skew_clock("a", SECOND * 100, 1000);
        world.run_for(SECOND * 10);
        let last = *seen.borrow().last().unwrap();
        assert!(last > Time::ZERO.after(SECOND * 113) && last < Time::ZERO.after(SECOND * 115), "{last}");
    });
}

#[test]
fn a_client_outlives_every_kind_of_fault() {
    check(0..100, |world| {
        world.host("server", Server::new);
        for name in ["a", "b"] {
            world.client(name, |node| Client::new(node, 300, Mistake::None));
        }
        world.chaos(8, SECOND, &outlived());
        world.run(SECOND * 60);
    });
}

/// Every millisecond the program makes all that it needs, and notes what fails.
#[test]
fn devices_go_and_come_back_and_memory_is_short_for_a_moment() {
    let errors = Rc::new(RefCell::new(BTreeSet::new()));
    check(0..30, |world| {
        let (log, works) = (Rc::clone(&errors), Rc::new(Cell::new(false)));
        let state = Rc::clone(&works);
        world.host("a", move |node: &Node| {
            let (node, log, state) = (node.clone(), Rc::clone(&log), Rc::clone(&state));
            move |now: Time| {
                let made = registers(&node);
                state.set(made.is_ok());
                log.borrow_mut().extend(made.err());
                Turn::Wait(Some(now.after(Duration::from_millis(1))))
            }
        });
        world.chaos(6, SECOND / 2, &[Fault::DeviceRemoval, Fault::OutOfMemory]);
        world.run_for(SECOND);
        assert!(works.get());
    });
    assert_eq!(errors.borrow().iter().copied().collect::<Vec<_>>(), [Errno::ENOMEM, Errno::ENODEV]);
}

fn registers(node: &Node) -> Result<(), Errno> {
    let mut drive = node.drive();
    let channel = drive.open_channel(Acks::OnDelivery).map_err(|error| error.errno())?;
    let id = drive.create_id(Some(channel), PortSpace::Tcp).map_err(|error| error.errno())?;
    drive.bind(id, node.addr(9)).map_err(|error| error.errno())?;
    let made = drive.attach_qp(id, |device, to| {
        let pd = device.alloc_pd(to.id())?;
        pd.register(vec![0; 8], Access::LOCAL_WRITE)?;
        Ok::<_, CreateError>(())
    });
    made.map_err(|error| error.errno())
}

#[test]
fn a_program_that_is_woken_gets_a_turn() {
    let mut world = World::new(&Config::default());
    let turns = Rc::new(Cell::new(0));
    let counted = Rc::clone(&turns);
    world.host("a", move |_| {
        let turns = Rc::clone(&counted);
        move |_| {
            turns.set(turns.get() + 1);
            Turn::Wait(None)
        }
    });
    world.run_for(SECOND);
    assert_eq!(turns.get(), 1);
    world.node("a").wake();
    world.run_for(SECOND);
    assert_eq!(turns.get(), 2);
}
