//! Measures copies out of and into registered memory, word by word and by memcpy: `cargo bench --package cmid-verbs
//! --bench words`.
#![expect(unsafe_code, reason = "it shares memory as a device does")]
#![allow(clippy::print_stdout, reason = "its output is what it is for")]
#![expect(dead_code, reason = "a module of the library, of which this is a part")]

use std::hint::black_box;
use std::time::Instant;

#[path = "../src/data/words.rs"]
mod words;

/// The number of runs, the least of which is printed, and the bytes that each run copies.
const RUNS: u32 = 20;
const BYTES: usize = 64 << 20;

/// Nanoseconds for each copy.
fn measure(len: usize, mut copy: impl FnMut()) -> f64 {
    let copies = BYTES / len;
    let run = |_| {
        let from = Instant::now();
        (0..copies).for_each(|_| copy());
        from.elapsed().as_secs_f64() * 1e9 / copies as f64
    };
    (0..RUNS).map(run).fold(f64::INFINITY, f64::min)
}

fn main() {
    for len in [64, 64 << 10] {
        for offset in [0, 3] {
            let (mut memory, mut bytes) = (vec![1_u8; len + offset], vec![2_u8; len]);
            let start = memory.as_mut_ptr().wrapping_add(offset);
            let plain = measure(len, || {
                bytes.copy_from_slice(black_box(&memory[offset..]));
                black_box(&mut bytes);
            });
            // SAFETY: the place has `len` bytes, does not overlap `bytes`, and no other code accesses it.
            let out = measure(len, || unsafe { words::load(black_box(start), black_box(&mut bytes)) });
            // SAFETY: as before.
            let back = measure(len, || unsafe { words::store(black_box(start), black_box(&bytes)) });
            println!("{len:>6} bytes at offset {offset}: memcpy {plain:8.1} ns, out {out:8.1} ns, in {back:8.1} ns");
        }
    }
}
