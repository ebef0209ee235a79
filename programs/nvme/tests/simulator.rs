//! The initiator against a target on the simulator: what an application sees, one fault at a time.

mod target;
mod world;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use cmid_nvme::initiator::{Ended, Failure, Happened, On, Options, WAITING_MAX};
use cmid_nvme::wire::{self, CmError, Status};
use target::{BLOCK, Wrong};
use world::fragile::{ADOPT, CALL, FETCH};
use world::{Data, World, options};

/// What a read has read.
fn bytes(ended: Ended<Data>) -> Vec<u8> {
    ended.into_data().expect("a read").expect("its memory").to_vec()
}

#[test]
fn blocks_are_written_and_read_in_the_capsule_and_by_rdma() {
    let mut world = World::live(3, |_| {});
    for count in [1, 2, 3, 8] {
        let data: Vec<u8> = (0..count * BLOCK).map(|at| (at / 7 + count) as u8).collect();
        world.run(On::Io, wire::write(1, 5, count as u16, data.clone())).result.expect("a write");
        let read = world.run(On::Io, wire::read(1, 5, count as u16, vec![0; data.len()]));
        assert!(bytes(read) == data && world.disk.bytes[5 * BLOCK..(5 + count) * BLOCK] == data);
    }
    world.run(On::Io, wire::flush(1)).result.expect("a flush");
    let failure = world.run(On::Io, wire::read(1, 64, 1, vec![0; BLOCK])).result.expect_err("a failure");
    assert_eq!(failure, Failure::Status(Status::LBA_OUT_OF_RANGE));
}

#[test]
fn long_data_is_written_and_read_in_the_memory_of_the_application() {
    for reactors in [0, 2] {
        let mut world = World::live(2, |options| (options.buffers, options.reactors) = (2, reactors));
        assert!(world.initiator.lends());
        for (round, count) in (0..300_u64).map(|round| (round, 3 + round % 6)) {
            let mut data = world.initiator.buffer(count as usize * BLOCK);
            assert!(data.is_registered());
            data.fill(round as u8);
            let at = data.as_ptr();
            let write = wire::write(1, 5, count as u16, data);
            let data = world.run(On::Io, write).into_data().expect("a write").expect("its memory");
            assert_eq!((data.as_ptr(), world.disk.invalidated), (at, 2 * round as u32 + 1));
            let mut other = world.initiator.buffer(data.len());
            other.fill(!0);
            let at = other.as_ptr();
            let other = world.run(On::Io, wire::read(1, 5, count as u16, other)).into_data().expect("a read");
            let other = other.expect("its memory");
            assert!(other.as_ptr() == at && other == data && other[..] == world.disk.bytes[5 * BLOCK..][..data.len()]);
        }
        assert_eq!(world.happened.len(), 1, "{:?}", world.happened);
    }
}

#[test]
fn limits_may_be_nothing_or_endless() {
    let changes: [fn(&mut Options); 4] = [
        |options| options.timeout = Duration::MAX,
        |options| options.settings.keep_alive = Duration::MAX,
        |options| options.settings.size = 0,
        |options| options.transfer = 0,
    ];
    for change in changes {
        World::live(2, change).run(On::Io, wire::write(1, 5, 1, vec![1; BLOCK])).result.expect("a write");
    }
}

#[test]
fn memory_that_is_short_or_not_registered_is_copied() {
    let mut world = World::live(1, |options| options.buffers = 1);
    let first = world.initiator.buffer(BLOCK);
    let second = world.initiator.buffer(8 * BLOCK);
    assert!(first.is_registered() && !second.is_registered(), "there is one");
    for buffer in [first, second] {
        let count = (buffer.len() / BLOCK) as u16;
        assert!(bytes(world.run(On::Io, wire::read(1, 0, count, buffer))).iter().all(|&byte| byte == 0));
    }
    assert_eq!(world.disk.invalidated, 0);
    drop(world.initiator.buffer(BLOCK));
    assert!(!world.initiator.buffer(9 * BLOCK).is_registered(), "no block is so long");
}

