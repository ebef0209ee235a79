//! Runs a few jobs at a time.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicUsize, Ordering::Relaxed},
};
use std::thread;

/// Runs `one` for each of `all`, in `lanes` threads. After a failure no new one begins. The result of those is
/// `None`.
pub(crate) fn run<T: Sync, E: Send>(
    lanes: usize,
    all: &[T],
    one: impl Fn(&T) -> E + Sync,
    is_failure: impl Fn(&E) -> bool + Sync,
) -> Vec<Option<E>> {
    let next = AtomicUsize::new(0);
    let ended = Mutex::new(all.iter().map(|_| None).collect::<Vec<_>>());
    let lane = || {
        while let Some((index, item)) = all.iter().enumerate().nth(next.fetch_add(1, Relaxed)) {
            let end = one(item);
            if is_failure(&end) {
                next.store(all.len(), Relaxed);
            }
            ended.lock().unwrap_or_else(PoisonError::into_inner)[index] = Some(end);
        }
    };
    thread::scope(|scope| (0..lanes).for_each(|_| drop(scope.spawn(lane))));
    ended.into_inner().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_failure_none_begins() {
        assert_eq!(run(2, &[0, 1, 2, 3, 4], |&n| n, |_| false), [0, 1, 2, 3, 4].map(Some));
        assert_eq!(run(1, &[0, 1, 2, 3, 4], |&n| n, |&n| n == 2), [Some(0), Some(1), Some(2), None, None]);
    }
}
