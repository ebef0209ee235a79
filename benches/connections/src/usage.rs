//! The memory and processor time that this process has used.

use std::fs;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The peak memory of this process in KiB, from `VmHWM` of Linux; `None` where it does not exist.
pub(crate) fn peak_memory_kib() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The processor time of all its threads.
pub(crate) fn cpu_time() -> Duration {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(used.tv_sec.unsigned_abs(), used.tv_nsec.unsigned_abs() as u32)
}