#[test]
fn memory_that_is_lent_comes_back_after_a_failure_and_a_loss() {
    for (reactors, writes) in [(0, false), (0, true), (2, false), (2, true)] {
        let mut world = World::live(2, |options| (options.buffers, options.reactors) = (2, reactors));
        let command = |data| if writes { wire::write(1, 0, 8, data) } else { wire::read(1, 0, 8, data) };
        // A status that is final, one that is not, and an answer with an invalidation.
        for (status, lba) in [(0x4006, 0), (6, 0), (0, 64)] {
            world.disk.status = status;
            let mut data = world.initiator.buffer(8 * BLOCK);
            data.fill(7);
            let mut command = command(data);
            command.entry.cdw[0] = lba;
            let Ended { command, result, .. } = world.run(On::Io, command);
            let data = command.transfer.buffer().expect("its memory");
            assert!(result.is_err() && data.is_registered() && data.len() == 8 * BLOCK);
            assert!(!writes || data.iter().all(|&byte| byte == 7));
        }
        world.disk.delay = 1_000_000;
        let mut data = world.initiator.buffer(8 * BLOCK);
        data.fill(9);
        let at = data.as_ptr();
        world.initiator.submit(On::Io, command(data)).expect("room");
        // The other one is taken before it is back.
        let other = world.initiator.buffer(8 * BLOCK);
        let seen = world.disk.invalidated;
        world.turn_until(|world| world.disk.invalidated > seen);
        world.disk.delay = 0;
        world.target.as_mut().expect("a target").cut(1);
        let data = world.ended().into_data().expect("the second attempt").expect("its memory");
        assert!(data.as_ptr() == at && data.is_registered() && data[..] == world.disk.bytes[..8 * BLOCK]);
        assert!(world.happened.iter().any(|it| matches!(it, Happened::Lost(_))));
        // Both are there.
        drop((data, other));
        let [one, other] = [0, 1].map(|_| world.initiator.buffer(BLOCK));
        assert!(one.is_registered() && other.is_registered());
    }
}

#[test]
fn a_window_whose_key_the_target_keeps_ends_with_its_command() {
    for reactors in [0, 1] {
        let mut world = World::live(1, |options| (options.buffers, options.reactors) = (1, reactors));
        world.disk.keeps_keys = true;
        for round in 0..100_u8 {
            let mut data = world.initiator.buffer(8 * BLOCK);
            data.fill(round);
            let at = data.as_ptr();
            let data = world.run(On::Io, wire::write(1, 8, 8, data)).into_data().expect("a write").expect("its memory");
            let mut data =
                world.run(On::Io, wire::read(1, 8, 8, data)).into_data().expect("a read").expect("its memory");
            assert_eq!((data.as_ptr(), data.is_registered()), (at, true));
            assert!(data.iter().all(|&byte| byte == round));
            // It is the application's alone.
            data.fill(!round);
        }
        assert_eq!((world.happened.len(), world.disk.invalidated), (1, 0), "{:?}", world.happened);
    }
}

#[test]
fn a_block_belongs_to_its_command_while_a_reactor_ends_its_window() {
    let mut world = World::live(1, |options| (options.buffers, options.reactors) = (1, 1));
    // The target refuses the command, and keeps the key.
    world.disk.status = 0x4006;
    let data = world.initiator.buffer(8 * BLOCK);
    world.initiator.submit(On::Io, wire::read(1, 0, 8, data)).expect("room");
    world.initiator.before_poll(Duration::ZERO);
    // The reactor takes the answer, the initiator does not turn.
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(300) {
        world.target.as_mut().expect("a target").turn(&mut world.disk);
        assert!(!world.initiator.buffer(BLOCK).is_registered(), "another command has the block");
    }
    let Ended { command, result, .. } = world.ended();
    assert!(result.is_err() && command.transfer.buffer().is_some_and(|data| data.is_registered()));
}

