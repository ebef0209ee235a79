//! What sends ticks and receives orders: over RDMA, or over sockets.

use anyhow::Result;

/// The number of ticks that a trader holds, and that the feed keeps.
pub(crate) const WINDOW: usize = 4096;

/// Sends ticks and receives orders.
pub(crate) trait Venue {
    /// Whether a trader is connected.
    fn is_ready(&self) -> bool;

    /// Sends the next tick and returns its sequence number.
    fn publish(&mut self) -> Result<u64>;

    /// Polls once. Returns the tick of the last order.
    fn poll(&mut self) -> Result<u64>;
}
