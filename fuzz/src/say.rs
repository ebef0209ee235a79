//! What happens, step by step, for a person who looks at one input.

use std::env;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

static ASKED: LazyLock<AtomicBool> = LazyLock::new(|| AtomicBool::new(env::var_os("CMID_FUZZ_TRACE").is_some()));

pub(crate) fn turn_on() {
    ASKED.store(true, Ordering::Relaxed);
}

/// Prints a line if it was asked for.
pub(crate) fn say(line: impl FnOnce() -> String) {
    if ASKED.load(Ordering::Relaxed) {
        eprintln!("{}", line());
    }
}
