//! tokio's clock, in the time of the drivers.

use std::io;
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{Context, Poll};
use std::time::Duration;

use cmid_proto::Time;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::watch::{Registered, caught, in_runtime};

/// The moment at which `CLOCK_MONOTONIC` was 0, which is the clock of `std` and of the drivers. tokio's is the same until it
/// is paused.
fn epoch() -> std::time::Instant {
    static EPOCH: OnceLock<std::time::Instant> = OnceLock::new();
    *EPOCH.get_or_init(|| {
        let (now, Time(ns)) = (std::time::Instant::now(), cmid_io_common::now());
        now.checked_sub(Duration::from_nanos(ns)).unwrap_or(now)
    })
}

/// Returns the present time. It stands still while tokio's clock is paused.
pub(crate) fn now() -> Time {
    Time::ZERO.after(Instant::now().into_std().saturating_duration_since(epoch()))
}

/// Returns the moment of a time on tokio's clock; `None` if it never comes.
fn instant(at: Time) -> Option<Instant> {
    if at == Time::NEVER { None } else { epoch().checked_add(at.since(Time::ZERO)).map(Instant::from_std) }
}

/// A timer for a value that is polled: in the runtime that polls it first, and after that has ended in another one.
#[derive(Debug, Default)]
pub(crate) struct Timer(Registered<Pin<Box<Sleep>>>);

impl Timer {
    /// Ready once the time has come; never without one.
    pub(crate) fn poll(&mut self, due: Option<Time>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(due) = due.and_then(instant) else { return Poll::Pending };
        // The poll of one whose runtime has ended panics.
        let polled = self.0.it.as_mut().and_then(|timer| caught(|| poll(timer, due, context)).ok());
        match polled {
            Some(polled) => polled.map(Ok),
            None => {
                let timer = self.0.insert(in_runtime(|| Box::pin(sleep_until(due)))?);
                caught(|| poll(timer, due, context))?.map(Ok)
            }
        }
    }
}

fn poll(timer: &mut Pin<Box<Sleep>>, due: Instant, context: &mut Context<'_>) -> Poll<()> {
    if timer.deadline() != due {
        timer.as_mut().reset(due);
    }
    timer.as_mut().poll(context)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_clock_of_the_other_drivers() {
        let [before, now, after] = [cmid_io_common::now(), now(), cmid_io_common::now()];
        // The epoch was read between two reads of the clock.
        assert!(now.since(before) < Duration::from_secs(20) && after.since(now) < Duration::from_secs(20));
        assert_eq!(instant(Time::NEVER), None);
    }

    #[tokio::test(start_paused = true)]
    async fn it_stands_still_while_it_is_paused_and_a_time_comes_at_its_moment() {
        let start = now();
        let due = start.after(Duration::from_secs(5));
        assert_eq!(now(), start);
        tokio::time::sleep_until(instant(due).unwrap()).await;
        assert!(due.since(now()).is_zero() && now().since(due) < Duration::from_millis(2));
    }
}
