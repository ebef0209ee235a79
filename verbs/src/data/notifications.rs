//! Counts the pending notifications of a CQ, to save the system call that would find none.

use core::sync::atomic::{AtomicU32, Ordering};

use cmid_proto::Errno;

/// The number of times that a CQ was armed, minus the notifications that were taken. It may be too high: a CQ that is
/// armed twice before a completion notifies once.
#[derive(Default)]
pub(super) struct PendingNotifications(AtomicU32);

impl PendingNotifications {
    /// Records that the CQ was armed.
    pub(super) fn armed(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes notifications with `look`, which takes one if there is one. Returns their number, also after a failure.
    ///
    /// Stops without a further system call when as many were taken as can be pending.
    pub(super) fn take(&self, mut look: impl FnMut() -> Result<bool, Errno>) -> (u32, Result<(), Errno>) {
        let mut taken = 0;
        loop {
            let before = self.0.load(Ordering::Relaxed);
            match look() {
                Ok(true) => taken += 1,
                Ok(false) => {
                    // Fewer notifications came than were expected. Without this correction each later call would make
                    // one system call too many. If one still comes, a later call may leave it unread, and the
                    // descriptor stays readable.
                    if taken > 0 {
                        // If that fails, the CQ has been armed meanwhile, or another thread has taken one.
                        let _ = self.0.compare_exchange(before, 0, Ordering::Relaxed, Ordering::Relaxed);
                    }
                    return (taken, Ok(()));
                }
                Err(errno) => return (taken, Err(errno)),
            }
            if !self.awaits_more() {
                return (taken, Ok(()));
            }
        }
    }

    /// Records that one was taken. Returns whether another one may be pending.
    pub(super) fn awaits_more(&self) -> bool {
        let less = |pending_notifications: u32| pending_notifications.checked_sub(1);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok_and(|before| before > 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes notifications while `there` are pending. Returns how many were taken, with how many reads.
    fn take(pending_notifications: &PendingNotifications, mut there: u32) -> (u32, u32) {
        let mut looks = 0;
        let (taken, result) = pending_notifications.take(|| {
            looks += 1;
            let is_there = there > 0;
            there = there.saturating_sub(1);
            Ok(is_there)
        });
        assert_eq!(result, Ok(()));
        (taken, looks)
    }

    #[test]
    fn one_look_is_enough_for_one_arming() {
        let pending_notifications = PendingNotifications::default();
        for _ in 0..3 {
            pending_notifications.armed();
            assert_eq!(take(&pending_notifications, 1), (1, 1));
        }
    }

    #[test]
    fn what_was_armed_for_twice_is_taken_at_once() {
        let pending_notifications = PendingNotifications::default();
        pending_notifications.armed();
        pending_notifications.armed();
        assert_eq!(take(&pending_notifications, 2), (2, 2));
    }

    #[test]
    fn arming_twice_for_one_notification_costs_one_look_and_not_one_for_ever() {
        let pending_notifications = PendingNotifications::default();
        pending_notifications.armed();
        pending_notifications.armed();
        assert_eq!(take(&pending_notifications, 1), (1, 2));
        for _ in 0..3 {
            pending_notifications.armed();
            assert_eq!(take(&pending_notifications, 1), (1, 1));
        }
    }

    #[test]
    fn looking_too_early_changes_nothing() {
        let pending_notifications = PendingNotifications::default();
        pending_notifications.armed();
        assert_eq!(take(&pending_notifications, 0), (0, 1));
        pending_notifications.armed();
        assert_eq!(take(&pending_notifications, 2), (2, 2));
    }

    #[test]
    fn what_was_not_awaited_is_taken_and_what_was_taken_before_a_failure_is_told() {
        let pending_notifications = PendingNotifications::default();
        assert_eq!(take(&pending_notifications, 1), (1, 1));
        pending_notifications.armed();
        pending_notifications.armed();
        let mut answers = [Ok(true), Err(Errno::EIO)].into_iter();
        assert_eq!(pending_notifications.take(|| answers.next().unwrap()), (1, Err(Errno::EIO)));
    }
}
