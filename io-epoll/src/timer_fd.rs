//! A timer descriptor inside the epoll instance, so that deadlines, too, make its one descriptor readable.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use cmid_proto::{Errno, Time};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use crate::poller::errno;

/// A `timerfd`, to the nanosecond. Set only when the deadline has changed.
#[derive(Debug)]
pub(crate) struct Alarm {
    timer: OwnedFd,
    set: Time,
}

impl Alarm {
    pub(crate) fn new() -> Result<Self, Errno> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags).map_err(errno)?;
        Ok(Alarm { timer, set: Time::NEVER })
    }

    /// Readable from `due` on; never for [`Time::NEVER`]. Setting it to another time makes it unreadable until then.
    pub(crate) fn set(&mut self, due: Time) -> Result<(), Errno> {
        if due == self.set {
            return Ok(());
        }
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        // All zero would disarm it, so the past is the first nanosecond.
        let value = match due {
            Time::NEVER => zero,
            Time(ns) => {
                let ns = ns.max(1);
                Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 }
            }
        };
        let spec = Itimerspec { it_interval: zero, it_value: value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &spec).map_err(errno)?;
        self.set = due;
        Ok(())
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;
    use crate::clock::now;

    /// What never comes in a test, also on a busy machine.
    const FAR: Duration = Duration::from_secs(3600);

    fn rings_within(alarm: &Alarm, span: Duration) -> bool {
        let timeout = Timespec { tv_sec: span.as_secs() as i64, tv_nsec: i64::from(span.subsec_nanos()) };
        poll(&mut [PollFd::new(alarm, PollFlags::IN)], Some(&timeout)).unwrap() == 1
    }

    fn rings(alarm: &Alarm) -> bool {
        rings_within(alarm, Duration::from_secs(20))
    }

    fn is_silent(alarm: &Alarm) -> bool {
        !rings_within(alarm, Duration::from_millis(50))
    }

    #[test]
    fn a_nearer_deadline_after_a_later_one() {
        let mut alarm = Alarm::new().unwrap();
        alarm.set(now().after(FAR)).unwrap();
        assert!(is_silent(&alarm));
        let near = now().after(Duration::from_millis(20));
        alarm.set(near).unwrap();
        assert!(rings(&alarm) && now() >= near);
    }

    #[test]
    fn nothing_is_due_any_more() {
        let mut alarm = Alarm::new().unwrap();
        alarm.set(now().after(Duration::from_millis(20))).unwrap();
        alarm.set(Time::NEVER).unwrap();
        assert!(is_silent(&alarm));
        let near = now().after(Duration::from_millis(20));
        alarm.set(near).unwrap();
        assert!(rings(&alarm) && now() >= near);
    }

    /// What is due already rings at once, and for as long as it is due.
    #[test]
    fn a_deadline_in_the_past() {
        let (mut alarm, begin) = (Alarm::new().unwrap(), now());
        alarm.set(begin.after(FAR)).unwrap();
        for past in [begin, Time::ZERO] {
            alarm.set(past).unwrap();
            assert!(rings(&alarm));
        }
        alarm.set(now().after(FAR)).unwrap();
        assert!(is_silent(&alarm));
    }
}
