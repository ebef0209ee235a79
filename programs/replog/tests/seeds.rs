//! The program in simulated worlds with faults. A failure prints its seed: `CMID_SEED` replaces the seeds.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use cmid_mio::sim::{Config, World, check};
use replog::world::{Size, run, run_bytes};

const SIZE: Size = Size { replicas: 3, clients: 3, records: 8, faults: Duration::from_secs(3), fences: true };

#[test]
fn three_replicas_keep_their_promises() {
    check(0..2500, |world| assert_eq!(run(world, SIZE).len(), 24));
}

#[test]
fn five_replicas_keep_their_promises() {
    check(0..1000, |world| assert_eq!(run(world, Size { replicas: 5, ..SIZE }).len(), 24));
}

/// The checks of the world detect a protocol that does not fence.
#[test]
fn without_fencing_a_deposed_leader_writes() {
    assert!((0..200).any(|seed| is_written_by_a_deposed_leader(Size { fences: false, ..SIZE }, seed)));
}

fn is_written_by_a_deposed_leader(size: Size, seed: u64) -> bool {
    let mut world = World::new(&Config { seed, ..Config::default() });
    let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(&mut world, size))) else { return false };
    panic.downcast_ref::<String>().is_some_and(|text| text.contains("has written without the right to it"))
}

/// As a fuzzer does: any bytes are the faults of a world.
#[test]
fn any_bytes_are_a_world() {
    run_bytes(&[]);
    run_bytes(&[255; 4000]);
    for seed in 0..50 {
        eprintln!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let len = random.usize(..200);
        let bytes: Vec<_> = std::iter::repeat_with(|| random.u8(..)).take(len).collect();
        run_bytes(&bytes);
    }
}

#[test]
fn the_same_world_twice_is_the_same() {
    let bytes = [1, 7, 1, 1, 40, 90, 4, 2, 90, 30];
    let [one, two] = [(); 2].map(|()| replog::world::explain_bytes(&bytes).expect("a world that keeps its promises"));
    assert!(one == two && one.lines().count() > 900, "{} lines", one.lines().count());
}
