//! Once the tables have grown, a connection without a QP on the kernel backend allocates nothing on either side.
//!
//! The test has a process of its own, because the allocator counts for all threads.
#![expect(clippy::expect_used, clippy::panic, reason = "tests")]

#[path = "kernel_failures/scripted.rs"]
#[allow(dead_code, reason = "for both tests")]
mod scripted;
#[path = "kernel_failures/world.rs"]
#[allow(dead_code, reason = "for both tests")]
mod world;

use std::alloc::System;
use std::cell::RefCell;
use std::hint::black_box;
use std::rc::Rc;

use cmid_proto::{CmEvent, PortSpace};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

use crate::scripted::Scripted;
use crate::world::{Ended, NEVER, World, on, param};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// The number of connections made before the allocations are counted. The same number is made while they are counted.
const CONNECTIONS: usize = 1000;

fn active(world: &mut World) -> Result<(), Ended> {
    let id = world.create(PortSpace::Tcp)?;
    world.resolves(id)?;
    world.request("connect", id, |drive| drive.connect(id, param(), b"hello", NEVER))?;
    let _ = world.event(CmEvent::ConnectResponse)?;
    world.request("establish", id, |drive| drive.establish(id))?;
    world.disconnects(id)
}

fn passive(world: &mut World, kernel: &RefCell<Scripted>) -> Result<(), Ended> {
    kernel.borrow_mut().request_again();
    let id = world.event(CmEvent::ConnectRequest)?.id;
    world.request("accept", id, |drive| drive.accept(id, param(), b"welcome", NEVER))?;
    let _ = world.event(CmEvent::Established)?;
    world.disconnects(id)
}

/// Returns a world with a listener that has had one request.
fn listening(kernel: &Rc<RefCell<Scripted>>) -> Result<World, Ended> {
    let mut world = World::new(kernel);
    world.checks = false;
    world.listener()?;
    let id = world.event(CmEvent::ConnectRequest)?.id;
    world.destroys(id)?;
    Ok(world)
}

/// Counts the calls of the allocator in [`CONNECTIONS`] connections, after as many that are not counted.
fn allocations(mut connection: impl FnMut()) -> usize {
    (0..CONNECTIONS).for_each(|_| connection());
    let region = Region::new(ALLOCATOR);
    (0..CONNECTIONS).for_each(|_| connection());
    let change = region.change();
    change.allocations + change.reallocations
}

#[test]
fn connections_without_a_qp_allocate_nothing() {
    // An allocation is counted.
    assert_eq!(allocations(|| drop(black_box(Box::new(1)))), CONNECTIONS);

    let kernel = Rc::new(RefCell::new(Scripted::default()));
    on(&kernel, || {
        let mut world = listening(&kernel).expect("a listener");
        let before = kernel.borrow().commands;
        assert_eq!(allocations(|| active(&mut world).expect("a connection")), 0, "active");
        assert_eq!(allocations(|| passive(&mut world, &kernel).expect("a connection")), 0, "passive");
        // Each connection makes its commands.
        assert!(kernel.borrow().commands - before > 4 * CONNECTIONS * 8);
        assert!(world.end().is_empty());
    });
}
