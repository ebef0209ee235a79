//! The protocol in simulated worlds with faults. A failure prints its seed: `CMID_RANDOM=FIRST..END` replaces the
//! seeds.

use std::ops::Range;
use std::time::Duration;

use replog::world::{Seeded, Size, run, run_bytes};

const SIZE: Size =
    Size { replicas: 3, clients: 3, records: 8, faults: Duration::from_secs(3), reactors: 1, fences: true };

fn seeds(few: u64) -> Range<u64> {
    let Ok(range) = std::env::var("CMID_RANDOM") else { return 0..few };
    let (first, end) = range.split_once("..").expect("CMID_RANDOM is FIRST..END");
    let number = |text: &str| text.parse().expect("CMID_RANDOM has two numbers");
    number(first)..number(end)
}

#[test]
fn three_replicas_keep_their_promises() {
    for seed in seeds(2000) {
        eprintln!("seed {seed}");
        assert_eq!(run(SIZE, Seeded::new(seed)).len(), 24);
    }
}

#[test]
fn five_replicas_keep_their_promises() {
    for seed in seeds(500) {
        eprintln!("seed {seed}");
        assert_eq!(run(Size { replicas: 5, ..SIZE }, Seeded::new(seed)).len(), 24);
    }
}

#[test]
fn replicas_with_several_reactors_keep_their_promises() {
    for seed in seeds(1000) {
        eprintln!("seed {seed}");
        let replicas = [3, 5][(seed % 2) as usize];
        assert_eq!(run(Size { replicas, reactors: 2, ..SIZE }, Seeded::new(seed)).len(), 24);
    }
}

/// The checks of the world detect a protocol that does not fence.
#[test]
fn without_fencing_a_deposed_leader_writes() {
    for reactors in [1, 2] {
        let size = Size { reactors, fences: false, ..SIZE };
        assert!((0..200).any(|seed| is_written_by_a_deposed_leader(size, seed)), "{reactors} reactors");
    }
}

fn is_written_by_a_deposed_leader(size: Size, seed: u64) -> bool {
    let Err(panic) = std::panic::catch_unwind(|| run(size, Seeded::new(seed))) else { return false };
    panic.downcast_ref::<String>().is_some_and(|text| text.contains("a deposed leader has written"))
}

/// As a fuzzer does: any bytes are the choices of a world.
#[test]
fn any_bytes_are_a_world() {
    run_bytes(&[]);
    run_bytes(&[255; 4000]);
    for seed in seeds(200) {
        eprintln!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let len = random.usize(..8000);
        let bytes: Vec<_> = std::iter::repeat_with(|| random.u8(..)).take(len).collect();
        run_bytes(&bytes);
    }
}
