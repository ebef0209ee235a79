//! How long something takes.

use std::time::Duration;

use crate::fabric::rng::Rng;

/// A distribution of times. All of them are drawn from the fabric's seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Latency {
    /// Always this time.
    Fixed(Duration),
    /// Any time from the first to the second, all equally often.
    Uniform(Duration, Duration),
    /// From the first to the second, with a long tail: half of the times are in the first 1024th of the span, half of the
    /// others in the first 512th, and so on.
    Tail(Duration, Duration),
}

impl Latency {
    pub(crate) fn draw(self, rng: &mut Rng) -> Duration {
        let (least, most, halves) = match self {
            Latency::Fixed(time) => return time,
            Latency::Uniform(least, most) => (least, most, 0),
            Latency::Tail(least, most) => (least, most, 10 - rng.next().trailing_ones().min(10)),
        };
        let span = u64::try_from(most.saturating_sub(least).as_nanos()).unwrap_or(u64::MAX) >> halves;
        least.saturating_add(Duration::from_nanos(rng.below(span.saturating_add(1))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_stays_within_its_bounds_and_a_tail_is_mostly_short() {
        let (least, most) = (Duration::from_micros(10), Duration::from_millis(10));
        let mut rng = Rng::new(3);
        let mut draw =
            |latency: Latency| std::iter::repeat_with(|| latency.draw(&mut rng)).take(2000).collect::<Vec<_>>();
        for latency in [Latency::Uniform(least, most), Latency::Tail(least, most)] {
            assert!(draw(latency).iter().all(|it| (least..=most).contains(it)), "{latency:?}");
        }
        let short = draw(Latency::Tail(least, most)).iter().filter(|it| **it < most / 100).count();
        assert!((1600..2000).contains(&short), "{short}");
        assert_eq!(draw(Latency::Fixed(most))[7], most);
    }
}
