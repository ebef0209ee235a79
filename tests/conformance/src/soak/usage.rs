//! Resources of the process and of the kernel that are in use.

use std::alloc::System;
use std::fmt;

use anyhow::{Context as _, Result, ensure};
use cap::Cap;
use cmid_harness::Env;
use cmid_harness::shell::run;

/// Counts what the Rust side has allocated.
#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

/// Resources in use.
#[derive(Debug)]
pub(crate) struct Usage {
    descriptors: usize,
    /// Bytes that Rust has allocated.
    rust: usize,
    /// Bytes that malloc has given out, to Rust and to C.
    heap: u64,
    /// The output of `rdma resource show`; empty on the simulator.
    objects: String,
}

/// Bytes that this program itself keeps between two measurements: their texts.
const RUST_SLACK: u64 = 512;
/// Bytes that malloc keeps for itself. Each way to migrate occurs 166 times in the 10,000 cycles: losing a block of
/// malloc's smallest size in one of them would exceed this.
const HEAP_SLACK: u64 = 4 * 1024;

impl Usage {
    /// Measures what is in use now.
    pub(crate) fn now(env: &impl Env, kernel: bool) -> Result<Self> {
        let objects = if kernel { run("rdma", &["resource", "show"])?.trim().to_owned() } else { String::new() };
        let descriptors = std::fs::read_dir("/proc/self/fd").context("/proc/self/fd")?.count();
        Ok(Usage { descriptors, rust: ALLOCATOR.allocated(), heap: env.heap(), objects })
    }

    /// Fails if anything has grown since `before`.
    pub(crate) fn compare(&self, before: &Usage) -> Result<()> {
        ensure!(
            self.descriptors == before.descriptors,
            "descriptors: {} before, {} now",
            before.descriptors,
            self.descriptors
        );
        ensure!(
            self.rust as u64 <= before.rust as u64 + RUST_SLACK,
            "Rust: {} bytes before, {} now",
            before.rust,
            self.rust
        );
        ensure!(before.heap > 0, "the heap could not be measured");
        ensure!(self.heap <= before.heap + HEAP_SLACK, "heap: {} bytes before, {} now", before.heap, self.heap);
        ensure!(self.objects == before.objects, "kernel objects: {} before, {} now", before.objects, self.objects);
        Ok(())
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} descriptors, {} bytes by Rust, {} bytes by malloc", self.descriptors, self.rust, self.heap)?;
        if self.objects.is_empty() { Ok(()) } else { write!(f, ", {}", self.objects) }
    }
}