#[test]
fn an_answer_that_is_wrong_ends_the_connection_and_each_command_ends_once() {
    for (wrong, told) in [
        (Wrong::Length(0), "a response has 0 bytes"),
        (Wrong::Length(15), "a response has 15 bytes"),
        (Wrong::Length(17), "a response has 17 bytes"),
        // Which of the failed work requests is polled first is not certain, nor whether a reactor has polled one before the
        // target's disconnect is read.
        (Wrong::Length(128), "queue 1: "),
        (Wrong::Identifier(0x0fff), "a command that is not outstanding"),
        (Wrong::Identifier(0x0008), "a command that is not outstanding"),
        (Wrong::Identifier(0x1000), "a command that is not outstanding"),
        (Wrong::Head(16), "the head of the submission queue is 16"),
        (Wrong::Head(u16::MAX), "the head of the submission queue is 65535"),
        (Wrong::Twice, "response to a command"),
        (Wrong::Key, "queue 1: "),
        (Wrong::OtherKey, "queue 1: "),
    ] {
        for (reactors, writes) in [(0, false), (0, true), (1, false), (1, true)] {
            let mut world = World::live(1, |options| (options.buffers, options.reactors) = (2, reactors));
            world.disk.bytes[..8 * BLOCK].fill(7);
            world.disk.wrong = Some(wrong);
            let mut tickets = Vec::new();
            for at in 0..2 {
                let mut data = world.initiator.buffer(4 * BLOCK);
                data.fill(7);
                let command = if writes { wire::write(1, 4 * at, 4, data) } else { wire::read(1, 4 * at, 4, data) };
                tickets.push(world.initiator.submit(On::Io, command).expect("room"));
            }
            let mut ended = [0, 1].map(|_| world.ended());
            ended.sort_by_key(|ended| ended.ticket);
            assert_eq!(ended.each_ref().map(|ended| ended.ticket)[..], tickets);
            for ended in ended {
                let data = ended.into_data().expect("a success").expect("its memory");
                assert!(data.is_registered() && data.len() == 4 * BLOCK && data.iter().all(|&byte| byte == 7));
            }
            world.turn_until(|world| world.happened.len() > 2 && world.initiator.controller().is_some());
            let lost = |it: &Happened| matches!(it, Happened::Lost(loss) if loss.to_string().contains(told));
            assert!(lost(&world.happened[1]), "{wrong:?}: {:?}", world.happened);
            // Nothing else ends, and it goes on.
            assert!(world.initiator.next_ended().is_none() && world.happened.len() == 3);
            world.run(On::Io, wire::read(1, 0, 1, vec![0; BLOCK])).result.expect("a read");
        }
    }
}

#[test]
fn a_command_is_sent_before_the_poll_that_follows_its_submission() {
    let mut world = World::live(1, |_| {});
    world.initiator.submit(On::Io, wire::write(1, 0, 1, vec![1; BLOCK])).expect("room");
    world.initiator.before_poll(Duration::from_secs(60));
    // Only the target turns.
    let start = Instant::now();
    while world.disk.written.is_empty() {
        world.target.as_mut().expect("a target").turn(&mut world.disk);
        assert!(start.elapsed() < Duration::from_secs(30), "the command was not sent");
    }
}

#[test]
fn more_commands_than_the_queues_hold_wait_for_room_and_all_end() {
    let mut world = World::live(2, |options| options.settings.size = 4);
    let tickets: Vec<_> = (0..200)
        .map(|number| world.initiator.submit(On::Io, wire::write(1, number % 64, 1, vec![number as u8; BLOCK])))
        .collect::<Result<_, _>>()
        .expect("room");
    let mut ended: Vec<_> = (0..tickets.len()).map(|_| world.ended()).collect();
    ended.sort_by_key(|ended| ended.ticket);
    assert!(ended.iter().all(|ended| ended.result.is_ok()));
    assert_eq!(ended.iter().map(|ended| ended.ticket).collect::<Vec<_>>(), tickets);
}

#[test]
fn commands_beyond_the_limit_are_returned_until_ends_are_taken() {
    let mut world = World::live(1, |_| {});
    let submit = |world: &mut World| world.initiator.submit(On::Io, wire::flush(1)).map(drop);
    assert!((0..WAITING_MAX).all(|_| submit(&mut world).is_ok()));
    assert_eq!(submit(&mut world), Err(wire::flush(1).map(Into::into)));
    // Those that have ended count until they are taken; those that are on a queue do not, and there is room for 15.
    world.turn_until(|world| world.disk.flushes == WAITING_MAX);
    (0..100).for_each(|_| world.turn());
    let more = (0..WAITING_MAX).take_while(|_| submit(&mut world).is_ok()).count();
    assert!(more <= 15, "{more}");
    world.ended();
    assert_eq!(submit(&mut world), Ok(()));
}

#[test]
fn a_connection_that_is_lost_is_made_again_and_its_commands_are_sent_again() {
    for reactors in [0, 2] {
        let mut world = World::live(2, |options| options.reactors = reactors);
        world.disk.delay = 1_000_000;
        let ticket = world.initiator.submit(On::Io, wire::write(1, 0, 1, vec![9; BLOCK])).expect("room");
        world.turn_until(|world| !world.disk.written.is_empty());
        world.disk.delay = 0;
        world.target.as_mut().expect("a target").cut(1);
        let ended = world.ended();
        assert_eq!((ended.ticket, ended.result.is_ok(), world.disk.written.len()), (ticket, true, 2));
        assert!(world.happened.iter().any(|it| matches!(it, Happened::Lost(_))));
        assert_eq!(world.initiator.queues_on_reactors(), usize::from(reactors));
    }
}

