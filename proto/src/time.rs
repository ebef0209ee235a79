//! Time as an argument.

use core::fmt;
use core::time::Duration;

/// A point in time: nanoseconds since an epoch of the driver's choice. The core reads no clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Time(pub u64);

impl Time {
    /// The epoch.
    pub const ZERO: Time = Time(0);
    /// A deadline that never passes, for requests without a time limit.
    pub const NEVER: Time = Time(u64::MAX);

    /// Returns this time plus `span`; saturates at [`Time::NEVER`].
    #[must_use]
    pub fn after(self, span: Duration) -> Time {
        Time(self.0.saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// Returns the time from `now` until this time; zero if it has passed.
    #[must_use]
    pub fn since(self, now: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(now.0))
    }

    /// Whether this deadline has passed; [`Time::NEVER`] never has.
    pub(crate) fn has_passed(self, now: Time) -> bool {
        self <= now && self != Time::NEVER
    }

    /// Returns the milliseconds from `now` until this time, rounded up, at least 1 and at most `i32::MAX`. This is the
    /// form of the `timeout_ms` of `rdma_resolve_addr`, which fails at once with 0.
    #[must_use]
    pub fn millis_from(self, now: Time) -> i32 {
        let ms = self.0.saturating_sub(now.0).saturating_add(999_999) / 1_000_000;
        ms.clamp(1, i32::MAX as u64) as i32
    }
}

/// Seconds with nine decimals: `12.000000500 s`. [`Time::NEVER`] is `never`.
impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Time::NEVER => f.write_str("never"),
            Time(ns) => write!(f, "{}.{:09} s", ns / 1_000_000_000, ns % 1_000_000_000),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Time;

    #[test]
    fn a_deadline_has_passed_at_its_time_and_never_never() {
        let at = |now| Time(5).has_passed(Time(now));
        assert_eq!([4, 5, 6].map(at), [false, true, true]);
        assert!(!Time::NEVER.has_passed(Time(u64::MAX)));
    }
}
