//! The initiator against a target on the simulator: commands for which a queue has no room, in time or in bytes.

#[allow(dead_code, reason = "the other tests use the rest")]
mod target;
#[allow(dead_code, reason = "the other tests use the rest")]
mod world;

use std::time::Duration;

use cmid_nvme::initiator::{Happened, Loss, On};
use cmid_nvme::wire;
use target::BLOCK;
use world::World;

#[test]
fn commands_that_get_no_room_in_time_lose_the_connection_and_all_end() {
    for (on, reactors) in [(On::Admin, 0), (On::Io, 0), (On::Io, 1)] {
        let mut world = World::live(1, |options| {
            (options.timeout, options.reactors) = (Duration::from_millis(300), reactors);
            options.settings.keep_alive = Duration::from_secs(60);
        });
        // It answers each command, and never tells that it has taken one from the ring.
        world.disk.keeps_heads = true;
        for _ in 0..40 {
            let submitted = match on {
                On::Admin => world.initiator.submit(on, wire::keep_alive()),
                On::Io => world.initiator.submit(on, wire::read(1, 0, 1, vec![0; BLOCK])),
            };
            submitted.expect("room");
        }
        (0..40).for_each(|_| _ = world.ended().result.expect("a success"));
        let unanswered = |it: &Happened| matches!(it, Happened::Lost(Loss::Unanswered { .. }));
        assert!(world.happened.iter().any(unanswered), "{:?}", world.happened);
    }
}

#[test]
fn a_keep_alive_that_gets_no_room_loses_the_controller() {
    let mut world = World::live(1, |options| options.settings.keep_alive = Duration::from_millis(100));
    world.disk.keeps_heads = true;
    let is_lost = |it: &Happened| matches!(it, Happened::Lost(Loss::KeepAlive(_)));
    world.turn_until(|world| world.happened.iter().any(is_lost));
}
