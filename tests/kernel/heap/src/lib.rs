//! For tests only: counts the memory that glibc's malloc has given out, to Rust and to C.

#![expect(unsafe_code, reason = "it calls C")]
/// The bytes allocated now, in every arena and in separate mappings (`uordblks` and `hblkhd` of mallinfo2(3)). Blocks
/// that a thread keeps for its next allocations (its tcache) count as allocated.
#[must_use]
pub fn allocated() -> u64 {
    // SAFETY: mallinfo2 locks each arena while it counts, and has no requirements.
    let info = unsafe { libc::mallinfo2() };
    (info.uordblks + info.hblkhd) as u64
}

#[cfg(test)]
mod tests {
    use super::allocated;

    /// malloc uses an arena for smaller sizes, a mapping for larger ones.
    const THRESHOLD: usize = 128 * 1024;

    #[test]
    fn what_is_allocated_counts_until_it_is_freed() {
        for size in [THRESHOLD / 2, THRESHOLD * 2] {
            let before = allocated();
            let block = vec![1_u8; size];
            let during = allocated();
            assert!(during >= before + size as u64, "{size} bytes: {before} before, {during} with them");
            drop(block);
            let after = allocated();
            assert!(after < before + size as u64 / 2, "{size} bytes: {before} before, {after} after them");
        }
    }
}
