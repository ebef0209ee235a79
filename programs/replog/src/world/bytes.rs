//! Worlds of a fuzzer: bytes say which faults happen when. Zeros are no faults.

use std::time::Duration;

use cmid_mio::sim::{Config, Failure, World, find};

use super::{FAULTS, Size, replica, run_under};

/// The bytes of a fault: its kind, its hosts, its beginning, its time.
const FAULT: usize = 4;

/// The maximum number of faults.
const MOST: usize = 40;

/// The target of a fuzzer: runs a world with the faults of the bytes. The first byte selects the number of replicas, the
/// second one the seed of the world.
///
/// # Panics
/// As [`run`](super::run).
pub fn run_bytes(data: &[u8]) {
    let input = Input::new(data);
    input.run(&mut World::new(&Config { seed: input.seed, ..Config::default() }));
}

/// As [`run_bytes`]. Returns what has happened, one line each.
///
/// # Errors
/// The failure of the world, with the faults that it needs.
pub fn explain_bytes(data: &[u8]) -> Result<String, Box<Failure>> {
    let input = Input::new(data);
    if let Some(failure) = find(input.seed..input.seed + 1, |world| input.run(world)) {
        return Err(Box::new(failure));
    }
    let mut world = World::logged(&Config { seed: input.seed, ..Config::default() });
    input.run(&mut world);
    Ok(world.trace())
}

/// The world of some bytes.
struct Input<'a> {
    size: Size,
    seed: u64,
    faults: &'a [u8],
}

impl<'a> Input<'a> {
    fn new(data: &'a [u8]) -> Self {
        let ([first, seed], faults) = data.split_first_chunk().unwrap_or((&[0; 2], &[]));
        let replicas = [3, 5][usize::from(first % 2)];
        let size = Size { replicas, clients: 3, records: 6, faults: Duration::from_secs(3), fences: true };
        Input { size, seed: u64::from(*seed), faults }
    }

    fn run(&self, world: &mut World) {
        run_under(world, self.size, |world| self.plan(world));
    }

    fn plan(&self, world: &mut World) {
        let replicas = self.size.replicas;
        for fault in self.faults.chunks_exact(FAULT).take(MOST) {
            let &[kind, hosts, begin, span] = fault else { continue };
            let Some(kind) = usize::from(kind).checked_sub(1) else { continue };
            let at = usize::from(hosts) % replicas;
            let other = (at + 1 + usize::from(hosts) / replicas % (replicas - 1)) % replicas;
            let [begin, span] = [(begin, 8), (span, 3)].map(|(it, scale)| Duration::from_millis(u64::from(it) * scale));
            let begin = world.now().after(begin);
            world.fault(FAULTS[kind % FAULTS.len()], &replica::name(at), &replica::name(other), begin, span);
        }
    }
}
