//! The sources of the choices of a world.

/// A source of numbers. 0 is always the choice without a fault.
pub trait Choices: std::fmt::Debug {
    /// Returns a number below `limit`, which is at least 1.
    fn below(&mut self, limit: u64) -> u64;
}

/// The numbers of a seed.
#[derive(Debug)]
pub struct Seeded(fastrand::Rng);

impl Seeded {
    /// Returns the numbers of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Seeded(fastrand::Rng::with_seed(seed))
    }
}

impl Choices for Seeded {
    fn below(&mut self, limit: u64) -> u64 {
        self.0.u64(..limit)
    }
}

/// The bytes of a fuzzer, two per choice; then zeros.
#[derive(Debug)]
pub struct Bytes<'a>(pub &'a [u8]);

impl Choices for Bytes<'_> {
    fn below(&mut self, limit: u64) -> u64 {
        match self.0.split_first_chunk() {
            Some((chunk, rest)) => {
                self.0 = rest;
                u64::from(u16::from_be_bytes(*chunk)) % limit
            }
            None => 0,
        }
    }
}
