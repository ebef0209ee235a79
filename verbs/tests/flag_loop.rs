//! Copies out of memory that another thread writes to, as the device does. The test is meaningful only with
//! optimisation: `cargo xtask step "a loop sees what another thread writes to memory, in a release build"`.

#![expect(unsafe_code, reason = "it shares memory as a device does")]
use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

#[path = "../src/data/words.rs"]
mod words;

const LEN: usize = 64;
/// The time after which a loop counts as endless.
const LIMIT: Duration = Duration::from_secs(20);
/// The time after which the loop is running.
const PAUSE: Duration = Duration::from_millis(100);

/// Replaces an `Mr`: checks a range, then copies it.
#[repr(align(64))]
struct Memory(UnsafeCell<[u8; LEN]>);

// SAFETY: it is accessed by atomics only.
unsafe impl Sync for Memory {}

impl Memory {
    fn new() -> Arc<Self> {
        Arc::new(Memory(UnsafeCell::new([0; LEN])))
    }

    fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), ()> {
        if offset.checked_add(into.len()).is_none_or(|end| end > LEN) {
            return Err(());
        }
        // SAFETY: the range is inside the memory, which is alive, and `into` does not overlap it. Other threads access
        // it by atomics of the same size.
        unsafe { words::load(self.0.get().cast::<u8>().add(offset), into) };
        Ok(())
    }

    /// Writes one byte, as the device does.
    fn set(&self, at: usize) {
        // SAFETY: inside the memory, which is alive.
        unsafe { AtomicU8::from_ptr(self.0.get().cast::<u8>().add(at)) }.store(1, Ordering::Relaxed);
    }

    fn set_number(&self, number: u32) {
        // SAFETY: the number is at the start of the memory, which is aligned.
        unsafe { AtomicU32::from_ptr(self.0.get().cast()) }.store(number, Ordering::Release);
    }
}

/// Runs a loop on another thread, and checks that a change ends it.
#[track_caller]
fn ends(wait: impl FnOnce() + Send + 'static, change: impl FnOnce()) {
    let (done, ended) = channel::<()>();
    thread::spawn(move || {
        wait();
        drop(done);
    });
    thread::sleep(PAUSE);
    change();
    assert_eq!(ended.recv_timeout(LIMIT), Err(RecvTimeoutError::Disconnected), "the loop does not see the change");
}

#[test]
fn a_loop_that_waits_for_a_byte_ends() {
    let memory = Memory::new();
    let other = Arc::clone(&memory);
    ends(
        move || {
            let mut flag = [0];
            while flag[0] == 0 {
                other.read(0, &mut flag).expect("inside");
            }
        },
        || memory.set(0),
    );
}

#[test]
fn two_copies_are_two_copies() {
    let memory = Memory::new();
    let other = Arc::clone(&memory);
    ends(
        move || {
            let (mut a, mut b) = ([0; 3], [0; 3]);
            while a == b {
                other.read(5, &mut a).expect("inside");
                other.read(5, &mut b).expect("inside");
                if a == [1, 0, 1] {
                    return;
                }
            }
        },
        || {
            memory.set(5);
            memory.set(7);
        },
    );
}

#[test]
fn a_loop_that_waits_for_a_flag_ends() {
    let memory = Memory::new();
    let other = Arc::clone(&memory);
    // SAFETY: the memory begins with the number, and is aligned.
    let wait = move || while unsafe { words::load_acquire(other.0.get().cast(), 4) } != 7 {};
    ends(wait, || memory.set_number(7));
}

#[test]
fn every_range_is_copied_as_it_is() {
    let mut place: [u8; LEN] = core::array::from_fn(|at| at as u8);
    for from in 0..20 {
        for len in 0..LEN - from {
            let start = place.as_mut_ptr().wrapping_add(from);
            let mut copy = [0xff; LEN];
            // SAFETY: inside the place, which no other code accesses.
            unsafe { words::load(start, &mut copy[..len]) };
            assert!((from..from + len).eq(copy[..len].iter().map(|&byte| usize::from(byte))), "{from} {len}");
            assert!(copy[len..].iter().all(|&byte| byte == 0xff));
            let mut other = [0xff; LEN];
            // SAFETY: inside the other place, which no other code accesses.
            unsafe { words::store(other.as_mut_ptr().wrapping_add(from), &copy[..len]) };
            assert_eq!(other[from..from + len], copy[..len]);
            assert!(other[..from].iter().chain(&other[from + len..]).all(|&byte| byte == 0xff), "{from} {len}");
        }
    }
}

#[test]
fn flags_have_their_size() {
    let mut place = [0_u64; 2];
    let start = place.as_mut_ptr().cast::<u8>();
    // SAFETY: inside the place, aligned, and no other code accesses it.
    unsafe {
        words::store_release(start, 8, u64::MAX);
        words::store_release(start.wrapping_add(4), 4, 7 << 32 | 5);
        assert_eq!(words::load_acquire(start.wrapping_add(4), 4), 5);
        assert_eq!(words::load_acquire(start, 4), u64::from(u32::MAX));
        let mut bytes = [0; 8];
        words::load(start, &mut bytes);
        assert_eq!(words::load_acquire(start, 8), u64::from_ne_bytes(bytes));
    }
    assert_eq!(place[1], 0);
}
