//! The initiator against a target on the simulator: commands for which a queue has no room, in time or in bytes.

#[allow(dead_code, reason = "the other tests use the rest")]
mod target;
#[allow(dead_code, reason = "the other tests use the rest")]
mod world;

use std::time::Duration;

use cmid_nvme::initiator::{Failure, Happened, Loss, On, Options};
use cmid_nvme::wire;
use target::BLOCK;
use world::{World, options};

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

#[test]
fn a_command_with_more_data_than_the_queue_takes_fails_alone() {
    for reactors in [0, 1] {
        let mut world = World::live(1, |options| options.reactors = reactors);
        let mut submit = |on, command| world.initiator.submit(on, command).expect("room");
        let read = submit(On::Io, wire::read(1, 0, 1, vec![0; BLOCK]));
        let write = submit(On::Io, wire::write(1, 0, 9, vec![0; 9 * BLOCK]));
        let admin = submit(On::Admin, wire::get_log_page(wire::LogPage(2), 0, 4100));
        let mut ended = [0, 1, 2].map(|_| world.ended());
        ended.sort_by_key(|ended| ended.ticket);
        let too_long = |len| Err(Failure::TooLong { len, max: 4096 });
        let expected = [(read, Ok(0)), (write, too_long(9 * BLOCK)), (admin, too_long(4100))];
        assert_eq!(ended.map(|ended| (ended.ticket, ended.result)), expected);
        assert_eq!(world.happened.len(), 1, "{:?}", world.happened);
    }
}

#[test]
fn a_command_that_waits_is_measured_by_the_controller_that_comes_next() {
    let mut world = World::new(Options { transfer: 4 * 4096, ..options(1) });
    world.disk.mdts = 2;
    world.turn_until(|world| world.initiator.controller().is_some());
    assert_eq!(world.initiator.transfer_max(), 4 * 4096);
    world.initiator.reset();
    world.disk.mdts = 1;
    let failure = world.run(On::Io, wire::read(1, 0, 24, vec![0; 24 * BLOCK])).result.expect_err("a failure");
    assert_eq!(failure, Failure::TooLong { len: 24 * BLOCK, max: 2 * 4096 });
    world.run(On::Io, wire::read(1, 0, 1, vec![0; BLOCK])).result.expect("a read");
    // The reset alone.
    assert_eq!(world.happened.len(), 3, "{:?}", world.happened);
}
