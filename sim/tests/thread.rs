//! The background thread of a real clock. It runs alone in its process, so that threads can be counted.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::time::Duration;

use cmid_sim::{Clock, Config, Fabric};

fn clock_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.trim() == "cmid-sim").count()
}

#[track_caller]
fn soon(threads: usize) {
    for _ in 0..1000 {
        if clock_threads() == threads {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("{} threads instead of {threads}", clock_threads());
}

#[test]
fn the_thread_lives_as_long_as_any_handle() {
    drop(Fabric::new(Config::default()));
    assert_eq!(clock_threads(), 0);
    let fabric = Fabric::new(Config { clock: Clock::Real, ..Config::default() });
    soon(1);
    let device = fabric.host(&["10.0.0.1".parse().unwrap()]).device();
    drop(fabric);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(clock_threads(), 1);
    drop(device);
    soon(0);
}
