//! Marks the end of each part of a job for callgrind.

/// The variable with the number of parts of a job.
pub(crate) const PARTS: &str = "VERSUS_PARTS";

/// The number of equal parts of a job: that of [`PARTS`], or 4. The first is for warming up. The C program reads the
/// same variable.
pub(crate) fn parts() -> u32 {
    std::env::var(PARTS).ok().and_then(|given| given.parse().ok()).unwrap_or(4)
}

/// callgrind dumps its counts when this is called (`--dump-before`). C's function has the same name.
#[inline(never)]
pub(crate) fn callgrind_mark() {
    std::hint::black_box(());
}

/// Runs a job part by part, with a mark before each but the first, and one at the end.
pub(crate) fn in_parts<E>(mut part: impl FnMut() -> Result<(), E>) -> Result<(), E> {
    for number in 0..parts() {
        if number > 0 {
            callgrind_mark();
        }
        part()?;
    }
    callgrind_mark();
    Ok(())
}