#[test]
fn a_command_that_is_never_answered_fails_once_after_its_retries() {
    for reactors in [0, 1] {
        let mut world = World::live(1, |options| {
            (options.timeout, options.reactors) = (Duration::from_millis(150), reactors);
        });
        world.disk.delay = 1_000_000;
        let failure = world.run(On::Io, wire::read(1, 0, 1, vec![0; BLOCK])).result.expect_err("a failure");
        assert_eq!(failure, Failure::Lost(6));
        let unanswered =
            |it: &&Happened| matches!(it, Happened::Lost(loss) if loss.to_string().contains("not answered"));
        assert_eq!(world.happened.iter().filter(unanswered).count(), 6);
        world.disk.delay = 0;
        world.run(On::Io, wire::read(1, 0, 1, vec![0; BLOCK])).result.expect("a read");
    }
}

#[test]
fn queues_are_served_by_other_threads_than_the_one_that_connects_them() {
    let mut world = World::live(5, |options| (options.reactors, options.settings.size) = (2, 4));
    assert_eq!(world.initiator.queues_on_reactors(), 5);
    let units = || (0..200_u64).map(|number| (number % 8 * 8, vec![number as u8; 8 * BLOCK]));
    for (lba, data) in units() {
        world.initiator.submit(On::Io, wire::write(1, lba, 8, data)).expect("room");
    }
    // Commands are sent by the reactors: the initiator does not turn.
    world.initiator.before_poll(Duration::ZERO);
    let start = Instant::now();
    while world.disk.written.len() < 5 {
        world.target.as_mut().expect("a target").turn(&mut world.disk);
        assert!(start.elapsed() < Duration::from_secs(30), "the commands were not sent");
    }
    for _ in units() {
        world.ended().result.expect("a write");
    }
    for unit in 0..8 {
        let blocks = world.disk.bytes[unit * 8 * BLOCK..][..8 * BLOCK].to_vec();
        let read = wire::read(1, 8 * unit as u64, 8, vec![0; blocks.len()]);
        assert!(bytes(world.run(On::Io, read)) == blocks && usize::from(blocks[0]) % 8 == unit);
    }
    assert_eq!(world.happened.len(), 1, "{:?}", world.happened);
}

#[test]
fn a_reactor_that_panics_loses_its_queues_and_no_command() {
    // The reactor of this queue fetches the event of its end, or ends it, or gets the next one, to which commands are sent already.
    for what in [FETCH, CALL, ADOPT] {
        let mut world = World::live(2, |options| (options.reactors, options.buffers) = (2, 2));
        world.disk.delay = 1_000_000;
        let mut tickets = Vec::new();
        for lba in 0..20 {
            let data = world.initiator.buffer(4 * BLOCK);
            tickets.push(world.initiator.submit(On::Io, wire::write(1, lba, 4, data)).expect("room"));
        }
        // Both reactors have got their queues.
        world.turn_until(|world| world.disk.written.len() == 20 * 4);
        world.disk.delay = 0;
        world.panics.store(what, Ordering::Relaxed);
        world.target.as_mut().expect("a target").cut(1);
        let mut ended: Vec<_> = tickets.iter().map(|_| world.ended()).collect();
        ended.sort_by_key(|ended| ended.ticket);
        assert!(ended.iter().all(|ended| ended.result.is_ok()));
        assert_eq!(ended.iter().map(|ended| ended.ticket).collect::<Vec<_>>(), tickets);
        assert_eq!(world.panics.load(Ordering::Relaxed), 0, "nothing has panicked");
        // The panic of an end is no loss of its own.
        let panicked = |it: &&Happened| matches!(it, Happened::Lost(loss) if loss.to_string().contains("panicked"));
        let panics = world.happened.iter().filter(panicked).count();
        assert_eq!(
            (panics, world.initiator.queues_on_reactors()),
            (usize::from(what != CALL), 2),
            "{:?}",
            world.happened
        );
    }
}

#[test]
fn a_reactor_that_panics_when_it_has_no_queues_serves_the_next_ones() {
    let mut world = World::live(2, |options| options.reactors = 2);
    for round in 0..100 {
        // All connections end at once: the event may be fetched after the queue has ended.
        let target = world.target.as_mut().expect("a target");
        world.panics.store(FETCH, Ordering::Relaxed);
        (0..3).for_each(|_| target.cut(0));
        let write = wire::write(1, 0, 1, vec![round; BLOCK]);
        world.run(On::Io, write).result.expect("a write");
        world.turn_until(|world| world.initiator.controller().is_some());
    }
}

