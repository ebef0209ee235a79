//! A timer descriptor in the epoll instance, which makes the driver's descriptor readable at deadlines.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use cmid_proto::Time;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

/// A `timerfd` with nanosecond resolution. It is set only when the deadline has changed.
#[derive(Debug)]
pub(crate) struct TimerFd {
    timer: OwnedFd,
    set: Time,
}

impl TimerFd {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        Ok(TimerFd { timer, set: Time::NEVER })
    }

    /// Makes the descriptor readable from `due` on; never for [`Time::NEVER`]. Before `due` it is not readable, also if
    /// it was before the call.
    pub(crate) fn set(&mut self, due: Time) -> io::Result<()> {
        if due == self.set { Ok(()) } else { self.change(due) }
    }

    fn change(&mut self, due: Time) -> io::Result<()> {
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        // A value of zero would disarm the timer, so the time 0 becomes the first nanosecond.
        let value = match due {
            Time::NEVER => zero,
            Time(ns) => {
                let ns = ns.max(1);
                Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 }
            }
        };
        let spec = Itimerspec { it_interval: zero, it_value: value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &spec)?;
        self.set = due;
        Ok(())
    }
}

impl AsFd for TimerFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;
    use cmid_io_common::now;

    /// A time that no test reaches, also on a busy machine.
    const FAR: Duration = Duration::from_secs(3600);

    fn rings_within(timer_fd: &TimerFd, span: Duration) -> bool {
        let timeout = Timespec { tv_sec: span.as_secs() as i64, tv_nsec: i64::from(span.subsec_nanos()) };
        poll(&mut [PollFd::new(timer_fd, PollFlags::IN)], Some(&timeout)).unwrap() == 1
    }

    fn rings(timer_fd: &TimerFd) -> bool {
        rings_within(timer_fd, Duration::from_secs(20))
    }

    fn is_silent(timer_fd: &TimerFd) -> bool {
        !rings_within(timer_fd, Duration::from_millis(50))
    }

    #[test]
    fn a_nearer_deadline_after_a_later_one() {
        let mut timer_fd = TimerFd::new().unwrap();
        timer_fd.set(now().after(FAR)).unwrap();
        assert!(is_silent(&timer_fd));
        let near = now().after(Duration::from_millis(20));
        timer_fd.set(near).unwrap();
        assert!(rings(&timer_fd) && now() >= near);
    }

    #[test]
    fn nothing_is_due_any_more() {
        let mut timer_fd = TimerFd::new().unwrap();
        timer_fd.set(now().after(Duration::from_millis(20))).unwrap();
        timer_fd.set(Time::NEVER).unwrap();
        assert!(is_silent(&timer_fd));
        let near = now().after(Duration::from_millis(20));
        timer_fd.set(near).unwrap();
        assert!(rings(&timer_fd) && now() >= near);
    }

    /// A time in the past makes the descriptor readable at once, until the timer is set again.
    #[test]
    fn a_deadline_in_the_past() {
        let (mut timer_fd, begin) = (TimerFd::new().unwrap(), now());
        timer_fd.set(begin.after(FAR)).unwrap();
        for past in [begin, Time::ZERO] {
            timer_fd.set(past).unwrap();
            assert!(rings(&timer_fd));
        }
        timer_fd.set(now().after(FAR)).unwrap();
        assert!(is_silent(&timer_fd));
    }
}
