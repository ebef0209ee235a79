//! Marks the end of each part of a job for callgrind.

/// The number of equal parts of a job; the first is for warming up. `c/versus.h` has the same number.
pub(crate) const PARTS: u32 = 4;

/// callgrind dumps its counts when this is called (`--dump-before`). C's function has the same name.
#[inline(never)]
pub(crate) fn callgrind_mark() {
    std::hint::black_box(());
}

/// Runs a job part by part, with a mark before each but the first, and one at the end.
pub(crate) fn in_parts<E>(mut part: impl FnMut() -> Result<(), E>) -> Result<(), E> {
    for number in 0..PARTS {
        if number > 0 {
            callgrind_mark();
        }
        part()?;
    }
    callgrind_mark();
    Ok(())
}
