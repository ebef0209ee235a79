//! Invented prices.

use crate::wire::{INSTRUMENTS, Tick};

/// The price at the start, in hundredths.
const START: u64 = 100_000;

/// A random walk for each instrument.
#[derive(Clone, Debug)]
pub struct Quotes {
    prices: [u64; INSTRUMENTS],
    /// The state of xorshift64, never 0.
    random: u64,
}

impl Quotes {
    /// Creates quotes that depend only on the seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Quotes { prices: [START; INSTRUMENTS], random: seed | 1 }
    }

    /// Returns the next tick, without a sequence number.
    pub fn next_tick(&mut self) -> Tick {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let instrument = (self.random >> 32) as usize % INSTRUMENTS;
        let Some(price) = self.prices.get_mut(instrument) else { return Tick::default() };
        // The price changes by at most 1.00.
        *price = price.saturating_add((self.random >> 40) % 201).saturating_sub(100).max(1);
        Tick { instrument: instrument as u16, price: *price, quantity: 100, ..Tick::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_walk_in_small_steps() {
        let mut quotes = Quotes::new(7);
        let mut last = [START; INSTRUMENTS];
        let mut seen = 0_u32;
        for _ in 0..10_000 {
            let tick = quotes.next_tick();
            let before = std::mem::replace(&mut last[usize::from(tick.instrument)], tick.price);
            assert!(tick.price.abs_diff(before) <= 100);
            seen |= 1 << tick.instrument;
        }
        assert_eq!(seen, (1 << INSTRUMENTS) - 1);
    }
}
