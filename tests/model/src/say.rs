//! A log of the steps of one input, for debugging.

use std::cell::RefCell;
use std::env;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

static ASKED: LazyLock<AtomicBool> = LazyLock::new(|| AtomicBool::new(env::var_os("CMID_FUZZ_TRACE").is_some()));

pub(crate) fn turn_on() {
    ASKED.store(true, Ordering::Relaxed);
}

thread_local! {
    /// The lines of the input that runs in this thread, if they are kept.
    static KEPT: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// Runs an input and returns its lines.
pub(crate) fn lines_of(run: impl FnOnce()) -> Vec<String> {
    KEPT.set(Some(Vec::new()));
    run();
    KEPT.take().unwrap_or_default()
}

/// Prints a line if tracing is on, and stores it if lines are kept.
pub(crate) fn say(line: impl FnOnce() -> String) {
    let is_kept = KEPT.with_borrow(Option::is_some);
    if is_kept {
        let line = line();
        KEPT.with_borrow_mut(|kept| kept.iter_mut().for_each(|kept| kept.push(line.clone())));
    } else if ASKED.load(Ordering::Relaxed) {
        eprintln!("{}", line());
    }
}
