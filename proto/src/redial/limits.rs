//! The limits of a series of attempts, and its backoff.

use core::time::Duration;

const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// The limits of a [`Redial`](super::Redial). Each wait has an end, whatever the limits are:
/// [`Redial::new`](super::Redial::new) moves the three spans of a wait into the range from 1 ms to a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RedialLimits {
    /// The time limit of each handshake.
    pub handshake: Duration,
    /// The wait after the first failure. It doubles with each further one.
    pub backoff: Duration,
    /// The longest wait between two attempts, at least `backoff`. A connection that has lasted so long starts the number of
    /// attempts and the backoff anew.
    pub backoff_max: Duration,
    /// The number of own calls in a series; calls of the peer do not count. 0 calls never, which gives up at once.
    pub attempts: u32,
    /// The time limit of a series, from its beginning to a connection. [`Duration::MAX`] for none.
    pub within: Duration,
}

impl Default for RedialLimits {
    /// 5 s for each handshake, waits of 100 ms to 5 s, no limit on the number, a minute in all.
    fn default() -> Self {
        RedialLimits {
            handshake: Duration::from_secs(5),
            backoff: Duration::from_millis(100),
            backoff_max: Duration::from_secs(5),
            attempts: u32::MAX,
            within: Duration::from_secs(60),
        }
    }
}

impl RedialLimits {
    /// Moves the spans of waits into their range.
    pub(super) fn in_range(mut self) -> Self {
        self.handshake = self.handshake.clamp(SHORTEST, LONGEST);
        self.backoff = self.backoff.clamp(SHORTEST, LONGEST);
        self.backoff_max = self.backoff_max.clamp(self.backoff, LONGEST);
        self
    }

    /// Returns the wait after a failure, which `failures` others precede: between a half and all of the backoff, by
    /// `random`, so that programs that have lost the same peer do not call it at the same time.
    pub(super) fn wait(&self, failures: u32, random: u32) -> Duration {
        let doubled = 1_u32.checked_shl(failures).and_then(|factor| self.backoff.checked_mul(factor));
        let half = doubled.map_or(self.backoff_max, |backoff| backoff.min(self.backoff_max)) / 2;
        // At most half a day in nanoseconds times 2^32: less than 2^78.
        let jitter = (half.as_nanos() * u128::from(random)) >> 32;
        half.saturating_add(Duration::from_nanos(u64::try_from(jitter).unwrap_or(u64::MAX)))
    }
}
