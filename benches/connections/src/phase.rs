//! The phases of a connection, and their times.

use std::time::Duration;

use anyhow::Result;
use cmid_proto::Time;
use hdrhistogram::Histogram;

/// The phases of a client's connection, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    CreateId,
    Bind,
    ResolveAddr,
    ResolveRoute,
    CreateQp,
    Connect,
    Disconnect,
    Destroy,
}

impl Phase {
    pub(crate) const ALL: [Phase; 8] = [
        Phase::CreateId,
        Phase::Bind,
        Phase::ResolveAddr,
        Phase::ResolveRoute,
        Phase::CreateQp,
        Phase::Connect,
        Phase::Disconnect,
        Phase::Destroy,
    ];

    /// The name that cmtime uses.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Phase::CreateId => "create id",
            Phase::Bind => "bind addr",
            Phase::ResolveAddr => "resolve addr",
            Phase::ResolveRoute => "resolve route",
            Phase::CreateQp => "create qp",
            Phase::Connect => "connect",
            Phase::Disconnect => "disconnect",
            Phase::Destroy => "destroy",
        }
    }

    /// The next phase; `None` after the last.
    pub(crate) fn next(self) -> Option<Phase> {
        Phase::ALL.get(self as usize + 1).copied()
    }
}

/// The times of one phase, or of all of them, over all connections.
#[derive(Clone, Debug)]
pub(crate) struct Times {
    /// From the begin of the first connection to the end of the last one.
    span: Option<(Time, Time)>,
    /// The time of each connection, in nanoseconds.
    each: Histogram<u64>,
}

impl Times {
    /// With a precision of three digits, from nanoseconds to hours.
    pub(crate) fn new() -> Result<Self> {
        Ok(Times { span: None, each: Histogram::new(3)? })
    }

    pub(crate) fn note(&mut self, begin: Time, end: Time) {
        self.span = Some(self.span.map_or((begin, end), |(first, last)| (first.min(begin), last.max(end))));
        let took = end.since(begin).as_nanos().try_into().unwrap_or(u64::MAX);
        if self.each.record(took).is_err() {
            // Saturates beyond the maximum of the histogram.
            self.each.saturating_record(took);
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.each.len()
    }

    pub(crate) fn total(&self) -> Duration {
        self.span.map_or(Duration::ZERO, |(begin, end)| end.since(begin))
    }

    /// Minimum, median, 99th percentile and maximum.
    pub(crate) fn quantiles(&self) -> [Duration; 4] {
        let each = &self.each;
        let min = if each.is_empty() { 0 } else { each.min() };
        [min, each.value_at_quantile(0.5), each.value_at_quantile(0.99), each.max()].map(Duration::from_nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_from_the_first_begin_to_the_last_end() {
        let mut times = Times::new().unwrap();
        times.note(Time(1_000), Time(3_000));
        times.note(Time(500), Time(600));
        times.note(Time(2_000), Time(9_000));
        assert_eq!((times.count(), times.total()), (3, Duration::from_nanos(8_500)));
        let [min, median, p99, max] = times.quantiles().map(|time| time.as_nanos());
        assert_eq!((min, median / 10, p99 / 10, max / 10), (100, 200, 700, 700));
    }

    #[test]
    fn nothing_takes_no_time() {
        let times = Times::new().unwrap();
        assert_eq!((times.total(), times.quantiles()), (Duration::ZERO, [Duration::ZERO; 4]));
    }

    #[test]
    fn the_phases_are_in_their_order() {
        for pair in Phase::ALL.windows(2) {
            assert_eq!(pair[0].next(), Some(pair[1]));
        }
        assert_eq!(Phase::Destroy.next(), None);
    }
}
