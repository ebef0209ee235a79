//! Who is woken when something happens on a channel.

use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Wake, Waker};

use cmid_io_common::Process;

/// A side of a channel that a task waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Half {
    Receive = 0,
    Send = 1,
}

impl Half {
    fn other(self) -> Half {
        if self == Half::Receive { Half::Send } else { Half::Receive }
    }
}

/// The last task that has waited for each half. One may receive and another one send, and a descriptor or a timer has room
/// for one waker: it has this one, which wakes both.
#[derive(Debug, Default)]
pub(super) struct Wakers {
    halves: [Mutex<Option<Waker>>; 2],
    /// Whether the peer had few credits at the last turn.
    peer_is_low: AtomicBool,
    process: Process,
}

impl Wakers {
    fn of(&self, half: Half) -> MutexGuard<'_, Option<Waker>> {
        // No call panics while it holds the lock.
        self.halves[half as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The task of the context waits for a half.
    pub(super) fn register(&self, half: Half, context: &Context<'_>) {
        let waker = context.waker().clone();
        let before = self.of(half).replace(waker);
        // Not within the lock: it may be the last of its task, which drops messages then.
        drop(before);
    }

    /// The task waits for a half no more.
    pub(super) fn forget(&self, half: Half) {
        let before = self.of(half).take();
        // As in `register`.
        drop(before);
    }

    /// Called before the channel looks for the receives of dropped messages.
    pub(super) fn look(&self, peer_is_low: bool) {
        self.peer_is_low.store(peer_is_low, Ordering::Relaxed);
        // With that of `dropped`: the channel sees the receive, or `dropped` sees what is stored.
        fence(Ordering::SeqCst);
    }

    /// The receive of a message is free again. It can wait for the next turn, unless the peer has few credits. In a forked
    /// child nobody waits, and another thread of the parent may have had a lock.
    pub(super) fn dropped(self: &Arc<Self>) {
        fence(Ordering::SeqCst);
        if self.peer_is_low.load(Ordering::Relaxed) && !self.process.is_other() {
            self.wake_by_ref();
        }
    }

    /// One half has seen what is perhaps for the other one.
    pub(super) fn wake_other(&self, half: Half) {
        // Not within the lock: the task may run at once, and register.
        let waiting = self.of(half.other()).take();
        waiting.into_iter().for_each(Waker::wake);
    }
}

impl Wake for Wakers {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.wake_other(Half::Send);
        self.wake_other(Half::Receive);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// The waker of a task whose executor is gone. Its drop drops the task, and a message that the task has.
    struct Last(Arc<Wakers>);

    impl Wake for Last {
        fn wake(self: Arc<Self>) {}
    }

    impl Drop for Last {
        fn drop(&mut self) {
            self.0.dropped();
        }
    }

    #[test]
    fn a_task_that_ends_with_its_waker_drops_its_messages() {
        let (ended, ends) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let wakers = Arc::new(Wakers::default());
            wakers.look(true);
            for half in [Half::Receive, Half::Send] {
                let last = Waker::from(Arc::new(Last(Arc::clone(&wakers))));
                wakers.register(half, &Context::from_waker(&last));
                drop(last);
                wakers.register(half, &Context::from_waker(Waker::noop()));
            }
            let _ = ended.send(());
        });
        assert_eq!(ends.recv_timeout(std::time::Duration::from_secs(20)), Ok(()), "it waits for its own lock");
    }

    #[derive(Default)]
    struct Count(AtomicU32);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn each_half_wakes_the_last_task_that_has_waited_for_it_once() {
        let tasks: [Arc<Count>; 3] = Default::default();
        let counts = || tasks.each_ref().map(|task| task.0.load(Ordering::Relaxed));
        let wakers = Arc::new(Wakers::default());
        let wait = |half, task: usize| {
            wakers.register(half, &Context::from_waker(&Waker::from(Arc::clone(&tasks[task]))));
        };
        wait(Half::Receive, 0);
        wait(Half::Receive, 1);
        wait(Half::Send, 2);
        wakers.wake_other(Half::Receive);
        assert_eq!(counts(), [0, 0, 1]);
        wakers.wake_by_ref();
        wakers.wake_by_ref();
        assert_eq!(counts(), [0, 1, 1]);
    }

    #[test]
    fn a_forked_child_that_drops_a_message_does_not_wait_for_the_locks_of_its_parent() {
        let wakers = Arc::new(Wakers { process: Process(0), ..Wakers::default() });
        wakers.look(true);
        let _held = (wakers.of(Half::Send), wakers.of(Half::Receive));
        wakers.dropped();
    }
}
