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

    /// Readable at `due`, and perhaps once before: where it is set to an earlier time that is still to come, that one stays.
    /// For who waits and looks again: deadlines mostly move on, each by a system call otherwise.
    pub(crate) fn set_by(&mut self, due: Time, present: Time) -> Result<(), Errno> {
        let waits = self.set > present && self.set < due;
        if waits && due != Time::NEVER { Ok(()) } else { self.set(due) }
    }

    /// Readable from `due` on; never for [`Time::NEVER`]. Setting it again makes it unreadable until then.
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
