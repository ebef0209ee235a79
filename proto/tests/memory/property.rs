//! Random inputs to regions that share PDs. The records of the device and of the regions must agree.

use cmid_proto::Errno;
use cmid_proto::memory::{Fallback, Keys, MemoryOutcome, Policy, Provider, Reply, Traffic};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use crate::world::World;

type Step = (u8, u8, u8, u8);

fn traffic(a: u8) -> Traffic {
    if a % 16 == 15 { Traffic::InFlight } else { Traffic::Quiet }
}

fn policy(a: u8) -> Policy {
    let fallback = if a % 3 == 0 { Fallback::None } else { Fallback::Anew };
    let provider = if a % 4 == 0 { Provider::ChecksFirst } else { Provider::Unknown };
    Policy { fallback, provider }
}

fn outcome(a: u8) -> MemoryOutcome<u32> {
    let keys = Keys::default();
    match a % 5 {
        0 => MemoryOutcome::Registered(Ok((u32::MAX, keys))),
        1 => MemoryOutcome::Registered(Err(Errno::ENOMEM)),
        2 => MemoryOutcome::Reregistered(Reply { code: -i32::from(a / 5 % 7), errno: Errno::EOPNOTSUPP, keys }),
        3 => MemoryOutcome::Deregistered(Ok(())),
        _ => MemoryOutcome::Deregistered(Err(Errno::EBUSY)),
    }
}

fn step(world: &mut World, (what, a, b, c): Step) {
    match what % 20 {
        0 | 1 => world.register(a),
        2..=6 => world.reregister(a, b % 8, c, policy(b / 8), traffic(c)),
        7 => world.deregister(a, traffic(b)),
        8..=16 => world.call(a, b),
        17 => world.confuse(a, outcome(b)),
        18 => world.dealloc(a),
        _ if c < 30 => world.remove(a),
        _ => world.call(a, 0),
    }
    world.check();
}

proptest! {
    // A fixed seed: a failure is due to a change. Change the seed or the number of cases here.
    #![proptest_config(ProptestConfig {
        cases: 1500,
        rng_seed: RngSeed::Fixed(1),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn whatever_happens_uses_are_counted_and_all_memory_comes_back_once(
        steps in prop::collection::vec(any::<Step>(), 1..200),
    ) {
        let mut world = World::new();
        for at in steps {
            step(&mut world, at);
        }
        world.rest();
    }
}