#[test]
fn a_status_that_is_not_final_is_tried_again_and_a_final_one_not() {
    let mut world = World::live(1, |_| {});
    world.disk.status = 6;
    let ticket = world.initiator.submit(On::Io, wire::write(1, 0, 1, vec![1; BLOCK])).expect("room");
    world.turn_until(|world| world.disk.refused > 0);
    world.disk.status = 0;
    let ended = world.ended();
    assert_eq!((ended.ticket, ended.result.is_ok()), (ticket, true));
    for (status, times) in [(6, 6), (0x4006, 1)] {
        (world.disk.status, world.disk.refused) = (status, 0);
        let failure = world.run(On::Io, wire::read(1, 0, 1, vec![0; BLOCK])).result.expect_err("a failure");
        assert_eq!((failure, world.disk.refused), (Failure::Status(Status(status)), times));
    }
}

#[test]
fn a_target_that_is_gone_for_too_long_ends_all_commands() {
    let mut world = World::live(1, |options| options.ctrl_loss = Some(Duration::from_millis(300)));
    world.target = None;
    let failure = world.run(On::Io, wire::read(1, 0, 1, vec![0; BLOCK])).result.expect_err("a failure");
    assert!(matches!(failure, Failure::GivenUp(_)), "{failure}");
    let failure = world.run(On::Admin, wire::keep_alive()).result.expect_err("a failure");
    assert!(matches!(failure, Failure::GivenUp(_)), "{failure}");
}

#[test]
fn a_first_attempt_that_fails_is_not_repeated_and_tells_why() {
    let attempt = |change: &dyn Fn(&mut cmid_nvme::initiator::Options), reject| {
        let mut options = options(1);
        change(&mut options);
        let mut world = World::new(options);
        world.disk.reject = reject;
        world.turn_until(|world| !world.happened.is_empty());
        match world.happened.remove(0) {
            Happened::GivenUp { loss, .. } => loss.to_string(),
            other @ (Happened::Live | Happened::Lost(_) | Happened::Event(_) | Happened::NoBlocks(_)) => {
                panic!("{other:?}")
            }
        }
    };
    let told = attempt(&|options| options.settings.subsystem = "nqn.other".into(), 0);
    assert!(told.starts_with("Connect: invalid parameters"), "{told}");
    let told = attempt(&|_| {}, 4);
    assert_eq!(told, format!("queue 0: the target rejects the connection: {}", CmError(4)));
    let told = attempt(&|options| options.addr.set_port(1), 0);
    assert!(told.contains("no listener on this port"), "{told}");
}

#[test]
fn a_target_without_resources_is_called_again_once_it_was_connected() {
    let mut world = World::live(1, |_| {});
    world.disk.reject = 6;
    world.target.as_mut().expect("a target").cut(0);
    world.turn_until(|world| world.happened.len() > 3);
    assert!(world.happened[2..].iter().all(|it| matches!(it, Happened::Lost(_))), "{:?}", world.happened);
    world.disk.reject = 0;
    world.run(On::Io, wire::read(1, 0, 1, vec![0; BLOCK])).result.expect("a read");
}

#[test]
fn a_controller_is_kept_alive_and_one_that_does_not_answer_is_lost() {
    let mut world = World::live(1, |_| {});
    world.turn_until(|world| world.disk.keep_alives > 2);
    world.host.set_link(false);
    world.turn_until(|world| world.happened.len() > 1);
    world.host.set_link(true);
    world.run(On::Io, wire::read(1, 0, 1, vec![0; BLOCK])).result.expect("a read");
}

#[test]
fn an_event_of_the_controller_is_told_and_the_next_one_too() {
    let mut world = World::live(1, |_| {});
    for events in 1..3 {
        world.disk.event = 0x04_00_02;
        world.turn_until(|world| world.happened.len() > events);
        assert!(matches!(&world.happened[events], Happened::Event(event) if event.log_page == 4));
    }
}

#[test]
fn what_is_outstanding_at_a_close_ends_here_and_on_reactors() {
    for reactors in [0, 2] {
        let mut world = World::live(3, |options| options.reactors = reactors);
        world.disk.delay = 1_000_000;
        let read = || wire::read(1, 0, 1, vec![0; BLOCK]);
        let tickets: Vec<_> = (0..9).map(|_| world.initiator.submit(On::Io, read()).expect("room")).collect();
        (0..5).for_each(|_| world.turn());
        world.initiator.close();
        for ticket in tickets {
            let ended = world.ended();
            assert_eq!((ended.ticket, ended.result), (ticket, Err(Failure::GivenUp("closed".into()))));
        }
    }
}
