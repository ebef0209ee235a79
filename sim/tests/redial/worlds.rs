//! Random worlds: faults in any order, also while others last and while handshakes are under way.

use std::time::Duration;

use cmid_sim::{Config, Flavour};

use crate::{LIMITS, SECOND, World};

/// Numbers of a seed (splitmix64).
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

fn disturb(world: &mut World, numbers: &mut Numbers) {
    let at = numbers.below(2) as usize;
    match numbers.below(8) {
        0 => world.kill(at),
        1 => {
            world.kill(at);
            world.start(at);
        }
        2 => world.hosts[at].set_link(false),
        3 => world.hosts[at].set_link(true),
        4 => world.fabric.set_loss(0.5),
        5 => {
            world.hosts[at].remove_device();
            world.run(Duration::from_millis(numbers.below(100)));
            world.hosts[at].add_device();
        }
        6 => world.hosts[at].change_link_addr(),
        _ => world.hosts[at].fail_over(),
    }
}

fn calm(world: &mut World) {
    world.fabric.set_loss(0.0);
    for at in [0, 1] {
        world.hosts[at].set_link(true);
        if world.nodes[at].is_none() {
            world.start(at);
        }
    }
}

#[test]
fn after_any_faults_there_is_one_connection_again_and_nothing_is_left() {
    for seed in 0..100 {
        let mut numbers = Numbers(seed);
        let flavour = if seed % 2 == 0 { Flavour::Linux6_12 } else { Flavour::Linux6_1 };
        let latency = Duration::from_micros([12, 1000, 50_000][numbers.below(3) as usize]);
        let mut world = World::new(Config { seed, flavour, latency, ..Config::default() }, LIMITS);
        for _ in 0..4 {
            for _ in 0..=numbers.below(5) {
                disturb(&mut world, &mut numbers);
                // Often within a handshake.
                let most = [1, 50, 5000][numbers.below(3) as usize];
                world.run(Duration::from_millis(numbers.below(most)));
            }
            calm(&mut world);
            world.heals(SECOND * 30);
        }
        world.end();
    }
}
