//! Migrations between many channels, to and from synchronous mode, and between two cores on one kernel with
//! interleaved steps. The invariants are those of [`faithful`](crate::faithful). In addition no event is lost,
//! duplicated, out of order or delivered on the old channel after a move, and no id moves while acks are owed.

use cmid_proto::{Acks, PortSpace, Request, Time};

use crate::input::Input;
use crate::model::onward;
use crate::model::world::World;
use crate::script;

/// Runs the input.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let limits = script::limits(&mut input);
    let mut world = World::new(2, limits);
    for host in &mut world.hosts {
        host.open_channel(&mut world.kernel, Acks::OnDelivery);
        host.open_channel(&mut world.kernel, Acks::Explicit);
    }
    while !input.is_over() {
        let at = input.below(2);
        step(&mut world, at, &mut input);
        world.look();
    }
    world.rest();
}

fn step(world: &mut World, at: usize, input: &mut Input<'_>) {
    match input.below(20) {
        0 => create(world, at, input),
        1..=3 => onward::lead(world, at, input),
        // The state that moves with an id: events at any time, and requests of a listener.
        4..=6 => world.happen(at, input),
        7 | 8 => move_one(world, at, input),
        9..=11 => world.trouble(at, input),
        12 | 13 => drop(world.read(at)),
        14 | 15 => drop(world.some_home(at, input).map(|home| world.hosts[at].take_event(home))),
        16 => drop(world.hosts[at].ack(&mut world.kernel, input.below(8))),
        17 => drop(world.some_id(at, input).map(|id| world.release(at, id))),
        18 => world.adopt(at),
        _ => rarely(world, at, input),
    }
}

fn create(world: &mut World, at: usize, input: &mut Input<'_>) {
    let on = if input.once_in(4) { None } else { world.some_channel(at, input) };
    let space = if input.once_in(8) { PortSpace::Udp } else { PortSpace::Tcp };
    world.hosts[at].create_id(&mut world.kernel, on, space);
}

fn move_one(world: &mut World, at: usize, input: &mut Input<'_>) {
    let Some(id) = world.some_id(at, input) else { return };
    let to = if input.once_in(3) { None } else { world.some_channel(at, input) };
    let deadline = if input.once_in(4) { script::deadline(input, world.hosts[at].now) } else { Time::NEVER };
    world.hosts[at].submit(&mut world.kernel, id, Request::Migrate { to }, deadline);
}

fn rarely(world: &mut World, at: usize, input: &mut Input<'_>) {
    match input.below(6) {
        0 => world.hosts[at].open_channel(&mut world.kernel, script::acks(input)),
        1 => world.close(at, input),
        2 => world.pass(input.below(64) as u64),
        3 => world.request(at, input),
        4 => world.settle(),
        _ => {
            // Moves an id to the other core in one step, as between threads.
            let Some(id) = world.some_id(at, input) else { return };
            world.release(at, id);
            world.look();
            world.adopt(1 - at);
        }
    }
}
