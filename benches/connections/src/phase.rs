//! The phases of a connection, and their times.

use std::time::Duration;

use cmid_proto::Time;

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
#[derive(Clone, Debug, Default)]
pub(crate) struct Times {
    /// From the begin of the first connection to the end of the last one.
    span: Option<(Time, Time)>,
    /// The time of each connection.
    each: Vec<Duration>,
}

impl Times {
    /// Takes only a few instructions, so that it does not disturb other measurements in progress.
    pub(crate) fn note(&mut self, begin: Time, end: Time) {
        self.span = Some(self.span.map_or((begin, end), |(first, last)| (first.min(begin), last.max(end))));
        self.each.push(end.since(begin));
    }

    pub(crate) fn count(&self) -> u64 {
        self.each.len() as u64
    }

    pub(crate) fn total(&self) -> Duration {
        self.span.map_or(Duration::ZERO, |(begin, end)| end.since(begin))
    }

    /// Minimum, median, 99th percentile and maximum.
    pub(crate) fn quantiles(&self) -> [Duration; 4] {
        let mut each = self.each.clone();
        each.sort_unstable();
        let last = each.len().saturating_sub(1);
        [0, 50, 99, 100].map(|part| each.get((each.len() * part / 100).min(last)).copied().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_from_the_first_begin_to_the_last_end() {
        let mut times = Times::default();
        times.note(Time(1_000), Time(3_000));
        times.note(Time(500), Time(600));
        times.note(Time(2_000), Time(9_000));
        assert_eq!((times.count(), times.total()), (3, Duration::from_nanos(8_500)));
        assert_eq!(times.quantiles().map(|time| time.as_nanos()), [100, 2_000, 7_000, 7_000]);
    }

    #[test]
    fn nothing_takes_no_time() {
        let times = Times::default();
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
