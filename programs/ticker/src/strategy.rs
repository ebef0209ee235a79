//! The trader's decisions, without I/O: buys below and sells above a moving mean of the price.

use crate::receiver::Update;
use crate::wire::{INSTRUMENTS, Order, Tick};

/// The largest number of orders that are not answered.
pub const OPEN_ORDERS_MAX: u64 = 64;

/// The weight of the last price in the mean, as a power of two.
const WEIGHT: u32 = 4;

/// The strategy: one mean for each instrument.
#[derive(Clone, Debug)]
pub struct Strategy {
    /// The mean price, in hundredths; 0 before the first tick.
    means: [u64; INSTRUMENTS],
    /// The distance from the mean at which it buys or sells, in hundredths.
    edge: u64,
    /// The number of the last order.
    last_order: u64,
    /// Orders that are not answered.
    open: u64,
    counts: OrderCounts,
}

/// The numbers of orders by result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OrderCounts {
    /// Orders sent.
    pub sent: u64,
    /// Orders that the exchange has accepted.
    pub accepted: u64,
    /// Orders that the exchange has refused.
    pub refused: u64,
    /// Orders without an answer, because the connection ended.
    pub unknown: u64,
}

impl Strategy {
    /// Creates a strategy. With an edge of 0 each new tick causes an order.
    #[must_use]
    pub fn new(edge: u64) -> Self {
        Strategy { means: [0; INSTRUMENTS], edge, last_order: 0, open: 0, counts: OrderCounts::default() }
    }

    /// Returns the numbers of orders by result.
    #[must_use]
    pub fn counts(&self) -> OrderCounts {
        self.counts
    }

    /// Returns the number of orders that are not answered.
    #[must_use]
    pub fn open(&self) -> u64 {
        self.open
    }

    /// Handles an update of the receiver. Returns the order to send, if there is one and `may_order` is set. Only new
    /// ticks cause orders.
    #[inline]
    pub fn handle(&mut self, update: Update, may_order: bool) -> Option<Order> {
        match update {
            Update::Tick { tick, is_new } => {
                let mean = self.learn(tick);
                let is_far = tick.price.abs_diff(mean) >= self.edge;
                if !(is_new && may_order && is_far && self.open < OPEN_ORDERS_MAX) {
                    return None;
                }
                self.last_order += 1;
                self.open += 1;
                self.counts.sent += 1;
                let quantity = if tick.price <= mean { 1 } else { -1 };
                Some(Order {
                    number: self.last_order,
                    instrument: tick.instrument,
                    quantity,
                    price: tick.price,
                    tick: tick.sequence,
                })
            }
            Update::Image(tick) => {
                self.learn(tick);
                None
            }
            Update::Started { .. } => {
                self.means = [0; INSTRUMENTS];
                None
            }
            Update::Skipped { .. } => None,
        }
    }

    /// Handles the exchange's answer to an order.
    pub fn handle_answer(&mut self, is_accepted: bool) {
        self.open = self.open.saturating_sub(1);
        if is_accepted {
            self.counts.accepted += 1;
        } else {
            self.counts.refused += 1;
        }
    }

    /// Counts the open orders as unknown, because the connection to the exchange has ended.
    pub fn handle_disconnect(&mut self) {
        self.counts.unknown += std::mem::take(&mut self.open);
    }

    /// Adds a price to the mean of its instrument. Returns the previous mean.
    #[inline]
    fn learn(&mut self, tick: Tick) -> u64 {
        let Some(mean) = self.means.get_mut(usize::from(tick.instrument)) else { return tick.price };
        let before = if *mean == 0 { tick.price } else { *mean };
        *mean = before - (before >> WEIGHT) + (tick.price >> WEIGHT);
        before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tick(price: u64) -> Update {
        Update::Tick { tick: Tick { sequence: price, instrument: 3, quantity: 1, price }, is_new: true }
    }

    #[test]
    fn it_buys_below_the_mean_and_sells_above() {
        let mut strategy = Strategy::new(100);
        assert_eq!(strategy.handle(tick(10_000), true), None);
        let sold = strategy.handle(tick(10_100), true).expect("an order");
        assert_eq!((sold.quantity, sold.price, sold.number, sold.tick), (-1, 10_100, 1, 10_100));
        let bought = strategy.handle(tick(9_800), true).expect("an order");
        assert_eq!((bought.quantity, bought.number), (1, 2));
        assert_eq!(strategy.handle(tick(10_000), true), None);
    }

    #[test]
    fn it_orders_only_on_new_ticks_while_it_may() {
        let mut strategy = Strategy::new(0);
        assert_eq!(strategy.handle(tick(1000), false), None);
        let Update::Tick { tick: old, .. } = tick(1) else { unreachable!() };
        assert_eq!(strategy.handle(Update::Tick { tick: old, is_new: false }, true), None);
        assert_eq!(strategy.handle(Update::Image(old), true), None);
        assert!(strategy.handle(tick(1000), true).is_some());
    }

    #[test]
    fn open_orders_are_limited_and_end_with_the_connection() {
        let mut strategy = Strategy::new(0);
        let ordered = |strategy: &mut Strategy| (0..100).filter(|_| strategy.handle(tick(5), true).is_some()).count();
        assert_eq!(ordered(&mut strategy) as u64, OPEN_ORDERS_MAX);
        strategy.handle_answer(true);
        strategy.handle_answer(false);
        assert_eq!((ordered(&mut strategy), strategy.open()), (2, OPEN_ORDERS_MAX));
        strategy.handle_disconnect();
        let counts = OrderCounts { sent: 66, accepted: 1, refused: 1, unknown: 64 };
        assert_eq!((strategy.counts(), strategy.open()), (counts, 0));
    }
}
