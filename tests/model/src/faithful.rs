//! The application submits any request; the device keeps its contract. There are no faults, no events are lost, every
//! request ends once and in time, and all work ends.

use std::collections::BTreeSet;

use cmid_proto::State;

use crate::input::Input;
use crate::model::onward;
use crate::model::world::World;
use crate::script;

/// Runs the input.
pub fn run(data: &[u8]) {
    states(data);
}

/// Runs the input, and returns the states that its ids were in.
pub fn states(data: &[u8]) -> BTreeSet<State> {
    let mut input = Input::new(data);
    let limits = script::limits(&mut input);
    let mut world = World::new(1, limits);
    while !input.is_over() {
        step(&mut world, &mut input);
        world.look();
    }
    let seen = std::mem::take(&mut world.seen);
    world.rest();
    seen
}

fn step(world: &mut World, input: &mut Input<'_>) {
    match input.below(16) {
        0 => world.hosts[0].open_channel(&mut world.kernel, script::acks(input)),
        1 => {
            let on = if input.once_in(3) { None } else { world.some_channel(0, input) };
            world.hosts[0].create_id(&mut world.kernel, on, script::port_space(input));
        }
        2..=4 => onward::lead(world, 0, input),
        5 | 6 => world.request(0, input),
        7 => world.trouble(0, input),
        8 | 9 => world.happen(0, input),
        10 | 11 => drop(world.read(0)),
        12 => drop(world.some_home(0, input).map(|home| world.hosts[0].take_event(home))),
        13 => drop(world.hosts[0].ack(&mut world.kernel, input.below(8))),
        14 => world.pass(input.below(64) as u64),
        _ => rarely(world, input),
    }
}

fn rarely(world: &mut World, input: &mut Input<'_>) {
    // The choices below the pauses keep their numbers for the committed inputs.
    match input.below(256) {
        224..232 => {
            let late = !world.hosts[0].is_late;
            world.hosts[0].be_late(&mut world.kernel, late);
        }
        232..240 => drop(world.some_line(0, input).map(|line| world.hosts[0].pause(line))),
        240.. => world.hosts[0].resume(),
        choice => match choice % 4 {
            0 => world.settle(),
            1 => world.close(0, input),
            2 => drop(world.some_id(0, input).map(|id| world.release(0, id))),
            _ => world.adopt(0),
        },
    }
}
