//! The limit on the size of xtask.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::path::Path;

/// In lines, of all files in `xtask/src`.
const LIMIT: usize = 3500;

#[test]
fn xtask_is_not_larger_than_its_limit() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let lines = |path| fs::read_to_string(path).unwrap().lines().count();
    let files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.iter().all(|path| path.is_file()) && files.iter().any(|path| path.ends_with("main.rs")));
    let sum: usize = files.iter().map(lines).sum();
    assert!(sum <= LIMIT, "{sum} lines in xtask/src, {LIMIT} at most");
}
